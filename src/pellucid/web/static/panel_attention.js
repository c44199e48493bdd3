// Part 3: what each head takes from where.

import { paint, shareColour } from "./colours.js";
import { bar, changed, figure, fill, fixed, h, percent, setFigure, svg, withCode } from "./elements.js";
import { term } from "./glossary.js";
import { nameInWords, scoresOf, UNNAMED } from "./head_names.js";
import { decidingHere, headOf, headsThatLook, LOOKS, placeOf, rove, selectToken } from "./moves.js";
import { sum } from "./tensor.js";
import { nameAt } from "./tokens.js";

const MOST_SOURCES = 6;
const SCALE = [0, 0.1, 0.5, 1]; // shares that are named on the bar of colours, which grow with the root (colours.js)
const LEAST_OF_AN_ARC = 0.03;
const [SMALLEST, LARGEST] = [0.66, 0.76]; // names beside the map, in letters' heights (rem)

const shareOnBar = (share) => h("span", { style: { left: `${100 * Math.sqrt(share)}%` } }, `${100 * share}%`);

export function attentionPanel(root, view) {
  const [thumbs, large, rows, marks, sizes] = [{}, {}, {}, {}, {}];
  const grid = h("div.thumbs", { role: "listbox", "aria-label": "Heads, a row for each layer" });
  const title = h("h3");
  const scores = h("dl.scores");
  const map = h("canvas.map", { role: "img", tabindex: 0 });
  const cross = h("div.cross", { "aria-hidden": "true" });
  const sums = h("canvas.sums", { role: "img" });
  const names = (axis) => h("div", { class: `names ${axis}`, "aria-hidden": "true" });
  const [rowNames, columnNames] = [names("rows"), names("columns")];
  const box = h("div.map-box");
  box.append(
    h("span.corner", "looks ↓ at →"),
    columnNames,
    h("span.sums-name", { title: "the sum of each row" }, "Σ"),
    rowNames,
    h("div.map-frame", map, cross),
    h("div.sums-frame", sums),
  );
  let room = 24; // rem, from the first row of the map to the last
  let arcing = 0;
  const why = h("p.muted.small");
  const [least, most] = [figure("least_sum", null), figure("most_sum", null)];
  const pointed = h("p.pointed", { "aria-live": "polite" });
  const sources = h("div.sources");
  const rowSum = figure("row_sum", null);
  const seen = h("p.seen", { "aria-hidden": "true" });
  const arcs = svg("svg.arcs");
  const onDeciding = figure("on_deciding", null);
  const decided = h(
    "p.muted.small.decided",
    { hidden: true },
    h("span.decides", "outlined"),
    ": what decides the next token, by the rules of the language. This head takes ",
    onDeciding,
    " from it.",
  );
  root.classList.add("attention");
  root.append(
    grid,
    h(
      "div.big",
      title,
      scores,
      why,
      box,
      pointed,
      h("div.scale", { "aria-hidden": "true" }, SCALE.map(shareOnBar)),
      h("p.muted.small", "The sums of the rows lie between ", least, " and ", most, "; those of a softmax are 1."),
    ),
    h(
      "div.from",
      sources,
      h("p.muted.small", "weights of this row sum to ", rowSum),
      h("h3", "The text as this token sees it"),
      h("div.seen-frame", { "aria-hidden": "true" }, seen, arcs),
      decided,
    ),
  );

  grid.addEventListener("keydown", (event) => {
    const [, n_heads] = view.trace.attention.shape;
    rove(event, [...grid.querySelectorAll("button")], n_heads, (i) =>
      view.store.set({ head: `${Math.floor(i / n_heads)}.${i % n_heads}` }),
    );
  });
  const placeAt = (event) => {
    const box = map.getBoundingClientRect();
    const T = view.trace.ids.length;
    const clamp = (share) => Math.max(0, Math.min(T - 1, Math.floor(share * T)));
    return [clamp((event.clientY - box.top) / box.height), clamp((event.clientX - box.left) / box.width)];
  };
  map.addEventListener("pointermove", (event) => point(...placeAt(event)));
  map.addEventListener("pointerleave", () => point(placeOf(view), null));
  map.addEventListener("click", (event) => selectToken(view, placeAt(event)[0]));

  return { draw };

  function draw() {
    const { trace, model, state, heads, look } = view;
    if (!trace || !model) return;
    const [layer, head] = headOf(view);
    if (changed(thumbs, trace.attention, heads, look, state.off, view.table, view.deciding, state.at)) drawThumbs();
    for (const button of grid.querySelectorAll("button")) {
      const isHere = button.dataset.head === `${layer}.${head}`;
      button.setAttribute("aria-selected", isHere);
      button.tabIndex = isHere ? 0 : -1;
    }
    if (changed(large, trace, layer, head, heads, look, view.table)) drawLarge(layer, head);
    if (changed(rows, trace, layer, head, state.at, model)) drawRow(layer, head);
    if (changed(marks, trace, layer, head, state.at, model, view.deciding)) markDeciding(layer, head);
  }

  function drawThumbs() {
    const { trace, state, store } = view;
    const [n_layers, n_heads, T] = trace.attention.shape;
    const off = new Set(state.off.split(" "));
    const looks = new Map(headsThatLook(view).map(([share, head]) => [head, share]));
    if (grid.dataset.shape !== `${n_layers} ${n_heads}`) {
      grid.dataset.shape = `${n_layers} ${n_heads}`;
      grid.style.setProperty("--heads", n_heads);
      fill(
        grid,
        ...Array.from({ length: n_layers * n_heads }, (_, i) => {
          const name = `${Math.floor(i / n_heads)}.${i % n_heads}`;
          return h(
            "button",
            { role: "option", "data-head": name, onclick: () => store.set({ head: name }) },
            h("canvas", { "aria-hidden": "true" }),
            h("span.head-number", name),
            h("span.head-name"),
          );
        }),
      );
    }
    grid.querySelectorAll("button").forEach((button, i) => {
      const [layer, head] = [Math.floor(i / n_heads), i % n_heads];
      const weights = trace.attention.row(layer, head).values;
      paint(button.firstChild, T, T, weights, shareColour);
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
    const sums_T = Float32Array.from({ length: T }, (_, t) => sum(weights.subarray(t * T, (t + 1) * T)));
    paint(sums, T, 1, sums_T, shareColour);
    const [smallest, largest] = [Math.min(...sums_T), Math.max(...sums_T)];
    setFigure(least, smallest, fixed(smallest, 3));
    setFigure(most, largest, fixed(largest, 3));
    box.classList.toggle("sum-to-one", Math.abs(smallest - 1) < 0.01 && Math.abs(largest - 1) < 0.01);
    sums.setAttribute("aria-label", `The sum of each row, from ${fixed(smallest, 3)} to ${fixed(largest, 3)}`);
    drawNames();
    map.setAttribute("aria-label", `Attention weights of head ${layer}.${head}, a row for each of ${T} tokens`);
    const named = scoresOf(view, layer, head);
    const problem = view.heads?.problem;
    const name = nameInWords(view, layer, head);
    why.hidden = !problem && name !== UNNAMED;
    const unnamed = `No score reaches ${LOOKS}, so it gets no name. Part 7 measures what it does.`;
    fill(why, withCode(problem ? `No names for these heads: ${problem}` : unnamed));
    fill(title, `Head ${layer}.${head}`, h("span.head-tag", name));
    fill(
      scores,
      ...Object.entries(named?.scores ?? {}).map(([key, value]) =>
        h(`div${key === named.name ? ".named" : ""}`, h("dt", term(key)), h("dd", figure(`score ${key}`, value))),
      ),
    );
    point(placeOf(view), null);
  }

  function drawRow(layer, head) {
    const here = placeOf(view);
    const { trace } = view;
    const weights = trace.attention.row(layer, head, here).values;
    const order = [...weights.keys()]
      .slice(0, here + 1)
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, MOST_SOURCES);
    setFigure(rowSum, sum(weights), fixed(sum(weights), 3));
    fill(
      sources,
      h("h3", h("b.mono", nameAt(view, here)), " takes most from"),
      ...order.map((s) =>
        h(
          "button.source",
          {
            "data-place": s,
            "data-value": weights[s].toPrecision(7),
            onclick: () => selectToken(view, s),
            title: "look from this token",
          },
          h("span.mono", nameAt(view, s), h("sub", s)),
          h("span.track", bar("share", weights[s])),
          h("span.number", percent(weights[s])),
        ),
      ),
    );
    fill(
      seen,
      [...trace.ids]
        .slice(0, here + 1)
        .map((id, s) =>
          h(
            "span",
            { class: s ? "" : "start", style: { "--w": Math.sqrt(weights[s]) }, title: percent(weights[s]) },
            s ? view.model.texts[id] : "start",
          ),
        ),
    );
    cancelAnimationFrame(arcing); // to ask where a word stands costs a layout, so it waits for that of the frame
    arcing = requestAnimationFrame(() => drawArcs(here, weights, order));
    point(here, null);
  }

  // From the token that looks to those that it takes most from, over the lines of the text.
  function drawArcs(here, weights, order) {
    const frame = arcs.parentElement.getBoundingClientRect();
    const middle = (s) => {
      const { left, width, top } = seen.children[s].getBoundingClientRect();
      return [left - frame.left + width / 2, top - frame.top + 3];
    };
    const [x, y] = middle(here);
    const arc = (s) => {
      const [x1, y1] = middle(s);
      const rise = 10 + Math.min(26, Math.abs(x - x1) / 12 + Math.abs(y - y1) / 3);
      const way = `M${x} ${y} C${x} ${y - rise} ${x1} ${y1 - rise} ${x1} ${y1}`;
      return svg("path", { d: way, "stroke-width": 0.8 + 5 * weights[s], "data-place": s });
    };
    fill(arcs, order.filter((s) => s !== here && weights[s] >= LEAST_OF_AN_ARC).map(arc));
  }

  function markDeciding(layer, head) {
    const { trace } = view;
    const here = placeOf(view);
    const places = decidingHere(view);
    const weights = trace.attention.row(layer, head, here).values;
    [...seen.children].forEach((token, s) => token.classList.toggle("decides", places.includes(s)));
    decided.hidden = !places.length;
    const share = sum(places.map((s) => weights[s]));
    setFigure(onDeciding, places.length ? share : null, percent(share));
  }

  function at(place) {
    return { "--at": (place + 0.5) / view.trace.ids.length };
  }

  // Beside the map. Of a long text there is room for every second or third only; `point` shows the one that counts.
  function drawNames() {
    const T = view.trace.ids.length;
    if (changed(sizes, view.look)) {
      const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
      room = Math.max(8, map.clientHeight / rem); // to ask for it costs a layout
    }
    const every = Math.ceil((SMALLEST * T) / room);
    box.style.setProperty("--name", `${Math.min(LARGEST, Math.max(SMALLEST, room / T))}rem`);
    const places = Array.from({ length: Math.ceil(T / every) }, (_, i) => i * every);
    for (const names of [rowNames, columnNames])
      fill(
        names,
        places.map((place) => h("span", { "data-place": place, style: at(place) }, nameAt(view, place))),
      );
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
    fill(
      pointed,
      h("b.mono", nameAt(view, t)),
      s > t ? " may not look ahead at " : " takes ",
      s > t ? "" : figure("weight", weight, percent(weight)),
      s > t ? "" : " from ",
      h("b.mono", nameAt(view, s)),
    );
  }
}
