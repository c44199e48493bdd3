// Part 8: two checkpoints read the same text.

import { paint, shadeOf, shareColour } from "./colours.js";
import { bar, changed, figure, fill, fixed, h, percent, setFigure, thousands } from "./elements.js";
import { headOf, placeOf, selectToken } from "./moves.js";
import { likeliest, logSoftmax } from "./sampling.js";
import { isThere, runHere, runOf, stepOf } from "./store.js";
import { mean } from "./tensor.js";
import { piece, visible } from "./tokens.js";
import { matching } from "./truth.js";

const N_SHOWN = 6;

export function comparePanel(root, view) {
  const [memory, options] = [{}, {}];
  const choice = h("select", { id: "other", onchange: () => view.store.set({ other: choice.value }) });
  const sides = h("div.sides");
  const least = figure("compare_floor", null);
  const leastWords = h("span", " The floor is ", least, " nats.");
  const key = h(
    "p.sides-key.muted.small",
    h("span.worse", "underlined"),
    ": surprised this model by at least 0.5 nats more than the other.",
    leastWords,
  );
  root.append(h("div.row", h("label", { for: "other" }, "Compare A with B:"), choice), key, sides);
  return { draw };

  function draw() {
    const { runs, state, base, baseLogits, other, otherLogits, truth, model, look } = view;
    const { at, head, guess } = state;
    if (changed(options, runs, state.other, state.checkpoint)) drawOptions();
    if (!model || !base) return;
    if (!changed(memory, runs, base, baseLogits, other, otherLogits, truth, at, head, state.other, guess, look)) return;
    const why = whyNot();
    key.hidden = Boolean(why);
    if (why) return fill(sides, why);
    const floor = matching(truth, base)?.floor;
    const isKnown = floor?.length > 0 && floor.length === base.ids.length - 1 && !floor.includes(null);
    leastWords.hidden = !isKnown;
    const meanFloor = isKnown ? mean(floor) : null;
    setFigure(least, meanFloor, fixed(meanFloor, 3));
    fill(sides, side("A", state.checkpoint, base, baseLogits, other), side("B", state.other, other, otherLogits, base));
  }

  function drawOptions() {
    const { runs, state } = view;
    const others = runs.flatMap((run) => run.checkpoints).filter(({ id }) => id !== state.checkpoint);
    const option = ({ id }) => h("option", { value: id, selected: id === state.other }, nameOf(id));
    fill(choice, h("option", { value: "" }, "none"), others.map(option));
  }

  // What stands in place of the comparison where there is none.
  function whyNot() {
    const { state, base, other } = view;
    if (!state.other) return invitation();
    if (!isThere(view, state.other))
      return h("p.empty", `${nameOf(state.other)} is not there any more. Choose another B.`);
    if (!other) return h("p.empty", "B is reading …");
    if (String(other.ids) === String(base.ids)) return null;
    return h("p.empty", "B splits this text into different tokens, so the two cannot be compared token by token.");
  }

  // What to do as long as there is no B.
  function invitation() {
    const { state, store } = view;
    const others = (runHere(view)?.checkpoints ?? []).filter(({ id }) => id !== state.checkpoint);
    const early = others[Math.floor(others.length / 2)]?.id;
    const choose = () => store.set({ other: early });
    return h(
      "p.empty.row",
      "Choose a B: an early checkpoint shows what the last one has learned since.",
      early && h("button.chip", { onclick: choose }, `compare with ${nameOf(early)}`),
    );
  }

  function nameOf(checkpoint) {
    return `${view.runs.length > 1 ? `${runOf(checkpoint)}, ` : ""}step ${thousands(stepOf(checkpoint))}`;
  }

  function side(name, checkpoint, trace, logits, rival) {
    const here = placeOf(view);
    const surprise = mean(trace.surprise.values);
    return h(
      "article.side",
      { "data-side": name },
      h("h3", name, h("span.muted", ` ${nameOf(checkpoint)}`)),
      h("p", "mean surprise ", figure(`mean_${name}`, surprise, fixed(surprise, 3)), " nats"),
      h("div.strip.small-strip", ...trace.ids.map((id, place) => token(id, place, here, trace, rival))),
      nextTokens(here, trace, logits),
      attention(name, trace),
    );
  }

  function token(id, place, here, trace, rival) {
    const nats = place ? trace.surprise.values[place - 1] : null;
    const worse = place && nats - rival.surprise.values[place - 1] > 0.5;
    const marks = [worse && "worse", place === here && "here", view.state.guess && place > here && "later"];
    return h(
      "span",
      {
        class: ["token", place ? shadeOf(nats) : "begin", ...marks.filter(Boolean)].join(" "),
        "data-place": place,
        "data-value": nats === null ? "" : nats.toPrecision(7),
        onclick: () => selectToken(view, place),
        title: place ? `surprise ${fixed(nats)} nats` : "",
      },
      place ? piece(view.model.texts[id]) : "start",
    );
  }

  function attention(name, { attention, ids }) {
    const [layer, head] = headOf(view);
    if (attention.shape[0] <= layer || attention.shape[1] <= head) return null;
    const label = `Attention of head ${layer}.${head} in ${name}`;
    const canvas = h("canvas.map", { role: "img", "aria-label": label });
    const [T, weights] = [ids.length, attention.row(layer, head).values];
    paint(canvas, T, T, (t, s) => weights[t * T + s], shareColour);
    return h("figure", canvas, h("figcaption.muted.small", `head ${layer}.${head}`));
  }

  function nextTokens(here, trace, logits) {
    if (view.state.guess) return h("p.muted", "Hidden while “Guess first” is on.");
    if (logits?.at !== here) return h("p.muted", "…");
    const truth = matching(view.truth, trace)?.positions?.[here];
    const logQ = logSoftmax(logits.logits.row(trace.points.length - 1).values);
    const row = (id) => {
      const p = Math.exp(logQ[id]);
      const true_ = truth?.ids.includes(id) ? percent(truth.p[truth.ids.indexOf(id)]) : "never";
      return h(
        "li",
        { "data-id": id, "data-value": p.toPrecision(7) },
        h("span.mono", visible(view.model.texts[id])),
        h("span.track", bar("model", p)),
        h("span.number", percent(p), truth && h("small.muted", ` truth ${true_}`)),
      );
    };
    return h("ol.likeliest", ...likeliest(logQ, N_SHOWN).map(row));
  }
}
