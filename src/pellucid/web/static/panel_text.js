// Part 2: the text as a strip of tokens, each with the model's surprise and the least possible one.

import { SHADES, shadeOf } from "./colours.js";
import { changed, figure, fill, fixed, h } from "./elements.js";
import { SKILLS } from "./examples.js";
import { term } from "./glossary.js";
import { placeOf, rove, selectToken } from "./moves.js";
import { mostRead } from "./store.js";
import { mean } from "./tensor.js";
import { textBox } from "./text_box.js";
import { nameAt, piece, surprises, visible } from "./tokens.js";
import { matching } from "./truth.js";

const OF_TALK =
  "This model was fine-tuned on conversations: it reads a text as a question, between marks that say who speaks. " +
  "It learned to predict answers alone, so only their tokens are coloured and counted.";
const LONG = 24; // characters of a token that may need more than a line

export function textPanel(root, view) {
  const memory = {};
  const marks = {};
  const { box, draw: drawBox } = textBox(view, { id: "text", "aria-label": "Text that the model reads" });
  const strip = h("div.strip", { role: "listbox", "aria-label": "Tokens", "aria-orientation": "horizontal" });
  const card = h("div.card", { "aria-live": "polite" });
  const note = h("p.note", { hidden: true });
  const sum = h("p.sum");
  const line = " the floor, on average the least possible: where both match, no model could do better";
  const legend = [
    h("span.sample-token.s3", "fill"),
    " the model's surprise",
    h("span.sample-token.under-s3", "line"),
    line,
  ];
  const shades = SHADES.map((name, i) => h(`span.shade.s${i}`, name));
  root.append(box, note, strip, sum, card, h("div.legend", "surprise", shades, h("span.if-truth", legend)));

  strip.addEventListener("click", (event) => {
    const token = event.target.closest(".token");
    if (token) selectToken(view, Number(token.dataset.place));
  });
  strip.addEventListener("keydown", (event) =>
    rove(event, [...strip.querySelectorAll(".token")], 1, (place) => selectToken(view, place)),
  );
  const look = (event) => {
    const token = event.target.closest(".token");
    if (token) showCard(Number(token.dataset.place));
  };
  strip.addEventListener("pointerover", look);
  strip.addEventListener("focusin", look);
  strip.addEventListener("pointerleave", () => view.trace && showCard(placeOf(view)));

  return { draw };

  function draw() {
    const { state, trace, truth, model } = view;
    drawBox();
    if (!trace || !model) return;
    const fits = matching(truth, trace);
    if (changed(memory, trace, fits, model)) drawStrip(fits);
    if (changed(marks, trace, fits, model, state.at, state.guess)) mark();
  }

  function drawStrip(truth) {
    const { trace, model } = view;
    const cut = trace.is_cut ? `${mostRead(model)} The text is shown as far as they reach. ` : "";
    note.textContent = cut + (model.has_chat ? OF_TALK : "");
    note.hidden = !note.textContent;
    const nats_T = surprises(model, trace);
    const tokens = trace.ids.map((id, place) => {
      const nats = nats_T[place];
      const least = nats === null ? null : truth?.floor?.[place - 1];
      const text = model.texts[id];
      const said = nats === null ? "given, not predicted" : `surprise ${fixed(nats)} nats`;
      const shade = !place ? "begin" : nats === null ? "given" : shadeOf(nats);
      const under = nats !== null && truth?.known ? `under-${shadeOf(least)}` : "";
      return h(
        "span",
        {
          class: `token ${shade} ${under} ${place && !model.bytes[id] ? "turn" : ""} ${text.length > LONG ? "long" : ""}`,
          role: "option",
          "data-place": place,
          "data-id": id,
          "data-value": nats === null ? "" : nats.toPrecision(7),
          "data-floor": least ?? "",
          "aria-label": place ? `${visible(text)}, ${said}` : "start of the text",
        },
        place ? piece(text) : "start",
      );
    });
    const lines = tokens.map((token, i) => [token, model.texts[trace.ids[i]].includes("\n") && h("br")]);
    fill(strip, lines);
    root.classList.toggle("no-truth", !truth?.known);
    drawSum(nats_T, truth);
  }

  // How many tokens there are, and their mean surprise. Until the truth of this text is there, the floor is a dash.
  function drawSum(nats_T, truth) {
    const [learned, isTalk] = [nats_T.filter((nats) => nats !== null), view.model.has_chat];
    const least = nats_T.map((nats, place) => nats !== null && truth?.floor?.[place - 1]).filter(Number.isFinite);
    const isComing = truth !== view.truth;
    const isKnown = learned.length > 0 && least.length === learned.length && !isComing;
    const shown = (name, value) => [" ", figure(name, value, fixed(value, 3))];
    const [surprise, floor] = [mean(learned), isKnown ? mean(least) : null];
    const floors = [" · ", term("floor"), shown("floor", floor), " · ", term("excess")];
    const answered = [", ", figure("answered", learned.length, String(learned.length)), " of them the answer's"];
    const answer = learned.length ? answered : ", and no answer yet: part 5 shows how it begins";
    const n = nats_T.length - 1;
    fill(
      sum,
      ...[figure("tokens", n, String(n)), " tokens", isTalk && answer],
      (learned.length > 0 || !isTalk) && [" · mean ", term("surprise"), shown("surprise", surprise), " ", term("nats")],
      (isKnown || isComing) && h("span.if-truth", floors, shown("excess", isKnown ? surprise - floor : null)),
      !(isKnown || isComing) && learned.length > 0 && h("span.if-truth", " · the floor is not known for all of them"),
    );
  }

  function mark() {
    const here = placeOf(view);
    [...strip.querySelectorAll(".token")].forEach((token, place) => {
      token.setAttribute("aria-selected", place === here);
      token.tabIndex = place === here ? 0 : -1;
      token.classList.toggle("here", place === here);
      token.classList.toggle("later", view.state.guess && place > here);
    });
    showCard(here);
  }

  function showCard(place) {
    const { trace, truth, model } = view;
    const id = trace.ids[place];
    if (id === undefined) return;
    const [bytes, number] = [model.bytes[id], figure("id", id, String(id))];
    const origin = bytes ? `bytes ${bytes}` : place ? "no text can forge it" : "stands before every text";
    const nameOf = (part) => visible(model.texts[part]);
    const made = mergesOf(model, id).map(([rank, , left, right]) => {
      const both = `${nameOf(left)} + ${nameOf(right)}`;
      return h("span.merge.mono", { title: `merge number ${rank}` }, both, h("sub", rank));
    });
    const alone = h("span.muted", bytes.length === 2 ? "a single byte: no merge made it" : "");
    fill(
      card,
      h("div", h("b.mono", nameAt(view, place)), h("span.muted", ` token ${place} · id `, number, ` · ${origin}`)),
      h("div", place ? surpriseAt(place, matching(truth, trace)) : "Training puts this token between any two texts."),
      h("div.merges", made.length ? [h("span.muted", "made by "), made] : alone),
    );
  }

  // How much the token at a place surprised the model, and whoever knows the truth.
  function surpriseAt(place, truth) {
    const nats = surprises(view.model, view.trace)[place];
    if (nats === null) return h("span.muted", "given: the model did not learn to predict it");
    const least = truth?.floor?.[place - 1] ?? null;
    const skills = truth?.skills?.[place - 1] ?? [];
    return [
      "surprise ",
      figure("token_surprise", nats),
      " nats",
      truth?.known &&
        (least === null ? " · no exact truth here" : [" · floor ", figure("token_floor", least), " nats"]),
      skills.length > 0 && h("span.muted", ` · needs ${skills.map((skill) => SKILLS[skill] ?? skill).join(", ")}`),
    ];
  }
}

// The merges that made a token from bytes, in the order in which they were learned.
function mergesOf(model, id) {
  model.mergeOf ??= new Map(model.merges.map((merge) => [merge[1], merge]));
  const merge = model.mergeOf.get(id);
  if (!merge) return [];
  const all = [...mergesOf(model, merge[2]), ...mergesOf(model, merge[3]), merge];
  return [...new Map(all.map((each) => [each[0], each])).values()].sort((a, b) => a[0] - b[0]);
}
