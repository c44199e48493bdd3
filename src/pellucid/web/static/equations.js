// The equations that this page shows, numbered as in docs/equations.md, which says more of each.

import { fill, h } from "./elements.js";
import { FORMULAS } from "./formulas.js";

const SAYS = {
  1: "Start from single bytes. Join the most frequent pair of neighbours into a new token, again and again.",
  2: "The loss is the mean surprise: how little probability the model gave to each token that came, as −ln p, in nats.",
  3: "A token becomes a row of numbers; at the end, a product with one row per token gives each token its score, the logit.",
  5: "Each pair of numbers of a query or key is turned by an angle that grows with its position.",
  7: "A query asks, keys answer: their product is a score. Softmax makes scores into weights that sum to 1, and the output is the weighted mean of the values.",
  8: "A model that predicts must not look ahead: what comes later gets the score −∞, and so the weight 0.",
  9: "Heads attend side by side, each in its own way; one matrix mixes what they found.",
  10: "Every part adds to the stream x and replaces nothing, so the stream can be read after each part. The norm brings x to mean 0 and variance 1 first.",
  11: "At each position separately: widen, apply an activation to each number, narrow again.",
  18: "No model can do better on average than the entropy of the text, the floor. What lies above the floor can be learned.",
  19: "Logits are divided by α before the softmax: below 1, likely tokens become likelier; above 1, all become more alike; 0 always takes the likeliest.",
  20: "Cut off the unlikely tail and make the rest sum to 1 again. Top-k keeps the k likeliest tokens, top-p the fewest whose probability reaches p.",
  21: "LayerNorm without subtracting the mean and without the bias.",
  22: "A second projection gates the first.",
  23: "Several query heads share one head of keys and values.",
  24: "Queries and keys are normalised, each head's or those of all heads as one, before they are multiplied, so that scores cannot grow without bound.",
  31: "Only a part of each query and key is turned; the rest knows no position.",
  38: "Scores are products of feature maps, without a softmax.",
  39: "A query sees only the nearest keys before it.",
  40: "A router sends each token to a few of many feed-forward layers.",
  49: "Clocks that turn slowly turn more slowly still, so that longer texts look to them like those of training.",
  52: "The norm stands on what the sublayer returns, so x stays a sum, and no summand is larger than the gain allows.",
  53: "A second projection gates the first, by GELU.",
  54: "Attention and feed-forward read the same stream side by side; both are added to it.",
  55: "Of the clocks between fast and slow, each keeps less of its speed than the one before it, by equal steps.",
  57: "Scores are squashed between −cap and cap, so that no weight is nearly 1 only because vectors are long.",
  58: "One norm stands before the sublayer, and one on what it returns.",
  59: "In layers with a window, where distances are short, the clocks of RoPE turn faster.",
  62: "Every position takes from all of its text, also from what comes later.",
  63: "What fits a gap: put each token into its place, and compare the probabilities of the whole texts.",
};

// Which lines of which equations compute a step of a layer (model/residual.py and the layers name the steps).
const LINES = {
  "norm(x)": { 10: 0, 21: 0 },
  q: { 7: 0, 24: 0, 5: 0, 59: 0 },
  k: { 7: 1, 24: 1, 5: 1, 31: 0 },
  v: { 7: 2 },
  scores: { 57: 0, 8: [0, 1], 39: [0, 1] },
  weights: { 7: 3 },
  heads: { 7: 4, 38: 0 },
  output: { 9: 0, 11: 0, 22: 0, 53: 0, 40: 1 },
  "shares of experts": { 40: 0 },
};
const ACTIVATIONS = { relu: 1, gelu: 2, gelu_tanh: 2, relu_squared: 3 }; // lines of equation 11
const BIASES = /<mo>\+<\/mo>(<mi>b<\/mi>|<msub><mi>b<\/mi><mn>\d<\/mn><\/msub>)/g;

// The formulas by which a model with this config computes a step: no others, and without biases that it does not have.
export function formulaOf({ name, equations }, { norm_placement, activation, bias }) {
  const newX = {
    pre: { 10: 1 },
    parallel: { 10: 1, 54: 0 },
    post: { 10: equations.includes(21) ? 2 : [0, 2], 21: 0 },
    output: { 52: 0, 10: 0, 21: 0 },
    both: { 58: 0 },
  };
  const ofConfig = {
    "new x": newX[norm_placement],
    hidden: { 11: ACTIVATIONS[activation], 22: 1, 53: 1 },
    ...(equations.includes(38) && { scores: {} }), // which has another mask
  };
  const lines = ofConfig[name] ?? LINES[name] ?? {};
  const math = equations.flatMap((number) => [lines[number] ?? []].flat().map((line) => FORMULAS[number].math[line]));
  return formula(math.map((line) => (bias === true ? line : line.replace(BIASES, ""))));
}

function formula(math) {
  const box = h("div.formula");
  box.innerHTML = math.join("");
  return box;
}

// Gives each button with `data-equations` its text, and what it opens: the equations in a dialog.
export function linkEquations(root = document) {
  for (const button of root.querySelectorAll("button.eq")) {
    const numbers = button.dataset.equations.split(" ");
    button.type = "button";
    button.textContent = numbers.length === 1 ? `equation ${numbers[0]}` : `equations ${numbers.join(", ")}`;
    button.addEventListener("click", () => open(numbers));
  }
}

function open(numbers) {
  const dialog = document.getElementById("equation");
  const section = (number) => {
    const { title, code } = FORMULAS[number];
    const where = ["docs/equations.md, section ", number, " · code: ", h("code", code)];
    const says = [h("p", SAYS[number]), h("p.muted.small", where)];
    return h("section.equation", h("h3", `${number}. ${title}`), formula(FORMULAS[number].math), says);
  };
  const heading = { id: "equation-title", tabindex: -1, autofocus: true };
  const close = h("form", { method: "dialog" }, h("button.main", { type: "submit" }, "Close"));
  fill(dialog, h("h2", heading, numbers.length === 1 ? "The equation" : "The equations"), numbers.map(section), close);
  dialog.showModal();
}
