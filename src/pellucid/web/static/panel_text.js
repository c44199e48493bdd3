// Part 2: the text as a strip of tokens, each with the model's surprise and the least possible one.

import { SHADES, shadeOf } from "./colours.js";
import { changed, figure, fill, fixed, h, setFigure } from "./elements.js";
import { SKILLS } from "./examples.js";
import { term } from "./glossary.js";
import { placeOf, rove, selectToken } from "./moves.js";
import { mostRead } from "./store.js";
import { mean } from "./tensor.js";
import { textBox } from "./text_box.js";
import { nameAt, piece, surprises, visible } from "./tokens.js";
import { matching } from "./truth.js";

const NOT_LEARNED = "given, not predicted";
const LONG = 24; // characters of a token that may need more than a line

export function textPanel(root, view) {
  const memory = {};
  const marks = {};
  const { box, draw: drawBox } = textBox(view, { id: "text", "aria-label": "Text that the model reads" });
  const strip = h("div.strip", { role: "listbox", "aria-label": "Tokens", "aria-orientation": "horizontal" });
  const card = h("div.card", { "aria-live": "polite" });
  const note = h("p.note", { hidden: true });
  const [surprise, floor, excess] = [figure("surprise", null), figure("floor", null), figure("excess", null)];
  const floors = h("span", term("floor"), " ", floor, " · ", term("excess"), " ", excess);
  const noFloors = h("span", { hidden: true }, "the floor is not known for all of them");
  const count = h("span.figure", { "data-name": "tokens" });
  const answered = figure("answered", null);
  const ofAnswer = h("span", ", ", answered, " of them the answer's");
  const noAnswer = h("span", ", and no answer yet: part 5 shows how it begins");
  const means = h(
    "span",
    " · mean ",
    term("surprise"),
    " ",
    surprise,
    " ",
    term("nats"),
    h("span.if-truth", " · ", floors, noFloors),
  );
  root.append(
    box,
    note,
    strip,
    h("p.sum", count, " tokens", ofAnswer, noAnswer, means),
    card,
    h(
      "div.legend",
      h("span", "surprise"),
      SHADES.map((name, i) => h(`span.shade.s${i}`, name)),
      h(
        "span.if-truth",
        h("span.sample-token.s3", "fill"),
        " the model's surprise",
        h("span.sample-token.under-s3", "line"),
        " the floor, on average the least possible: where both match, no model could do better",
      ),
    ),
  );

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
    note.textContent = [
      trace.is_cut && `${mostRead(model)} The text is shown as far as they reach.`,
      model.has_chat &&
        "This model was fine-tuned on conversations: it reads a text as a question, between marks that say who speaks. " +
          "It learned to predict answers alone, so only their tokens are coloured and counted.",
    ]
      .filter(Boolean)
      .join(" ");
    note.hidden = !note.textContent;
    const nats_T = surprises(model, trace);
    const tokens = trace.ids.map((id, place) => {
      const nats = nats_T[place];
      const least = nats === null ? null : truth?.floor?.[place - 1];
      const text = model.texts[id];
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
          "aria-label": place ? `${visible(text)}, ${saidOf(nats)}` : "start of the text",
        },
        place ? piece(text) : "start",
      );
    });
    const lines = (token, id) => (model.texts[id].includes("\n") ? [token, h("br")] : token);
    fill(
      strip,
      tokens.map((token, place) => lines(token, trace.ids[place])),
    );
    count.textContent = trace.ids.length - 1;
    count.dataset.value = trace.ids.length - 1;
    const learned = nats_T.filter((nats) => nats !== null);
    const show = (element, value) => setFigure(element, value, fixed(value, 3));
    show(surprise, learned.length ? mean(learned) : null);
    ofAnswer.hidden = !model.has_chat || !learned.length;
    noAnswer.hidden = !model.has_chat || learned.length > 0;
    means.hidden = model.has_chat && !learned.length;
    setFigure(answered, learned.length, String(learned.length));
    const both = nats_T
      .map((nats, place) => [nats, truth?.floor?.[place - 1] ?? null])
      .filter(([nats, least]) => nats !== null && least !== null);
    root.classList.toggle("no-truth", !truth?.known);
    if (truth !== view.truth) return; // that of this text is on its way
    const known = truth?.known && both.length === learned.length && both.length;
    const meanOf = (numbers) => (known ? mean(numbers) : null);
    floors.hidden = !known;
    noFloors.hidden = Boolean(known) || !learned.length;
    show(floor, meanOf(both.map(([, least]) => least)));
    show(excess, meanOf(both.map(([nats, least]) => nats - least)));
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
    const merges = mergesOf(model, id);
    const fits = matching(truth, trace);
    fill(
      card,
      h(
        "div",
        h("b.mono", nameAt(view, place)),
        h(
          "span.muted",
          ` token ${place} · id `,
          figure("id", id, String(id)),
          model.bytes[id]
            ? ` · bytes ${model.bytes[id]}`
            : place
              ? " · no text can forge it"
              : " · stands before every text",
        ),
      ),
      place ? h("div", surpriseAt(place, fits)) : h("div.muted", "Training puts this token between any two texts."),
      merges.length
        ? h(
            "div.merges",
            h("span.muted", "made by "),
            merges.map(([rank, , left, right]) =>
              h(
                "span.merge.mono",
                { title: `merge number ${rank}` },
                `${visible(model.texts[left])} + ${visible(model.texts[right])}`,
                h("sub", rank),
              ),
            ),
          )
        : h("div.merges.muted", model.bytes[id] ? "a single byte: no merge made it" : ""),
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

function saidOf(nats) {
  return nats === null ? NOT_LEARNED : `surprise ${fixed(nats)} nats`;
}

// The merges that made a token from bytes, in the order in which they were learned.
function mergesOf(model, id) {
  model.mergeOf ??= new Map(model.merges.map((merge) => [merge[1], merge]));
  const merge = model.mergeOf.get(id);
  if (!merge) return [];
  const all = [...mergesOf(model, merge[2]), ...mergesOf(model, merge[3]), merge];
  return [...new Map(all.map((each) => [each[0], each])).values()].sort((a, b) => a[0] - b[0]);
}
