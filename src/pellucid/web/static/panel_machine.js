// The first screen: what this model is and how good, the parts it is made of, and the text on its way through them.

import { bar, changed, figure, fill, fixed, goTo, h, percent, thousands } from "./elements.js";
import { examplesOf } from "./examples.js";
import { term } from "./glossary.js";
import { nameInWords, UNNAMED } from "./head_names.js";
import { partsOf } from "./machine.js";
import { levelAt, measuresOf, valueAt } from "./measures.js";
import { decidingHere, headOf, placeOf, selectToken } from "./moves.js";
import { isUpToDate } from "./requests.js";
import { candidates, likeliest } from "./sampling.js";
import { SLIDERS, slider } from "./slider.js";
import { MOST_CHARACTERS, mostRead, partOfPlace, runHere, stepOf } from "./store.js";
import { asked, textBox } from "./text_box.js";
import { nameAt, textOf, visible } from "./tokens.js";
import { matching } from "./truth.js";

const N_TOKENS = 6; // of the text, up to the one that is looked from
const N_NEXT = 5;
const MOST_DECIDING = 2; // of the tokens before those
const MOST_HEADS = 6; // of a layer
const MOST_LAYERS = 3; // of more, the first and the last
const LEAST = 0.05; // of what is shown with one digit
const PAUSE = 900; // milliseconds at each part, while a pass is shown
const AS_FAR = "What comes after them is not read.";
const HINT = "Point at a part to see what it does. Click it to look inside.";

export function machinePanel(root, view) {
  const [memory, text, learned] = [{}, {}, {}];
  const hasBubbles = () => view.state.text !== null && runHere(view)?.has_chat;
  const story = textBox(view, { id: "machine-text", "aria-label": "Your text" }, hasBubbles);
  const diagram = h("div.diagram");
  const outcome = h("div.outcome");
  const caption = h("p.caption", { "aria-live": "polite" }, HINT);
  const press = (id) => () => document.getElementById(id).click(); // a button of part 5
  const tell = h("button.main", { id: "write-story", onclick: writeStory });
  const write = h("button", { id: "add-token", onclick: press("sample") }, "Add a token");
  const run = h("button", { id: "pass", onclick: () => (passing ? stop() : pass()) }, "Run one pass");
  const toBoard = () => window.open(`class/board?${questionHere()}`);
  const askClass = h("button", { id: "ask-class", onclick: toBoard }, "Ask the class");
  const refused = h("p.refused", { hidden: true });
  const heat = slider(view, SLIDERS[0], "machine");
  const examples = examplesOf(view);
  const [about, quality] = [document.getElementById("about"), document.getElementById("quality")];
  let passing = null;
  let before = null; // what the caption said until a part was pointed at
  let explained = null; // the id of the candidate whose score the diagram explains, if it is not the likeliest
  // On a phone the keyboard leaves room for the box and the next token.
  story.box.addEventListener("focus", () => matchMedia("(max-width: 40rem)").matches && story.box.scrollIntoView());
  root.classList.add("machine");
  const acts = h("div.acts", tell, write, run, askClass, heat.element, refused);
  root.append(h("div.story", story.element, acts, examples.element), h("div.flow", diagram), outcome, caption);

  const partUnder = (event) => event.target.closest("[data-says]");
  const say = (event) => {
    const part = partUnder(event);
    if (passing || part === before) return;
    before = part;
    caption.textContent = part?.dataset.says ?? HINT;
  };
  diagram.addEventListener("pointerover", say);
  diagram.addEventListener("focusin", say);
  diagram.addEventListener("pointerleave", say);
  return { draw };

  function draw() {
    const { trace, model, logits, truth, state, look, opensOn, deciding, table } = view;
    story.draw();
    heat.draw();
    examples.draw();
    for (const button of [tell, write]) button.disabled = !view.source.canType;
    const { has_chat, writes } = runHere(view) ?? {};
    const begin = has_chat ? "Answer" : `Write a ${writes === "fable" ? "story" : "text"}`;
    tell.textContent = view.isWriting ? "Stop" : begin;
    write.textContent = state.at < 0 ? "Add a token" : "Write from here";
    refused.textContent = whyNoMore() ?? "";
    refused.hidden = !refused.textContent;
    askClass.hidden = !view.hasClass;
    if (!trace || !model || logits?.at !== placeOf(view)) return;
    const rows = view.metrics[runHere(view)?.name];
    if (rows && changed(learned, runHere(view), rows, model, state.checkpoint)) drawAbout(rows);
    const fits = matching(truth, trace);
    if (changed(text, trace, model, logits)) {
      explained = null;
      if (passing) stop();
    }
    const shows = [trace, model, logits, fits, state.head, state.guess, look, opensOn, deciding, view.heads, table];
    shows.push(state.temperature, state.top_k, state.top_p, explained);
    if (passing || !changed(memory, ...shows)) return;
    const path = pathToScore();
    const parts = shown(partsOf(model)).map((part) => drawPart(part, path));
    const isDecoder = model.config.type === "decoder";
    diagram.classList.toggle("has-stream", isDecoder);
    fill(outcome, parts.pop());
    const stages = isDecoder ? parts : parts.map((part, i) => [arrowTo(i), part]);
    fill(diagram, isDecoder && h("i.stream"), stages);
  }

  function questionHere() {
    const text = textOf(view.model, view.trace.ids.slice(1, placeOf(view) + 1));
    return new URLSearchParams({ checkpoint: view.state.checkpoint, text });
  }

  // One sentence on what this is, and one line on how good it is, from the run's own figures.
  function drawAbout(rows) {
    const [{ model }, run, step] = [view, runHere(view), stepOf(view.state.checkpoint)];
    const read = rows.findLast((row) => row.step <= step)?.tokens ?? 0;
    const number = (name, value) => h("b", figure(name, value, thousands(value)));
    fill(
      about,
      ...["A network of ", number("numbers", model.n_parameters), " numbers that "],
      read ? ["has read ", number("read", read), " tokens and learned one thing: to guess"] : "guesses",
      ` the next${read ? "" : " token"}. It reads ${run.reads}`,
    );
    const [measure] = measuresOf(run, rows);
    if (!measure) return fill(quality);
    const [{ value }, level] = [valueAt(rows, measure, step), levelAt(run, rows, measure, step)];
    const said = (name, key, number) => h("span", name, " ", figure(key, number, fixed(number, 3)));
    const isFloor = measure.isOfText && level !== null;
    const share =
      isFloor && value < 2 * level && h("small", ` = ${fixed((100 * (value - level)) / level, 1)} % above it`);
    fill(
      quality,
      said(measure.isOfText ? term("loss") : measure.name, "run_loss", value),
      level !== null && said(isFloor ? term("floor") : measure.level.name, "run_level", level),
      isFloor && h("small", "(no model can do better)"),
      isFloor && h("span", said(term("excess"), "run_excess", value - level), share),
    );
  }

  // Goes on with the text or, where it is at its end, begins another one, or answers once more.
  function writeStory() {
    const { text } = view.state;
    if (view.said?.text === text && view.said.why) view.store.goTo({ text: hasBubbles() ? asked(text) : "", at: -1 });
    press("write")();
  }

  // What adds up to the score of a candidate (docs/microscope_measures.md), or null: {id; score; part(point), which is
  // what the part there adds; head(layer, head); bias: what the last norm adds}.
  function pathToScore() {
    const { added, at } = view.logits;
    if (view.state.guess || added?.at !== at) return null;
    const m = Math.max(0, added.ids.indexOf(explained));
    const [part, bias] = [(point) => added.parts.at(point, m), added.bias.at(m)];
    const score = view.trace.points.reduce((sum, _, point) => sum + part(point), bias);
    return { id: added.ids[m], score, part, bias, head: (layer, head) => added.heads.at(layer, head, m) };
  }

  // Why no token was added, or why what is typed changes nothing.
  function whyNoMore() {
    const { said: last, state, trace, model } = view;
    if (last?.why && last.text === state.text) return last.why;
    if (state.text?.length >= MOST_CHARACTERS - 1)
      return `The page sends ${thousands(MOST_CHARACTERS)} characters at most.`;
    return isUpToDate(view) && trace.is_cut ? `${mostRead(model)} ${AS_FAR}` : null;
  }

  // Of many layers, the first and the last.
  function shown(parts) {
    const blocks = parts.filter(({ kind }) => kind === "block");
    if (blocks.length <= MOST_LAYERS) return parts;
    const points = blocks.slice(1, -1).flatMap((block) => block.parts.map(({ point }) => point));
    const between = { kind: "between", title: `… ${blocks.length - 2} more layers`, points };
    const [first, last] = [parts.indexOf(blocks[0]), parts.indexOf(blocks.at(-1))];
    return parts.toSpliced(first + 1, last - first - 1, between);
  }

  function drawPart(part, path) {
    const { kind, title, size, weights, door, says, layer, points = [part.point], parts } = part;
    const isInside = layer !== undefined && path; // between the two ends of the stream
    const added = path && points[0] !== undefined ? points.reduce((sum, point) => sum + path.part(point), 0) : null;
    const sum = [h("i.reads", { "aria-hidden": true }, h("b", "▲")), h("i.writes"), h("b.plus", "+")];
    const number = added !== null && figure(`adds ${part.point ?? "between"}`, added, signed(added));
    if (kind === "between") return h("div.is-between.station", title, path && sum, number);
    if (parts) {
      const inner = parts.map((each) => drawPart(each, path));
      return h(`div.block.is-${kind}`, h("span.name", title), h("div.inner", inner));
    }
    const counts = weights ? `${thousands(weights)} weights` : null;
    const off = ["attention", "feed_forward"].includes(kind) && isOff([kind, layer]);
    const stage = h(
      `div.stage.is-${kind}${off ? ".off" : ""}`,
      { "data-says": [`${title}${size ? ` (${size})` : ""}.`, says, counts && `${counts}.`].filter(Boolean).join(" ") },
      door ? h("button.title", { onclick: () => open(door, part) }, title) : h("b.title", title),
      size && h("span.size", size),
      counts && h("span.size.weights", figure(`weights ${title} ${layer ?? ""}`.trim(), weights, counts)),
      inside(part, path),
      guess(part),
    );
    if (number === false) return stage;
    const most = Math.max(...view.trace.points.map((_, point) => Math.abs(path.part(point))));
    const strength = { "--strength": Math.abs(added) / most };
    return h(`div.station.of-${kind}${added < 0 ? ".less" : ""}`, { style: strength }, stage, isInside && sum, number);
  }

  function inside({ kind, layer, read }, path) {
    if (kind === "text") return tokens();
    if (kind === "attention") return heads(layer, path);
    if (kind === "recurrent") return unrolled();
    if (kind === "window" || kind === "table") return lastTokens(read);
    if (kind === "feed_forward") return experts(layer);
    if (kind === "norm" && path?.bias)
      return h("span.size", "its bias adds ", figure("adds bias", path.bias, signed(path.bias)));
    if (kind === "next") return next(path);
    return null;
  }

  function isOff(place) {
    return view.state.off.split(" ").includes(partOfPlace(place));
  }

  // The tokens up to the one that is looked from, which is the last; and of those before, what decides the next one.
  function tokens() {
    const here = placeOf(view);
    const first = Math.max(0, here - N_TOKENS + 1);
    const decides = decidingHere(view);
    const earlier = decides.filter((place) => place < first).slice(-MOST_DECIDING);
    const last = Array.from({ length: here + 1 - first }, (_, i) => first + i);
    const shownPlaces = [...earlier, ...last];
    const gap = (place, i) => place - (shownPlaces[i - 1] ?? -1) - 1;
    const item = (place, i) => {
      const marks = [place === here && "here", decides.includes(place) && "decides"].filter(Boolean);
      const token = h("button", { onclick: () => selectToken(view, place) }, nameAt(view, place));
      return [gap(place, i) > 0 && h("li.muted", `… ${gap(place, i)} more`), h(["li", ...marks].join("."), token)];
    };
    return h("ol.tokens", shownPlaces.map(item));
  }

  // What each head of a layer takes most from, at the token that is looked from.
  function heads(layer, path) {
    const { attention } = view.trace;
    const here = placeOf(view);
    const looked = headOf(view).join(".");
    const all = Array.from({ length: attention.shape[1] }, (_, head) => {
      const weights = attention.row(layer, head, here).values.subarray(0, here + 1);
      const source = weights.indexOf(weights.reduce((most, each) => Math.max(most, each), -Infinity));
      return { head, name: `${layer}.${head}`, source, weight: weights[source], adds: path?.head(layer, head) };
    });
    const shownHeads = all.toSorted((a, b) => b.weight - a.weight).slice(0, MOST_HEADS);
    const item = ({ head, name, source, weight, adds }) => {
      const marks = [name === looked && "here", isOff(["head", layer, head]) && "off"].filter(Boolean);
      const from = nameAt(view, source);
      const attributes = {
        "aria-label": `Head ${name}: ${percent(weight)} from ${from}`,
        "data-says": headSays(layer, head, from, weight, adds),
        onclick: () => open("attention", { kind: "head", name }),
      };
      const share = h("span.share", { style: { width: `${100 * Math.min(1, Math.max(0, weight))}%` } });
      const shown = [share, h("b", name), h("span.source", from)];
      shown.push(figure(`machine ${name}`, weight, `${fixed(100 * weight, 0)}%`));
      if (Math.abs(adds) >= LEAST) shown.push(h("span.adds", figure(`adds ${name}`, adds, signed(adds))));
      return h("li", h(["button", ...marks].join("."), attributes, ...shown));
    };
    const more = all.length > MOST_HEADS && h("small.muted", `and ${all.length - MOST_HEADS} more heads`);
    return [h("ol.heads", shownHeads.sort((a, b) => a.head - b.head).map(item)), more];
  }

  function headSays(layer, head, source, weight, adds) {
    const name = nameInWords(view, layer, head);
    const known = name && name !== UNNAMED ? ` Measured on many texts: ${name}.` : "";
    const to = Number.isFinite(adds) ? ` It adds ${signed(adds)} to the score.` : "";
    return `Head ${layer}.${head} takes ${percent(weight)} of what it passes on from ${source}.${to}${known}`;
  }

  // A recurrent layer reads token after token; only its state passes from one to the next.
  function unrolled() {
    const here = placeOf(view);
    const step = (place, i) => h("li", arrowTo(i), h("i", "h"), h("span", nameAt(view, place)));
    return h("ol.unrolled", [here - 2, here - 1, here].filter((place) => place >= 0).map(step));
  }

  // The tokens that a model with a short memory reads.
  function lastTokens(n) {
    const here = placeOf(view);
    const places = Array.from({ length: n }, (_, i) => here - n + 1 + i).filter((place) => place >= 0);
    const name = (place) => h("li.mono", nameAt(view, place));
    return h("ol.tokens", places.slice(-N_TOKENS).map(name));
  }

  // The experts that the router has chosen for the token, with their shares in the output.
  function experts(layer) {
    const { experts } = view.trace;
    if (!experts) return null;
    const shares = experts.row(layer, placeOf(view)).values;
    const item = (i) => {
      const share = h("span.share", { style: { width: `${100 * shares[i]}%` } });
      return h("li", share, h("b", `expert ${i}`), figure(`expert ${layer}.${i}`, shares[i], percent(shares[i])));
    };
    const chosen = likeliest(shares, MOST_HEADS).filter((i) => shares[i] > 0);
    return h("ol.experts", chosen.map(item));
  }

  // What the model would say if the text went from here straight to the unembedding.
  function guess({ point }) {
    const { trace, model, state } = view;
    const here = placeOf(view);
    if (point === undefined || state.guess || point >= trace.points.length) return null;
    const p = trace.lens.probabilities.at(point, here);
    const token = visible(model.texts[trace.lens.ids.at(point, here)]);
    const act = { title: "Its guess if it stopped here: the logit lens", onclick: () => open("lens", { point }) };
    return h("button.so-far", act, "so far: ", h("b", token), ` ${percent(p)}`);
  }

  // The likeliest tokens, each with a bar for the model and one for the truth, where it is known.
  function next(path) {
    const { logits, model, trace, truth, state } = view;
    if (state.guess) return h("p.muted.small", "Hidden: guess it in part 5.");
    const kept = candidates(logits.logits.row(trace.points.length - 1).values, state);
    const known = matching(truth, trace)?.positions?.[placeOf(view)];
    const inTruth = (id) => (known ? (known.p[known.ids.indexOf(id)] ?? 0) : 0);
    const best = likeliest(kept.p, N_NEXT).map((i) => [kept.ids[i], kept.p[i], inTruth(kept.ids[i])]);
    const most = Math.max(...best.flatMap(([, p, q]) => [p, q]));
    const key = (name) => h("span", h(`span.bar.${name}`), name);
    const why = truth?.is_possible === false ? "no text goes on like this" : "not known here";
    const number = (name, value, shown) => h("span.numbers", figure(`machine ${name}`, value, shown));
    const item = ([id, p, q]) => {
      const bars = [h("span.track", bar("model", p / most)), known && h("span.track", bar("truth", q / most))];
      const numbers = [number(`p ${id}`, p, percent(p)), known && number(`truth ${id}`, q, q ? percent(q) : "never")];
      const attributes = { "aria-pressed": id === path?.id, disabled: !path, onclick: () => explain(id) };
      return h("li", h("button", attributes, h("b", visible(model.texts[id])), h("span.two", bars), numbers));
    };
    return [
      h("p.key", key("model"), known && key("truth"), !known && truth?.known && `truth: ${why}`),
      h("ol.guesses", best.map(item)),
      path && h("p.small.muted", scoreOf(path), ", the sum of what the parts add. Softmax makes it a percentage."),
    ];
  }

  function scoreOf({ id, score }) {
    return ["Score of ", h("b.mono", visible(view.model.texts[id])), ": ", figure("score", score, fixed(score, 1))];
  }

  function explain(id) {
    explained = id;
    draw();
  }

  function open(door, { kind, name, layer, point }) {
    if (kind === "head") view.store.set({ head: name });
    if (kind === "attention") view.store.set({ head: `${layer}.${headOf(view)[0] === layer ? headOf(view)[1] : 0}` });
    if (kind === "feed_forward") view.store.set({ head: `${layer}.0`, inside: true });
    if (door === "lens" && point !== undefined) view.store.set({ point });
    const section = document.getElementById(`part-${door}`);
    if (!section.hidden) goTo(section);
  }

  // Lights one part after the other, and says what each does.
  function pass() {
    const stages = [...root.querySelectorAll(".stage")];
    let i = 0;
    root.classList.add("passing");
    run.textContent = "Stop";
    const light = () => {
      if (i === stages.length) return stop();
      stages[i].classList.add("lit");
      caption.textContent = stages[i++].dataset.says;
    };
    light();
    passing = setInterval(light, PAUSE);
  }

  function stop() {
    clearInterval(passing);
    passing = null;
    run.textContent = "Run one pass";
    root.classList.remove("passing");
    root.querySelectorAll(".lit").forEach((stage) => stage.classList.remove("lit"));
    draw(); // what has arrived meanwhile
  }
}

const arrowTo = (i) => i > 0 && h("b.arrow", { "aria-hidden": "true" }, "→");

// What is added, with its sign.
function signed(value) {
  return (value >= LEAST ? "+" : "") + fixed(value, 1);
}
