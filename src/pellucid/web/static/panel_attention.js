// Part 3: what each head takes from where.

import { cellUnder, paint, shareColour } from "./colours.js";
import { barAndShare, changed, figure, fill, fixed, h, percent, setFigure, withCode } from "./elements.js";
import { term } from "./glossary.js";
import { nameInWords, scoresOf, UNNAMED } from "./head_names.js";
import { decidingHere, headOf, headsThatLook, LOOKS, nameOfHead, placeOf, rove, selectToken } from "./moves.js";
import { sum } from "./tensor.js";
import { GAP, nameAt } from "./tokens.js";

const MOST_SOURCES = 6;
const SHARES = Float32Array.from({ length: 256 }, (_, i) => (i / 255) ** 2); // a bar of colours, by their root
const SCALE = [0, 0.1, 0.5, 1]; // those that are named
const [SMALLEST, LARGEST] = [0.62, 0.76]; // names beside the map, in letters' heights (rem)

const DECIDES = ": what decides the next token, by the rules of the language. This head's share from there: ";

const shareOnBar = (share) => h("span", { style: { left: `${100 * Math.sqrt(share)}%` } }, `${100 * share}%`);

export function attentionPanel(root, view) {
  const [thumbs, large, rows, sizes] = [{}, {}, {}, {}];
  const grid = h("div.thumbs", { role: "listbox", "aria-label": "Heads, a row for each layer" });
  const title = h("h3");
  const scores = h("dl.scores");
  const map = h("canvas.map", { role: "img", tabindex: 0 });
  const cross = h("div.cross", { "aria-hidden": "true" });
  const names = (axis) => h("div", { class: `names ${axis}`, "aria-hidden": "true" });
  const [rowNames, columnNames] = [names("rows"), names("columns")];
  const box = h("div.map-box", h("span.corner", "looks ↓ at →"), columnNames, rowNames, h("div.map-frame", map, cross));
  const scale = h("canvas");
  let room = 24; // rem, from the first row of the map to the last
  const why = h("p.muted.small");
  const [least, most] = [figure("least_sum", null), figure("most_sum", null)];
  const pointed = h("p.pointed", { "aria-live": "polite" });
  const sources = h("div.sources");
  const rowSum = figure("row_sum", null);
  const seen = h("p.seen", { "aria-hidden": "true" });
  const onDeciding = figure("on_deciding", null);
  const decided = h("p.muted.small.decided", { hidden: true }, h("span.decides", "outlined"), DECIDES, onDeciding);
  root.classList.add("attention");
  const key = h("div.scale", { "aria-hidden": "true" }, scale, SCALE.map(shareOnBar));
  const ends = [least, " and ", most];
  const sums = h("p.muted.small", "The sums of the rows lie between ", ends, "; those of a softmax are 1.");
  const ofRow = [h("p.muted.small", "weights of this row sum to ", rowSum), h("h3", "The text as this token sees it")];
  const from = h("div.from", sources, ofRow, h("div.seen-frame", seen), decided);
  root.append(grid, h("div.big", title, box, key, pointed, why, scores, sums), from);

  grid.addEventListener("keydown", (event) => {
    const [, n_heads] = view.trace.attention.shape;
    rove(event, [...grid.children], n_heads, (i) => view.store.set({ head: nameOfHead(i, n_heads) }));
  });
  map.addEventListener("pointermove", (event) => point(...cellUnder(event)));
  map.addEventListener("pointerleave", () => point(placeOf(view), null));
  map.addEventListener("click", (event) => selectToken(view, cellUnder(event)[0]));

  return { draw };

  function draw() {
    const { trace, model, state, heads, look } = view;
    if (!trace || !model) return;
    const [layer, head] = headOf(view);
    if (changed(thumbs, trace.attention, heads, look, state.off, view.table, view.deciding, state.at)) drawThumbs();
    for (const button of grid.children) {
      const isHere = button.dataset.head === `${layer}.${head}`;
      button.setAttribute("aria-selected", isHere);
      button.tabIndex = isHere ? 0 : -1;
    }
    if (changed(large, trace, layer, head, heads, look, view.table)) drawLarge(layer, head);
    if (changed(rows, trace, layer, head, state.at, model, look, view.deciding)) drawRow(layer, head);
  }

  function drawThumbs() {
    const { trace, state, store } = view;
    const [n_layers, n_heads, T] = trace.attention.shape;
    const off = new Set(state.off.split(" "));
    const looks = new Map(headsThatLook(view).map(([share, head]) => [head, share]));
    if (grid.dataset.shape !== `${n_layers} ${n_heads}`) {
      grid.dataset.shape = `${n_layers} ${n_heads}`;
      grid.style.setProperty("--heads", n_heads);
      const button = (_, i) => {
        const head = nameOfHead(i, n_heads);
        const attributes = { role: "option", "data-head": head, onclick: () => store.set({ head }) };
        return h("button", attributes, h("canvas"), h("span.head-number", head), h("span.head-name"));
      };
      fill(grid, Array.from({ length: n_layers * n_heads }, button));
    }
    [...grid.children].forEach((button, i) => {
      const [layer, head] = [Math.floor(i / n_heads), i % n_heads];
      paint(button.firstChild, T, T, trace.attention.row(layer, head).values, shareColour);
      const name = nameInWords(view, layer, head);
      const look = looks.get(button.dataset.head);
      const words = name !== UNNAMED ? name : look >= LOOKS ? `${percent(look)} on the outlined` : "";
      button.lastChild.textContent = off.has(button.dataset.head) ? "switched off" : words;
      button.classList.toggle("off", off.has(button.dataset.head));
      button.setAttribute("aria-label", `head ${button.dataset.head}, ${button.lastChild.textContent}`);
    });
  }

  function drawLarge(layer, head) {
    const { trace } = view;
    const T = trace.ids.length;
    const weights = trace.attention.row(layer, head).values;
    paint(map, T, T, weights, shareColour);
    paint(scale, 1, SHARES.length, SHARES, shareColour);
    const sums_T = Float32Array.from({ length: T }, (_, t) => sum(weights.subarray(t * T, (t + 1) * T)));
    const [smallest, largest] = [Math.min(...sums_T), Math.max(...sums_T)];
    setFigure(least, smallest, fixed(smallest, 3));
    setFigure(most, largest, fixed(largest, 3));
    map.setAttribute("aria-label", `Attention weights of head ${layer}.${head}, a row for each of ${T} tokens`);
    const named = scoresOf(view, layer, head);
    const problem = view.heads?.problem;
    const name = nameInWords(view, layer, head);
    why.hidden = !problem && name !== UNNAMED;
    const unnamed = `No score reaches ${LOOKS}, so it gets no name. Part 7 measures what it does.`;
    fill(why, withCode(problem ? `No names for these heads: ${problem}` : unnamed));
    fill(title, `Head ${layer}.${head}`, h("span.head-tag", name));
    const score = ([key, value]) =>
      h(`div${key === named.name ? ".named" : ""}`, h("dt", term(key)), h("dd", figure(`score ${key}`, value)));
    fill(scores, Object.entries(named?.scores ?? {}).map(score));
  }

  function drawRow(layer, head) {
    const { trace, model } = view;
    const [here, decides] = [placeOf(view), decidingHere(view)];
    const weights = trace.attention.row(layer, head, here).values;
    const places = [...weights.keys()].slice(0, trace.fills_gaps ? undefined : here + 1);
    const order = places.toSorted((a, b) => weights[b] - weights[a]).slice(0, MOST_SOURCES);
    drawNames(rowNames, [here]);
    drawNames(columnNames, order);
    setFigure(rowSum, sum(weights), fixed(sum(weights), 3));
    const source = (s) => {
      const [title, onclick] = ["look from this token", () => selectToken(view, s)];
      const name = h("span.mono", nameAt(view, s), h("sub", s));
      const attributes = { "data-place": s, "data-value": weights[s].toPrecision(7), onclick, title };
      return h("button.source", attributes, name, barAndShare("share", weights[s]));
    };
    fill(sources, h("h3", h("b.mono", nameAt(view, here)), " takes most from"), order.map(source));
    const token = (s) => {
      const marks = [!s && "start", decides.includes(s) && "decides"].filter(Boolean).join(" ");
      const attributes = { class: marks, style: { "--w": Math.sqrt(weights[s]) }, title: percent(weights[s]) };
      return h("span", attributes, trace.fills_gaps && s === here ? GAP : s ? model.texts[trace.ids[s]] : "start");
    };
    fill(seen, places.map(token));
    decided.hidden = !decides.length;
    const share = sum(decides.map((s) => weights[s]));
    setFigure(onDeciding, decides.length ? share : null, percent(share));
    point(here, null);
  }

  function at(place) {
    return { "--at": (place + 0.5) / view.trace.ids.length };
  }

  // Beside the map. Of a long text there is room for every second or third only: these come first. `point` shows more.
  function drawNames(names, first) {
    const T = view.trace.ids.length;
    if (changed(sizes, view.look)) {
      const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
      room = Math.max(8, map.clientHeight / rem); // to ask for it costs a layout
    }
    const every = Math.ceil((SMALLEST * T) / room);
    box.style.setProperty("--name", `${Math.min(LARGEST, Math.max(SMALLEST, room / T))}rem`);
    const places = [];
    for (const place of [...first, ...Array(T).keys()])
      if (places.every((each) => Math.abs(each - place) >= every)) places.push(place);
    const name = (place) => h("span", { "data-place": place, style: at(place) }, nameAt(view, place));
    fill(names, places.map(name));
  }

  function showNames(names, place) {
    names.querySelector(".extra")?.remove();
    for (const each of names.children) each.classList.toggle("here", each.dataset.place === String(place));
    if (place !== null && !names.querySelector(".here"))
      names.append(h("span.here.extra", { style: at(place) }, nameAt(view, place)));
  }

  // The cross on the map, and in words what it is on.
  function point(t, s) {
    const { trace, model } = view;
    if (!trace || !model) return;
    const T = trace.ids.length;
    const [layer, head] = headOf(view);
    showNames(rowNames, t);
    showNames(columnNames, s);
    cross.style.setProperty("--row", t / T);
    cross.style.setProperty("--size", 1 / T);
    if (s === null)
      return fill(pointed, h("span.muted", "Each row looks at the columns. Point at a weight to read it."));
    const weight = trace.attention.at(layer, head, t, s);
    const takes =
      s > t && !trace.fills_gaps
        ? " may not look ahead at "
        : [" takes ", figure("weight", weight, percent(weight)), " from "];
    fill(pointed, h("b.mono", nameAt(view, t)), takes, h("b.mono", nameAt(view, s)));
  }
}
