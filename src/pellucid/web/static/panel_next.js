// Part 5: what may come next, by the model and in truth; and drawing it.

import { bar, changed, fact, figure, fill, h, percent, setFigure, thousands } from "./elements.js";
import { term } from "./glossary.js";
import { guessFirst } from "./guess.js";
import { placeOf } from "./moves.js";
import { isUpToDate } from "./requests.js";
import { candidates, divergenceFromTruth, draw as drawToken, likeliest, logSoftmax } from "./sampling.js";
import { SLIDERS, slider } from "./slider.js";
import { mostRead, runHere } from "./store.js";
import { GAP, nameAt, textOf, visible } from "./tokens.js";
import { matching } from "./truth.js";
import { drawVerdict } from "./verdict.js";

const N_SHOWN = 9;
const LEAST_SHOWN = 5e-4; // of what is less likely by both, only a few are shown
const FEWEST = 5;
const MOST_BEFORE = 200; // characters of the text that are shown again, above its next token
const PAUSE = 120; // milliseconds between two tokens while it writes, so that one can follow

export function nextPanel(root, view) {
  const [memory, verdicts] = [{}, {}];
  const title = h("h3");
  const bars = h("div.bars", { role: "list", "aria-label": "Candidates" });
  const key = h("p.key");
  const written = h("p.written");
  const sums = h("dl.facts");
  const [kl, entropy, left] = [figure("kl", null), figure("entropy", null), figure("left", null)];
  const drawable = fact("tokens that can be drawn", left);
  drawable.classList.add("if-next");
  sums.append(
    drawable,
    h("div.if-truth", h("dt", term("entropy"), " of the truth: how open it is"), h("dd", entropy, h("small", " nats"))),
    h("div.if-truth", h("dt", term("KL"), " to the truth: how far off the model is"), h("dd", kl, h("small", " nats"))),
  );
  const verdict = h("p.verdict", { "aria-live": "polite" });
  const said = h("p.said", { role: "status" });
  const sliders = SLIDERS.map((each) => slider(view, each));
  const sample = h("button.main", { id: "sample", onclick: () => ask(step) }, "Sample a token");
  const write = h("button", { id: "write", onclick: () => (writing ? stop() : start()) }, "Write on");
  const rewind = h("button", { id: "rewind", onclick: () => stop() || ask(back) }, "Rewind");
  const guessing = guessFirst(view);
  let writing = null;
  let acts = []; // asked for, and waiting for the trace of the text that they go on from
  let askedFor = ""; // that text, where it is looked from, and by which checkpoint
  root.classList.add("next");
  const draws = h(
    "div.if-next",
    sliders.map(({ element }) => element),
    h("div.buttons", sample, write, rewind),
  );
  const controls = h("div.controls", draws, said, verdict, sums);
  root.append(h("div.expected", written, title, guessing.element, key, bars), controls);
  return { draw };

  function draw() {
    const { trace, model, state, logits, baseLogits, truth } = view;
    sliders.forEach(({ draw }) => draw());
    if (view.said?.text !== state.text) said.textContent = ""; // it is about another text
    write.textContent = view.isWriting ? "Stop" : "Write on";
    act();
    if (!trace || !model || !logits) return;
    const here = placeOf(view);
    if (logits.at !== here) return; // those of the new place are on their way
    const fits = matching(truth, trace);
    const isHidden = guessing.isHidden(here);
    const { temperature, top_k, top_p, guess, off } = state;
    const shown = [logits, baseLogits, fits, model, temperature, top_k, top_p, guess, isHidden, off];
    if (changed(memory, ...shown)) redraw(here, fits);
    if (changed(verdicts, truth, trace, view.examples))
      drawVerdict(verdict, truth, trace, runHere(view).writes, view.examples);
    const isLast = here === trace.ids.length - 1;
    sample.textContent = isLast ? "Sample a token" : "Sample from here";
    rewind.disabled = trace.ids.length < 2 || trace.fills_gaps;
    for (const button of [sample, write]) button.disabled = !view.source.canType || trace.fills_gaps;
  }

  function redraw(here, truth) {
    const { trace, model, state, logits, baseLogits } = view;
    const last = trace.points.length - 1;
    const kept = candidates(logits.logits.row(last).values, state);
    const logQ = logSoftmax(logits.logits.row(last).values);
    const known = truth?.positions?.[here];
    const hasBase = state.off && baseLogits?.at === here;
    // The probability of an id: drawn, after the sliders; raw, before them; base, with all parts; in truth.
    const p = {
      drawn: lookUp(kept),
      raw: byLog(logQ),
      base: hasBase ? byLog(logSoftmax(baseLogits.logits.row(last).values)) : null,
      truth: known ? lookUp(known) : null,
    };
    root.classList.toggle("no-truth", !truth?.known);
    const isGap = trace.fills_gaps;
    fill(
      title,
      isGap ? "In place of " : "After ",
      h("b.mono", nameAt(view, here)),
      h("span.muted", ` (token ${here})`),
    );
    const before = textOf(model, trace.ids.slice(1, Math.max(1, here)));
    fill(
      written,
      before.length > MOST_BEFORE ? `… ${before.slice(-MOST_BEFORE).replace(/^\S*\s/, "")}` : before,
      here > 0 && h("b", isGap ? GAP : textOf(model, [trace.ids[here]])),
      isGap && textOf(model, trace.ids.slice(here + 1)).slice(0, MOST_BEFORE),
    );
    setFigure(left, kept.ids.length, thousands(kept.ids.length));
    setFigure(entropy, truth?.entropy?.[here] ?? null);
    setFigure(kl, known ? divergenceFromTruth(known, logQ) : null);
    const sample = (name, words) => h("span", h(`span.bar.${name}`), words);
    fill(
      key,
      sample("model", isGap ? "model" : "model, after the sliders"),
      !isGap && sample("raw", "before the sliders"),
      p.base && sample("base", state.instead ? "as it was" : "with all its parts"),
      truth?.known && sample("truth", known ? "truth" : "truth: not known here"),
    );
    const ids = likeliestByEither(logQ, known, p);
    const isHidden = guessing.isHidden(here);
    root.classList.toggle("hidden-bars", isHidden);
    bars.hidden = key.hidden = isHidden;
    guessing.draw(here, p.raw, p.truth, ids);
    const isKept = new Set(kept.ids);
    fill(
      bars,
      !isHidden && ids.map((id) => candidate(id, p, isKept.has(id), id === trace.ids[isGap ? here : here + 1])),
    );
  }

  function candidate(id, p, isKept, follows) {
    const number = (name, value, shown) => h("span", { "data-name": name, "data-value": value.toPrecision(7) }, shown);
    const drawn = number("model", p.drawn(id), isKept ? percent(p.drawn(id)) : "cut off");
    drawn.dataset.raw = p.raw(id).toPrecision(7);
    const marks = [!isKept && "cut", follows && "follows", id === guessing.guessedId() && "guessed"];
    const title = follows ? (view.trace.fills_gaps ? "what stands there" : "what the text goes on with") : "";
    const bars = [
      h("span.track", bar("raw", p.raw(id)), bar("model", p.drawn(id))),
      p.base && h("span.track.thin", bar("base", p.base(id))),
      p.truth && h("span.track", bar("truth", p.truth(id))),
    ];
    const base = p.base && number("base", p.base(id), percent(p.base(id)));
    const truth = p.truth && number("truth", p.truth(id), p.truth(id) ? percent(p.truth(id)) : "never");
    return h(
      ["div.candidate", ...marks.filter(Boolean)].join("."),
      { role: "listitem", "data-id": id },
      h("span.mono.name", { title }, id < 0 ? "⟨unwritable⟩" : visible(view.model.texts[id])),
      h("span.pair", bars),
      h("span.numbers", drawn, base, truth),
    );
  }

  // Clicks may come before the trace of what was typed last, or of the token before. They wait for it, and are
  // forgotten when something else is typed or looked at.
  function ask(what) {
    if (asking() !== askedFor) acts = [];
    askedFor = asking();
    acts.push(what);
    act();
  }

  function act() {
    if (acts.length && asking() !== askedFor) acts = [];
    if (!acts.length || !isUpToDate(view)) return;
    const [first, ...later] = acts;
    acts = []; // it changes the state, which draws
    acts = first() === false ? [] : later;
    askedFor = asking();
  }

  function asking() {
    const { text, at, checkpoint } = view.state;
    return JSON.stringify([text, at, checkpoint]);
  }

  function step() {
    const { trace, model, logits, state } = view;
    const id = drawToken(candidates(logits.logits.row(trace.points.length - 1).values, state), Math.random());
    if (model.stop_ids.includes(id)) return refuse("The model ends the text here.");
    const here = placeOf(view);
    if (here + 1 >= model.context_length || isCutAt(here)) return refuse(mostRead(model));
    const text = textOf(model, [...trace.ids.slice(1, here + 1), id]);
    if (text.endsWith("\ufffd"))
      return refuse("It drew a part of a character, which a text cannot end with. Sample again.", writing);
    view.said = { text };
    fill(said, "It drew ", h("b.mono", visible(model.texts[id])), ".");
    const isFromHere = here < trace.ids.length - 1; // what followed is given up
    view.store[isFromHere ? "goTo" : "set"]({ text, at: -1 });
  }

  // Whether the text goes on there with words that the model does not read, which nothing may take away.
  function isCutAt(here) {
    return view.trace.is_cut && here === view.trace.ids.length - 1;
  }

  // The first screen, which has a button for it too, says it as well.
  function refuse(why, goesOn = false) {
    said.textContent = why;
    view.said = { why, text: view.state.text };
    if (!goesOn) stop();
    view.draw();
    return false;
  }

  function back() {
    const last = view.trace.ids.length - 1;
    if (last < 1) return;
    if (isCutAt(last)) return refuse(mostRead(view.model));
    const text = textOf(view.model, view.trace.ids.slice(1, last));
    view.said = { text };
    fill(said, "Took back ", h("b.mono", nameAt(view, last)), ".");
    view.store.set({ text, at: -1 });
  }

  function start() {
    view.isWriting = true;
    view.draw();
    writing = setInterval(() => acts.length || ask(step), PAUSE);
  }

  function stop() {
    clearInterval(writing);
    writing = null;
    view.isWriting = false;
    view.draw();
  }
}

function lookUp({ ids, p }) {
  const byId = new Map([...ids].map((id, i) => [id, p[i]]));
  return (id) => byId.get(id) ?? 0;
}

// Of a token that the model cannot write, whose id is -1, there is no logarithm.
function byLog(logP) {
  return (id) => Math.exp(logP[id] ?? -Infinity);
}

// The ids that are likely by the model or in truth, the likeliest first.
function likeliestByEither(logQ, known, p) {
  const most = (id) => Math.max(p.raw(id), p.truth?.(id) ?? 0);
  const trueIds = known ? likeliest(known.p, N_SHOWN).map((i) => known.ids[i]) : [];
  return [...new Set([...likeliest(logQ, N_SHOWN), ...trueIds])]
    .sort((a, b) => most(b) - most(a))
    .slice(0, N_SHOWN + 2)
    .filter((id, i) => i < FEWEST || most(id) > LEAST_SHOWN);
}
