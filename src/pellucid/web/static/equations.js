// The equations that this page shows, numbered and lettered as in docs/equations.md, which says more of each.

import { fill, h } from "./elements.js";

const i = (name) => `<mi>${name}</mi>`;
const o = (name) => `<mo>${name}</mo>`;
const n = (name) => `<mn>${name}</mn>`;
const sub = (base, index) => `<msub>${group(base)}${group(index)}</msub>`;
const sup = (base, power) => `<msup>${group(base)}${group(power)}</msup>`;
const over = (top, below) => `<mfrac>${group(top)}${group(below)}</mfrac>`;
const root = (inside) => `<msqrt>${inside}</msqrt>`;
const group = (inside) => `<mrow>${inside}</mrow>`;
const word = (text) => `<mtext>${text.replace(/^ | $/g, "\u00a0")}</mtext>`;
const gap = '<mspace width="1.2em"/>';
const sum = (below, above = "") => `<munderover>${o("∑")}${group(below)}${group(above)}</munderover>`;
const hat = `<mover accent="true">${i("p")}${o("^")}</mover>`;

const x = i("x");
const norm = (inside) => word("norm") + o("(") + inside + o(")");

export const EQUATIONS = {
  1: {
    title: "Byte-pair encoding",
    says: "Start from single bytes. Join the most frequent pair of neighbours into a new token, again and again.",
    math: i("a") + gap + i("b") + o("→") + i("ab"),
    code: "src/pellucid/tokenizer/train.py",
  },
  2: {
    title: "Predicting the next token",
    says: "The loss is the mean surprise: how little probability the model gave to each token that came, as −ln p, in nats.",
    math:
      i("ℓ") +
      o("=") +
      o("−") +
      over(n(1), i("T")) +
      sum(i("t") + o("=") + n(1), i("T")) +
      o("ln") +
      hat +
      o("(") +
      sub(i("w"), i("t")) +
      o("|") +
      sub(i("w"), n(1)) +
      o(",") +
      o("…") +
      o(",") +
      sub(i("w"), i("t") + o("−") + n(1)) +
      o(")"),
    code: "src/pellucid/objectives/next_token.py",
  },
  3: {
    title: "Embedding and unembedding",
    says: "A token becomes a row of numbers; at the end, a product with one row per token gives each token its score, the logit.",
    math: sub(i("z"), i("t")) + o("=") + i("U") + sub(x, i("t")),
    code: "src/pellucid/model/embeddings.py",
  },
  5: {
    title: "Rotary positions",
    says: "Each pair of numbers of a query or key is turned by an angle that grows with its position.",
    math: word("(q₂ᵢ, q₂ᵢ₊₁)") + o("←") + word("turned by the angle") + gap + i("t") + sub(i("ω"), i("i")),
    code: "src/pellucid/model/positions.py",
  },
  7: {
    title: "Scaled dot-product attention",
    says: "A query asks, keys answer: their product is a score. Softmax makes scores into weights that sum to 1, and the output is the weighted mean of the values.",
    math:
      sub(i("a"), i("t")) +
      o("=") +
      word("softmax") +
      o("(") +
      over(sub(i("q"), i("t")) + o("·") + sub(i("k"), n(0)), root(i("K"))) +
      o(",") +
      o("…") +
      o(",") +
      over(sub(i("q"), i("t")) + o("·") + sub(i("k"), i("T") + o("−") + n(1)), root(i("K"))) +
      o(")") +
      gap +
      sub(i("y"), i("t")) +
      o("=") +
      sum(i("s")) +
      sub(i("a"), i("ts")) +
      sub(i("v"), i("s")),
    code: "src/pellucid/model/attention.py",
  },
  8: {
    title: "The causal mask",
    says: "A model that predicts must not look ahead: what comes later gets the score −∞, and so the weight 0.",
    math:
      sub(i("M"), i("ts")) +
      o("=") +
      n(0) +
      word(" if s ≤ t") +
      o(",") +
      gap +
      sub(i("M"), i("ts")) +
      o("=") +
      o("−") +
      i("∞") +
      word(" if s > t"),
    code: "src/pellucid/model/attention.py",
  },
  9: {
    title: "Several heads",
    says: "Heads attend side by side, each in its own way; one matrix mixes what they found.",
    math:
      word("attention") +
      sub(o("(") + x + o(")"), i("t")) +
      o("=") +
      sub(i("W"), i("O")) +
      o("[") +
      sup(sub(i("y"), i("t")), word("(1)")) +
      o(",") +
      o("…") +
      o(",") +
      sup(sub(i("y"), i("t")), word("(H)")) +
      o("]"),
    code: "src/pellucid/model/attention.py",
  },
  10: {
    title: "Residual connection and LayerNorm",
    says: "Every part adds to the stream x and replaces nothing, so the stream can be read after each part. The norm brings x to mean 0 and variance 1 first.",
    math:
      x +
      o("←") +
      x +
      o("+") +
      i("f") +
      o("(") +
      norm(x) +
      o(")") +
      gap +
      norm(x) +
      o("=") +
      i("γ") +
      o("⊙") +
      over(x + o("−") + word("mean") + o("(") + x + o(")"), root(word("var") + o("(") + x + o(")") + o("+") + i("ε"))) +
      o("+") +
      i("b"),
    code: "src/pellucid/model/residual.py",
  },
  11: {
    title: "Feed-forward",
    says: "At each position separately: widen, apply an activation to each number, narrow again.",
    math:
      i("f") +
      o("(") +
      x +
      o(")") +
      o("=") +
      sub(i("W"), n(2)) +
      word(" act") +
      o("(") +
      sub(i("W"), n(1)) +
      x +
      o("+") +
      sub(i("b"), n(1)) +
      o(")") +
      o("+") +
      sub(i("b"), n(2)),
    code: "src/pellucid/model/feed_forward.py",
  },
  18: {
    title: "Reducible loss",
    says: "No model can do better on average than the entropy of the text, the floor. What lies above the floor can be learned.",
    math: word("reducible loss") + o("=") + word("loss") + o("−") + word("irreducible loss"),
    code: "src/pellucid/corpora/fables/entropy.py",
  },
  19: {
    title: "Temperature",
    says: "Logits are divided by α before the softmax: below 1, likely tokens become likelier; above 1, all become more alike; 0 always takes the likeliest.",
    math: sub(hat, i("i")) + o("∝") + sup(i("e"), sub(i("z"), i("i")) + o("/") + i("α")),
    code: "src/pellucid/generation/sampling.py",
  },
  20: {
    title: "Top-k and top-p",
    says: "Cut off the unlikely tail and make the rest sum to 1 again. Top-k keeps the k likeliest tokens, top-p the fewest whose probability reaches p.",
    math:
      word("top-k: ") +
      o("|") +
      i("C") +
      o("|") +
      o("=") +
      i("k") +
      gap +
      word("top-p: the smallest C with ") +
      `<munder>${o("∑")}${group(i("i") + o("∈") + i("C"))}</munder>` +
      sub(hat, i("i")) +
      o("≥") +
      i("p"),
    code: "src/pellucid/generation/sampling.py",
  },
  21: {
    title: "RMSNorm",
    says: "LayerNorm without subtracting the mean and without the bias.",
    math:
      norm(x) +
      o("=") +
      i("γ") +
      o("⊙") +
      over(x, root(word("mean") + o("(") + sup(x, n(2)) + o(")") + o("+") + i("ε"))),
    code: "src/pellucid/model/norms.py",
  },
  22: {
    title: "SwiGLU",
    says: "A second projection gates the first.",
    math:
      i("f") +
      o("(") +
      x +
      o(")") +
      o("=") +
      sub(i("W"), n(2)) +
      o("(") +
      word("SiLU") +
      o("(") +
      sub(i("W"), n(1)) +
      x +
      o(")") +
      o("⊙") +
      sub(i("W"), n(3)) +
      x +
      o(")"),
    code: "src/pellucid/model/feed_forward.py",
  },
  23: {
    title: "Grouped queries",
    says: "Several query heads share one head of keys and values.",
    math: i("G") + o("<") + i("H"),
    code: "src/pellucid/model/attention.py",
  },
  24: {
    title: "QK-norm",
    says: "Each head's queries and keys are normalised before they are multiplied, so that scores cannot grow without bound.",
    math:
      sub(i("q"), i("t")) +
      o("←") +
      norm(sub(i("q"), i("t"))) +
      gap +
      sub(i("k"), i("s")) +
      o("←") +
      norm(sub(i("k"), i("s"))),
    code: "src/pellucid/model/attention.py",
  },
  31: {
    title: "Partial rotary positions",
    says: "Only a part of each query and key is turned; the rest knows no position.",
    math: word("turned: the first of the K numbers"),
    code: "src/pellucid/model/positions.py",
  },
  38: {
    title: "Linear attention",
    says: "Scores are products of feature maps, without a softmax.",
    math: i("φ") + o("(") + i("q") + o(")") + o("·") + i("φ") + o("(") + i("k") + o(")"),
    code: "src/pellucid/model/linear_attention.py",
  },
  39: {
    title: "A sliding window",
    says: "A query sees only the nearest keys before it.",
    math: i("t") + o("−") + i("s") + o("<") + word("window"),
    code: "src/pellucid/model/sliding_window.py",
  },
  40: {
    title: "Mixture of experts",
    says: "A router sends each token to a few of many feed-forward layers.",
    math: sum(i("e")) + sub(i("g"), i("e")) + sub(i("f"), i("e")) + o("(") + x + o(")"),
    code: "src/pellucid/model/experts.py",
  },
};

// The formula as an element: a line for each of its parts.
export function formula(number) {
  const lines = EQUATIONS[number].math.split(gap).map((line) => `<math display="block">${group(line)}</math>`);
  const math = `<div xmlns="http://www.w3.org/1998/Math/MathML">${lines.join("")}</div>`;
  const parsed = new DOMParser().parseFromString(math, "text/xml").documentElement;
  return h("div", { class: "formula" }, ...[...parsed.children].map((line) => document.importNode(line, true)));
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
  const known = numbers.filter((number) => number in EQUATIONS);
  fill(
    dialog,
    h("h2", { id: "equation-title" }, known.length === 1 ? "The equation" : "The equations"),
    ...known.map((number) =>
      h(
        "section",
        { class: "equation" },
        h("h3", {}, `${number}. ${EQUATIONS[number].title}`),
        formula(number),
        h("p", {}, EQUATIONS[number].says),
        h(
          "p",
          { class: "muted small" },
          "docs/equations.md, section ",
          number,
          " · code: ",
          h("code", {}, EQUATIONS[number].code),
        ),
      ),
    ),
    h("form", { method: "dialog" }, h("button", { class: "main", autofocus: true }, "Close")),
  );
  dialog.showModal();
}
