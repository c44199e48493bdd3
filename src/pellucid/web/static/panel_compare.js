// Part 8: two checkpoints read the same text.

import { paint, shadeOf, shareColour } from "./colours.js";
import { bar, changed, figure, fill, fixed, h, percent, thousands, withCode, tableHead } from "./elements.js";
import { term } from "./glossary.js";
import { headOf, headsThatLook, LOOKS, placeOf, selectToken } from "./moves.js";
import { NONE, rivalOf, rivalReading } from "./rival.js";
import { likeliest, softmax } from "./sampling.js";
import { isThere, runOf, stepOf } from "./store.js";
import { mean } from "./tensor.js";
import { nameAt, piece, rowMark, surprises, visible } from "./tokens.js";
import { matching } from "./truth.js";

const N_SHOWN = 5; // likeliest tokens of each
const ALONE =
  "There is nothing to compare with: the run has one checkpoint, and it is the only run here. Serve a second run beside it, or train one with `checkpoint: {snapshots: 12}`, which keeps earlier moments.";
const APART = 0.5; // nats: a difference worth a mark

export function comparePanel(root, view) {
  const [memory, options] = [{}, {}];
  const choice = h("select", { id: "other", onchange: () => view.store.set({ other: choice.value }) });
  const both = h("div.both");
  const chooser = h("div.row", h("label", { for: "other" }, "Compare A with B:"), choice);
  root.append(chooser, both);
  return { draw };

  function draw() {
    const { runs, state, base, baseLogits, otherLogits, otherProblem, truth, deciding, model, look } = view;
    const [rival, { at, head, guess, checkpoint }] = [rivalOf(view), state];
    if (changed(options, runs, rival, checkpoint)) drawOptions(rival);
    if (!model || !base) return;
    const other = rivalReading(view);
    const fits = matching(truth, base);
    const shown = [rival, base, baseLogits, other, otherLogits, otherProblem, fits, deciding, at, head, guess, look];
    if (!changed(memory, ...shown)) return;
    const why = whyNot(rival, other);
    if (why) return fill(both, h("p.empty", withCode(why)));
    if (!other) return; // it is on its way
    const readers = [
      { side: "A", checkpoint, trace: base, logits: baseLogits },
      { side: "B", checkpoint: rival, trace: other, logits: otherLogits },
    ];
    for (const reader of readers) reader.nats = surprises(model, reader.trace);
    fill(both, means(readers, fits), strip(readers, fits), furthest(readers), next(readers, fits), maps(readers));
  }

  function drawOptions(rival) {
    const { runs, state } = view;
    const others = runs.flatMap((run) => run.checkpoints).filter(({ id }) => id !== state.checkpoint);
    const option = ({ id }) => h("option", { value: id, selected: id === rival }, nameOf(id));
    chooser.hidden = !others.length;
    fill(choice, h("option", { value: NONE, selected: !rival }, "none"), others.map(option));
  }

  function nameOf(checkpoint) {
    return `${view.runs.length > 1 ? `${runOf(checkpoint)}, ` : ""}step ${thousands(stepOf(checkpoint))}`;
  }

  // What stands in place of the comparison where there is none; null where there is one, or one is on its way.
  function whyNot(rival, other) {
    if (chooser.hidden) return ALONE;
    if (!rival) return "Choose a B: an early checkpoint shows what the last one has learned since.";
    if (!isThere(view, rival)) return `${nameOf(rival)} is not there any more. Choose another B.`;
    if (view.otherProblem) return view.otherProblem;
    if (!other) return both.children.length ? null : "B is reading …";
    if (other.fills_gaps)
      return "B fills gaps: it knows what comes after each token, which A does not. Choose another B.";
    const n = Math.min(other.ids.length, view.base.ids.length); // one may read fewer at once
    if (String(other.ids.slice(0, n)) === String(view.base.ids.slice(0, n))) return null;
    return "B splits this text into different tokens, so the two cannot be compared token by token.";
  }

  // Who reads, and how much the text surprises each.
  function means(readers, truth) {
    const row = (name, what, key, value) =>
      h("tr", h("th", { scope: "row" }, name), h("td.what", what), h("td", figure(key, value, fixed(value, 3))));
    const floor = readers[0].nats.map((nats, place) => (nats === null ? null : (truth?.floor?.[place - 1] ?? NaN)));
    const least = meanOf(floor);
    const rows = readers.map(({ side, checkpoint, nats }) =>
      row(h(`b.side-${side}`, side), nameOf(checkpoint), `mean_${side}`, meanOf(nats)),
    );
    if (Number.isFinite(least)) rows.push(row("", term("floor"), "compare_floor", least));
    return h("table.readers", tableHead("", "", h("span", "mean ", term("surprise"))), h("tbody", rows));
  }

  // Under each token, how much it surprised A and B, and the least possible.
  function strip([a, b], truth) {
    const here = placeOf(view);
    const token = (id, place) => {
      const [ofA, ofB] = [a.nats[place], b.nats[place] ?? null];
      const apart = ofA !== null && ofB !== null && Math.abs(ofA - ofB) >= APART;
      const least = ofA === null ? null : (truth?.floor?.[place - 1] ?? null);
      const marks = [place === here && "here", view.state.guess && place > here && "later"].filter(Boolean);
      const title = place ? `A ${fixed(ofA)}, B ${fixed(ofB)}, floor ${fixed(least)} nats` : "";
      return h(
        ["span.pair-token", ...marks].join("."),
        { "data-place": place, onclick: () => selectToken(view, place), title },
        h("span.text", place ? piece(view.model.texts[id]) : "start"),
        cell("A", ofA, apart && ofA > ofB),
        cell("B", ofB, apart && ofB > ofA),
        truth?.known && cell("floor", least),
      );
    };
    const sides = [h("span"), h("span.side-A", "A"), h("span.side-B", "B"), truth?.known && h("span", "floor")];
    return h("div.strip.pairs", h("span.pair-names", sides), a.trace.ids.map(token));
  }

  function cell(side, nats, isWorse) {
    const [shade, value] = nats === null ? ["none", ""] : [shadeOf(nats), nats.toPrecision(7)];
    const attributes = { "data-side": side, "data-value": value };
    return h(`i.cell-${side}.${shade}${isWorse ? ".worse" : ""}`, attributes, short(nats));
  }

  // The token at which the two differ most.
  function furthest([a, b]) {
    const gaps = a.nats.map((nats, place) => Math.abs((nats ?? 0) - (b.nats[place] ?? nats ?? 0)));
    const place = gaps.indexOf(Math.max(...gaps));
    if (gaps[place] < APART || view.state.guess) return null;
    const says = `: it surprised A by ${fixed(a.nats[place])} nats, B by ${fixed(b.nats[place])}. `;
    const why = h("button.chip", { onclick: () => selectToken(view, place - 1) }, "what did each expect there?");
    return h("p.furthest", "They are furthest apart at ", h("b.mono", nameAt(view, place)), says, why);
  }

  // The likeliest next tokens of each, and the true ones.
  function next(readers, truth) {
    const here = placeOf(view);
    const heading = h("h3", "After ", h("span.mono", nameAt(view, here)));
    if (view.state.guess) return h("div", heading, h("p.muted", "Hidden while “Guess first” is on."));
    if (here >= readers[1].trace.ids.length) return h("div", heading, h("p.muted", "B does not read as far as this."));
    if (readers.some(({ logits }) => logits?.at !== here)) return h("div", heading, h("p.muted", "…"));
    const known = truth?.positions?.[here];
    const p = readers.map(({ logits, trace }) => softmax(logits.logits.row(trace.points.length - 1).values));
    const inTruth = (id) => known?.p[known.ids.indexOf(id)] ?? 0;
    const likely = known ? known.ids.filter((id) => id >= 0).sort((x, y) => inTruth(y) - inTruth(x)) : [];
    const most = (id) => Math.max(...p.map((p_V) => p_V[id]), inTruth(id));
    const all = new Set([...p.flatMap((p_V) => likeliest(p_V, N_SHOWN)), ...likely.slice(0, N_SHOWN)]);
    const ids = [...all].sort((x, y) => most(y) - most(x)).slice(0, N_SHOWN + 3);
    const line = (name, share) => [
      h("span.track", bar(name, share)),
      h("span.number", { "data-side": name, "data-value": share.toPrecision(7) }, share ? percent(share) : "never"),
    ];
    const item = (id) => {
      const lines = [line("A", p[0][id]), line("B", p[1][id]), known && line("truth", inTruth(id))];
      return h("li", { "data-id": id }, h("span.mono", visible(view.model.texts[id])), h("span.lines", lines));
    };
    const key = ["A", "B", ...(known ? ["truth"] : [])].map((name) => h("span", h(`span.bar.${name}`), name));
    return h("div.expected", heading, h("p.key", key), h("ol", ids.map(item)));
  }

  // Where a head of each looks; a model without heads has no map.
  function maps(readers) {
    const [a, b] = readers.map(({ trace }) => trace.attention.shape[1] > 0);
    if (!a && !b) return null;
    const ofHeads = readers.filter(({ trace }) => trace.attention.shape[1]);
    const lacking = readers.find(({ trace }) => !trace.attention.shape[1]);
    return h("div.maps", ofHeads.map(map), lacking && h("p.muted.small", `${lacking.side} has no attention heads.`));
  }

  function map({ side, checkpoint, trace }) {
    const [layer, head] = headToShow(checkpoint, trace);
    const label = `Attention of head ${layer}.${head} in ${side}`;
    const canvas = h("canvas.map", { role: "img", "aria-label": label, "data-side": side });
    const [T, weights] = [trace.ids.length, trace.attention.row(layer, head).values];
    paint(canvas, T, T, weights, shareColour);
    const frame = h("div.map-frame", canvas, rowMark(placeOf(view), T));
    return h("figure", frame, h("figcaption.muted.small", h(`b.side-${side}`, side), ` head ${layer}.${head}`));
  }

  // The head of part 3. In a run of its own that number means nothing: there, the head that looks at the outlined words.
  function headToShow(checkpoint, trace) {
    const [n_layers, n_heads] = trace.attention.shape;
    const [layer, head] = headOf(view);
    const [[share, name] = [0]] = headsThatLook(view, trace);
    if (runOf(checkpoint) !== runOf(view.state.checkpoint) && share >= LOOKS) return name.split(".").map(Number);
    return [Math.min(layer, n_layers - 1), Math.min(head, n_heads - 1)];
  }
}

// The mean over the tokens that count; null if there is none.
function meanOf(nats) {
  const counted = nats.filter((each) => each !== null);
  return counted.length ? mean(counted) : null;
}

// A surprise in few characters; nothing where there is hardly any.
function short(nats) {
  return nats === null || nats < 0.05 ? "" : nats < 10 ? nats.toFixed(1) : nats.toFixed(0);
}
