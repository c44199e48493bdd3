// The first screen: the parts of this model, and the text on its way through them.

import { changed, figure, fill, goTo, h, percent, thousands } from "./elements.js";
import { nameInWords, UNNAMED } from "./head_names.js";
import { partsOf } from "./machine.js";
import { decidingHere, headOf, placeOf, selectToken } from "./moves.js";
import { isUpToDate } from "./requests.js";
import { candidates, likeliest } from "./sampling.js";
import { SLIDERS, slider } from "./slider.js";
import { MOST_CHARACTERS, mostRead, partOfPlace } from "./store.js";
import { textBox } from "./text_box.js";
import { nameAt, visible } from "./tokens.js";
import { matching } from "./truth.js";

const N_TOKENS = 6; // of the text, up to the one that is looked from
const N_NEXT = 5;
const MOST_DECIDING = 2; // of the tokens before those
const MOST_HEADS = 6; // of a layer
const MOST_LAYERS = 3; // of more, the first and the last
const PAUSE = 900; // milliseconds at each part, while a pass is shown
const AS_FAR = "What comes after them is not read.";
const HINT = "Point at a part to see what it does. Click it to look inside.";

export function machinePanel(root, view) {
  const [memory, text] = [{}, {}];
  const { box, draw: drawBox } = textBox(view, { id: "machine-text", "aria-label": "Your text" });
  const diagram = h("div.diagram");
  const caption = h("p.caption", { "aria-live": "polite" }, HINT);
  const run = h("button.main", { id: "pass", onclick: () => (passing ? stop() : pass()) }, "Run one pass");
  const add = () => document.getElementById("sample").click();
  const write = h("button", { id: "add-token", onclick: add }, "Add a token");
  const refused = h("p.refused", { hidden: true });
  const heat = slider(view, SLIDERS[0], "machine");
  let passing = null;
  let before = null; // what the caption said until a part was pointed at
  root.classList.add("machine");
  root.append(h("div.story", box, h("div.acts", run, write, heat.element, refused)), diagram, caption);

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
    drawBox();
    heat.draw();
    write.disabled = !view.source.canType;
    write.textContent = state.at < 0 ? "Add a token" : "Write from here";
    refused.textContent = whyNoMore() ?? "";
    refused.hidden = !refused.textContent;
    if (!trace || !model || logits?.at !== placeOf(view)) return;
    const fits = matching(truth, trace);
    if (changed(text, trace, model, logits) && passing) stop();
    const shows = [trace, model, logits, fits, state.head, state.guess, look, opensOn, deciding, view.heads, table];
    shows.push(state.temperature, state.top_k, state.top_p);
    if (passing || !changed(memory, ...shows)) return;
    fill(diagram, shown(partsOf(model)).map(drawPart));
  }

  // Why no token was added, or why what is typed changes nothing.
  function whyNoMore() {
    const { refused: last, state, trace, model } = view;
    if (last?.text === state.text) return last.why;
    if (state.text?.length >= MOST_CHARACTERS - 1)
      return `The page sends ${thousands(MOST_CHARACTERS)} characters at most.`;
    return isUpToDate(view) && trace.is_cut ? `${mostRead(model)} ${AS_FAR}` : null;
  }

  // Of many layers, the first and the last.
  function shown(parts) {
    const blocks = parts.filter(({ kind }) => kind === "block");
    if (blocks.length <= MOST_LAYERS) return parts;
    const between = { kind: "between", title: `… ${blocks.length - 2} more layers` };
    const [first, last] = [parts.indexOf(blocks[0]), parts.indexOf(blocks.at(-1))];
    return parts.toSpliced(first + 1, last - first - 1, between);
  }

  function drawPart(part) {
    if (part.kind === "between") return h("div.is-between", part.title);
    if (part.parts) return h(`div.block.is-${part.kind}`, h("span.name", part.title), part.parts.map(drawPart));
    const { kind, title, size, weights, door, says } = part;
    const counts = weights ? `${thousands(weights)} weights` : null;
    const off = ["attention", "feed_forward"].includes(kind) && isOff([kind, part.layer]);
    return h(
      `div.stage.is-${kind}${off ? ".off" : ""}`,
      { "data-says": [`${title}${size ? ` (${size})` : ""}.`, says, counts && `${counts}.`].filter(Boolean).join(" ") },
      door ? h("button.title", { onclick: () => open(door, part) }, title) : h("b.title", title),
      size && h("span.size", size),
      counts && h("span.size.weights", figure(`weights ${title} ${part.layer ?? ""}`.trim(), weights, counts)),
      inside(part),
      guess(part),
    );
  }

  function inside({ kind, layer, read }) {
    if (kind === "text") return tokens();
    if (kind === "attention") return heads(layer);
    if (kind === "recurrent") return unrolled();
    if (kind === "window" || kind === "table") return lastTokens(read);
    if (kind === "feed_forward") return experts(layer);
    if (kind === "next") return next();
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
    return h(
      "ol.tokens",
      shownPlaces.map((place, i) => [
        gap(place, i) > 0 && h("li.muted", `… ${gap(place, i)} more`),
        h(
          "li",
          { class: [place === here && "here", decides.includes(place) && "decides"].filter(Boolean).join(" ") },
          h("button", { onclick: () => selectToken(view, place) }, nameAt(view, place)),
        ),
      ]),
    );
  }

  // What each head of a layer takes most from, at the token that is looked from.
  function heads(layer) {
    const { attention } = view.trace;
    const here = placeOf(view);
    const looked = headOf(view).join(".");
    const all = Array.from({ length: attention.shape[1] }, (_, head) => {
      const weights = attention.row(layer, head, here).values.subarray(0, here + 1);
      const source = weights.indexOf(weights.reduce((most, each) => Math.max(most, each), -Infinity));
      return { head, name: `${layer}.${head}`, source, weight: weights[source] };
    });
    const shownHeads = all.toSorted((a, b) => b.weight - a.weight).slice(0, MOST_HEADS);
    return [
      h(
        "ol.heads",
        shownHeads
          .sort((a, b) => a.head - b.head)
          .map(({ head, name, source, weight }) =>
            h(
              "li",
              h(
                "button",
                {
                  class: [name === looked && "here", isOff(["head", layer, head]) && "off"].filter(Boolean).join(" "),
                  "aria-label": `Head ${name}: ${percent(weight)} from ${nameAt(view, source)}`,
                  "data-says": headSays(layer, head, nameAt(view, source), weight),
                  onclick: () => open("attention", { kind: "head", name }),
                },
                h("span.share", { style: { width: `${100 * Math.min(1, Math.max(0, weight))}%` } }),
                h("b", name),
                h("span.source", nameAt(view, source)),
                figure(`machine ${name}`, weight, percent(weight)),
              ),
            ),
          ),
      ),
      all.length > MOST_HEADS && h("small.muted", `and ${all.length - MOST_HEADS} more heads`),
    ];
  }

  function headSays(layer, head, source, weight) {
    const name = nameInWords(view, layer, head);
    const known = name && name !== UNNAMED ? ` Measured on many texts: ${name}.` : "";
    return `Head ${layer}.${head} takes ${percent(weight)} of what it passes on from ${source}.${known}`;
  }

  // A recurrent layer reads token after token; only its state passes from one to the next.
  function unrolled() {
    const here = placeOf(view);
    const step = (place) => h("li", h("i", "h"), h("span", nameAt(view, place)));
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
    return h(
      "ol.guesses.experts",
      likeliest(shares, MOST_HEADS)
        .filter((i) => shares[i] > 0)
        .map((i) =>
          h(
            "li",
            h("span.share", { style: { width: `${100 * shares[i]}%` } }),
            h("b", `expert ${i}`),
            figure(`expert ${layer}.${i}`, shares[i], percent(shares[i])),
          ),
        ),
    );
  }

  // What the model would say if the text went from here straight to the unembedding.
  function guess({ point }) {
    const { trace, model, state } = view;
    const here = placeOf(view);
    if (point === undefined || state.guess || point >= trace.points.length) return null;
    const p = trace.lens.probabilities.at(point, here);
    const token = visible(model.texts[trace.lens.ids.at(point, here)]);
    return h("button.so-far", { onclick: () => open("lens", { point }) }, "so far: ", h("b", token), ` ${percent(p)}`);
  }

  function next() {
    const { logits, model, trace, truth, state } = view;
    if (state.guess) return h("p.muted.small", "Hidden: guess it in part 5.");
    const kept = candidates(logits.logits.row(trace.points.length - 1).values, state);
    const known = matching(truth, trace)?.positions?.[placeOf(view)];
    const inTruth = (id) => (known ? (known.p[known.ids.indexOf(id)] ?? 0) : 0);
    return h(
      "ol.guesses",
      likeliest(kept.p, N_NEXT).map((i) => {
        const [id, p] = [kept.ids[i], kept.p[i]];
        return h(
          "li",
          h("span.share", { style: { width: `${100 * p}%` } }),
          inTruth(id) > 0 && h("span.true", { style: { left: `${100 * inTruth(id)}%` } }),
          h("b", visible(model.texts[id])),
          figure(`machine p ${id}`, p, percent(p)),
        );
      }),
    );
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
    const stages = [...diagram.querySelectorAll(".stage")];
    let i = 0;
    diagram.classList.add("passing");
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
    diagram.classList.remove("passing");
    diagram.querySelectorAll(".lit").forEach((stage) => stage.classList.remove("lit"));
    draw(); // what has arrived meanwhile
  }
}
