// Part 6: one layer, equation by equation, with the tensors of this text.

import { cellUnder, paint, signedColour } from "./colours.js";
import { changed, figure, fill, fixed, h, svg } from "./elements.js";
import { formulaOf } from "./equations.js";
import { headOf, placeOf } from "./moves.js";
import { mean } from "./tensor.js";
import { nameAt, rowMark } from "./tokens.js";

const AXES = {
  T: "tokens",
  S: "tokens looked at",
  D: "width of the model",
  H: "heads",
  G: "heads of keys and values",
  K: "width of a head",
  F: "width of the feed-forward layer",
  E: "experts",
};
// By name; and with the number of an equation, what is so only of a model that computes by it.
const SAYS = {
  x: "The stream as it arrives: the sum of all earlier parts.",
  "norm(x)":
    "The same, brought to mean 0 and variance 1, then each column times its own γ, so that no part sees huge or tiny numbers.",
  "norm(x) 21":
    "The same, brought to a mean square of 1, then each column times its own γ, so that no part sees huge or tiny numbers.",
  q: "Queries: what each token looks for.",
  k: "Keys: what each token offers.",
  v: "Values: what each token passes on.",
  scores: "Query times key: how much each token wants from each other one. Grey is −∞: the future.",
  "scores 38": "Query times key: how much each token wants from each other one. The future counts 0.",
  weights: "Scores turned into shares: each row sums to 1. This is what part 3 shows.",
  "weights 38": "Scores divided by a sum, without a softmax. This is what part 3 shows.",
  heads: "What each head found: the weighted mean of the values.",
  output: "What this part adds to the stream.",
  "new x": "The stream after the addition.",
  "new x 52": "The stream after the addition of the output, which the norm has brought to its size first.",
  hidden: "The wide layer after its activation: mostly zeros; each number is a feature that fires or not.",
  "shares of experts": "Each expert's share in the output for a token.",
};

export function insidePanel(root, view) {
  const memory = {};
  const drawer = h("details.drawer");
  const steps = h("div.steps");
  const layers = h("div.chips", { role: "group", "aria-label": "Layer" });
  const note = h("span.muted");
  const summary = h("summary");
  drawer.append(summary, h("div.row", layers, note), steps);
  drawer.addEventListener("toggle", () => view.store.set({ inside: drawer.open }));
  root.append(drawer);
  return { draw };

  function draw() {
    const { state, trace, inside, model, look } = view;
    if (drawer.open !== state.inside) drawer.open = state.inside;
    if (!trace || !model) return;
    const [layer, head] = headOf(view);
    summary.textContent = `All numbers of layer ${layer} for this text: ${shapes()} …`;
    if (!state.inside || inside?.layer !== layer) return; // those of this layer are on their way
    if (changed(memory, inside, layer, head, look, placeOf(view))) redraw(layer, head);
  }

  function shapes() {
    const [T, { d_model: D, n_heads: H, head_width }] = [view.trace.ids.length, view.model.config];
    return `x (${T} × ${D}), queries (${H} × ${T} × ${head_width ?? D / H}), scores and weights (${H} × ${T} × ${T})`;
  }

  function redraw(layer, head) {
    const { inside, trace, store } = view;
    const n_layers = trace.attention.shape[0];
    const chip = (_, i) => {
      const attributes = { "aria-pressed": i === layer, onclick: () => store.set({ head: `${i}.${head}` }) };
      return h("button.chip", attributes, `layer ${i}`);
    };
    fill(layers, Array.from({ length: n_layers }, chip));
    note.textContent = `Where there are several heads, this shows head ${layer}.${head}. Point at a number to read it.`;
    const cardOf = (step) => card(step, head);
    const sublayers = [...new Set(inside.steps.map((step) => step.sublayer))];
    const part = (name) => {
      const title =
        name === "attention" ? "Attention: tokens look at each other" : "Feed-forward: each token separately";
      return [h("h3", title), h("div.cards", inside.steps.filter((step) => step.sublayer === name).map(cardOf))];
    };
    fill(steps, sublayers.map(part));
  }

  function card(step, head) {
    const { values, name, axes, sublayer } = step;
    const isMany = values.shape.length === 3;
    const n_first = values.shape[0];
    const index = Math.floor((head * n_first) / (view.trace.attention.shape[1] || 1)); // grouped heads share keys
    const matrix = isMany ? values.row(Math.min(index, n_first - 1)) : values;
    const [rows, columns] = matrix.shape;
    const most = largestOf(matrix.values);
    const canvas = h("canvas.heat", { role: "img", "aria-label": `${name}, ${rows} by ${columns} numbers` });
    paint(canvas, rows, columns, matrix.values, (value) => signedColour(value, most));
    const shown = h("p.pointed", h("span.muted", `Blue is −${fixed(most)}, orange ${fixed(most)}.`));
    const here = placeOf(view);
    canvas.addEventListener("pointermove", (event) => {
      const [r, c] = cellUnder(event);
      const value = figure("value", matrix.at(r, c), fixed(matrix.at(r, c), 4));
      fill(shown, h("b.mono", nameAt(view, r)), ` number ${c}: `, value);
    });
    const row = matrix.row(here).values;
    const rowMean = mean(row.filter(Number.isFinite));
    const ofRow = figure(`mean_${sublayer}_${name}`, rowMean, fixed(rowMean, 4));
    const length = (n, i) => [i ? ", " : "", h("abbr", { title: AXES[axes[i]] ?? "" }, axes[i]), `=${n}`];
    return h(
      "article.step",
      { "data-step": `${sublayer} ${name}` },
      h("header", h("h4", name), h("span.shape.mono", "(", values.shape.map(length), ")")),
      h("p.small", says(step), isMany ? ` ${axes[0] === "E" ? "Expert" : "Head"} ${index} of ${n_first}.` : ""),
      formulaOf(step, view.model.config),
      h("div.heat-frame", canvas, rowMark(here, rows)),
      shown,
      bars(row),
      h("p.small.muted", `the row of ${nameAt(view, here)}, mean `, ofRow),
    );
  }
}

function largestOf(numbers) {
  return numbers.filter(Number.isFinite).reduce((largest, each) => Math.max(largest, Math.abs(each)), 1e-9);
}

// A row of numbers as bars, up or down from 0; none where there is −∞.
function bars(row) {
  const most = largestOf(row);
  const path = (sign) =>
    [...row].map((each, i) => (sign * each > 0 && Number.isFinite(each) ? `M${i + 0.5} 0V${-each / most}` : ""));
  const ways = { plus: 1, minus: -1 };
  return svg(
    "svg.row-bars",
    { viewBox: `0 -1 ${row.length} 2`, preserveAspectRatio: "none", "aria-hidden": "true" },
    Object.entries(ways).map(([name, sign]) => svg(`path.${name}`, { d: path(sign).join("") })),
  );
}

function says({ name, equations }) {
  if (!equations.length) return "Recorded values: no equation is known for this layer.";
  const key = equations.map((number) => `${name} ${number}`).find((each) => each in SAYS) ?? name;
  return SAYS[key] ?? "";
}
