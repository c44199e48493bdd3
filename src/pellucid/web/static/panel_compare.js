// Part 8: two checkpoints read the same text.

import { paint, shadeOf, shareColour } from "./colours.js";
import { changed, figure, fill, fixed, h, percent, piece, setFigure, thousands, visible } from "./elements.js";
import { headOf, placeOf, selectToken } from "./moves.js";
import { likeliest, logSoftmax } from "./sampling.js";
import { isThere, runOf, stepOf } from "./store.js";
import { matching } from "./truth.js";

const N_SHOWN = 6;

export function comparePanel(root, view) {
  const [memory, options] = [{}, {}];
  const choice = h("select", { id: "other", onchange: () => view.store.set({ other: choice.value }) });
  const sides = h("div", { class: "sides" });
  const least = figure("compare_floor", null);
  const leastWords = h("span", {}, " The floor is ", least, " nats.");
  const key = h(
    "p",
    { class: "sides-key muted small", hidden: true },
    h("span", { class: "worse" }, "underlined"),
    ": surprised this model by at least 0.5 nats more than the other.",
    leastWords,
  );
  root.append(h("div", { class: "row" }, h("label", { for: "other" }, "Compare A with B:"), choice), key, sides);
  return { draw };

  function draw() {
    const { runs, state, base, baseLogits, other, otherLogits, truth, model, look } = view;
    if (changed(options, runs, state.other, state.checkpoint)) drawOptions();
    if (
      !model ||
      !base ||
      !changed(
        memory,
        runs,
        base,
        baseLogits,
        other,
        otherLogits,
        truth,
        state.at,
        state.head,
        state.other,
        state.guess,
        look,
      )
    )
      return;
    key.hidden = true;
    if (!state.other) return fill(sides, invitation());
    if (!isThere(view, state.other))
      return fill(sides, h("p", { class: "empty" }, `${nameOf(state.other)} is not there any more. Choose another B.`));
    if (!other) return fill(sides, h("p", { class: "empty" }, "B is reading …"));
    if (String(other.ids) !== String(base.ids))
      return fill(
        sides,
        h(
          "p",
          { class: "empty" },
          "B splits this text into different tokens, so the two cannot be compared token by token.",
        ),
      );
    const floor = matching(truth, base)?.floor;
    const isKnown = floor?.length > 0 && floor.length === base.ids.length - 1 && !floor.includes(null);
    leastWords.hidden = !isKnown;
    const meanFloor = isKnown ? floor.reduce((sum, each) => sum + each, 0) / floor.length : null;
    setFigure(least, meanFloor, fixed(meanFloor, 3));
    key.hidden = false;
    fill(sides, side("A", state.checkpoint, base, baseLogits, other), side("B", state.other, other, otherLogits, base));
  }

  function drawOptions() {
    const { runs, state } = view;
    fill(
      choice,
      h("option", { value: "" }, "none"),
      ...runs.flatMap((run) =>
        run.checkpoints
          .filter(({ id }) => id !== state.checkpoint)
          .map(({ id }) => h("option", { value: id, selected: id === state.other }, nameOf(id))),
      ),
    );
  }

  // What to do as long as there is no B.
  function invitation() {
    const { runs, state, store } = view;
    const others = (runs.find(({ name }) => name === runOf(state.checkpoint))?.checkpoints ?? []).filter(
      ({ id }) => id !== state.checkpoint,
    );
    const early = others[Math.floor(others.length / 2)];
    const button = (id) =>
      h(
        "button",
        { type: "button", class: "chip", onclick: () => store.set({ other: id }) },
        `compare with ${nameOf(id)}`,
      );
    return h(
      "p",
      { class: "empty row" },
      "Choose a B: an early checkpoint shows what the last one has learned since.",
      early && button(early.id),
    );
  }

  function nameOf(checkpoint) {
    return `${view.runs.length > 1 ? `${runOf(checkpoint)}, ` : ""}step ${thousands(stepOf(checkpoint))}`;
  }

  function side(name, checkpoint, trace, logits, rival) {
    const { model, state } = view;
    const here = placeOf(view);
    const surprises = [...trace.surprise.values];
    const mean = surprises.reduce((sum, each) => sum + each, 0) / surprises.length;
    const truth = matching(view.truth, trace)?.positions?.[here];
    const [layer, head] = headOf(view);
    const canvas = h("canvas", {
      class: "map",
      role: "img",
      "aria-label": `Attention of head ${layer}.${head} in ${name}`,
    });
    const T = trace.ids.length;
    const weights =
      trace.attention.shape[0] > layer && trace.attention.shape[1] > head
        ? trace.attention.row(layer, head).values
        : null;
    if (weights) paint(canvas, T, T, (t, s) => weights[t * T + s], shareColour);
    return h(
      "article",
      { class: "side", "data-side": name },
      h("h3", {}, name, h("span", { class: "muted" }, ` ${nameOf(checkpoint)}`)),
      h("p", {}, "mean surprise ", figure(`mean_${name}`, surprises.length ? mean : null, fixed(mean, 3)), " nats"),
      h(
        "div",
        { class: "strip small-strip" },
        trace.ids.map((id, place) => {
          const nats = place ? trace.surprise.values[place - 1] : null;
          const worse = place && nats - rival.surprise.values[place - 1] > 0.5;
          const marks = [worse && "worse", place === here && "here", state.guess && place > here && "later"];
          return h(
            "span",
            {
              class: ["token", place ? shadeOf(nats) : "begin", ...marks.filter(Boolean)].join(" "),
              "data-place": place,
              "data-value": nats === null ? "" : nats.toPrecision(7),
              onclick: () => selectToken(view, place),
              title: place ? `surprise ${fixed(nats)} nats` : "",
            },
            place ? piece(model.texts[id]) : "start",
          );
        }),
      ),
      state.guess
        ? h("p", { class: "muted" }, "Hidden while “Guess first” is on.")
        : logits?.at === here
          ? nextTokens(trace, logits, truth)
          : h("p", { class: "muted" }, "…"),
      weights && h("figure", {}, canvas, h("figcaption", { class: "muted small" }, `head ${layer}.${head}`)),
    );
  }

  function nextTokens(trace, logits, truth) {
    const { model } = view;
    const logQ = logSoftmax(logits.logits.row(trace.points.length - 1).values);
    const ids = likeliest(logQ, N_SHOWN);
    return h(
      "ol",
      { class: "likeliest" },
      ids.map((id) =>
        h(
          "li",
          { "data-id": id, "data-value": Math.exp(logQ[id]).toPrecision(7) },
          h("span", { class: "mono" }, visible(model.texts[id])),
          h(
            "span",
            { class: "track" },
            h("span", { class: "bar model", style: { width: `${100 * Math.exp(logQ[id])}%` } }),
          ),
          h(
            "span",
            { class: "number" },
            percent(Math.exp(logQ[id])),
            truth &&
              h(
                "small",
                { class: "muted" },
                ` truth ${truth.ids.includes(id) ? percent(truth.p[truth.ids.indexOf(id)]) : "never"}`,
              ),
          ),
        ),
      ),
    );
  }
}
