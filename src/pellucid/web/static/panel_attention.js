// Part 3: what each head takes from where.

import { paint, shareColour } from "./colours.js";
import { changed, figure, fill, fixed, h, percent, setFigure, visible } from "./elements.js";
import { skillsDoneBy } from "./knock_table.js";
import { headOf, placeOf, rove, selectToken } from "./moves.js";

const MOST_SOURCES = 6;

export function attentionPanel(root, view) {
  const [thumbs, large, rows] = [{}, {}, {}];
  const grid = h("div", { class: "thumbs", role: "listbox", "aria-label": "Heads, a row for each layer" });
  const title = h("h3", {});
  const scores = h("dl", { class: "scores" });
  const map = h("canvas", { class: "map", role: "img", tabindex: 0 });
  const cross = h("div", { class: "cross", "aria-hidden": "true" });
  const pointed = h("p", { class: "pointed", "aria-live": "polite" });
  const sources = h("div", { class: "sources" });
  const sum = figure("row_sum", null);
  const seen = h("p", { class: "seen", "aria-hidden": "true" });
  root.classList.add("attention");
  root.append(
    grid,
    h(
      "div",
      { class: "big" },
      title,
      scores,
      h(
        "div",
        { class: "map-box" },
        h("span", { class: "axis-y" }, "from this token"),
        h("span", { class: "axis-x" }, "to this token →"),
        h("div", { class: "map-frame" }, map, cross),
      ),
      pointed,
    ),
    h(
      "div",
      { class: "from" },
      sources,
      h("p", { class: "muted small" }, "weights of this row sum to ", sum),
      h("h3", {}, "The text as this token sees it"),
      seen,
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
    if (changed(thumbs, trace.attention, heads, look, state.off, view.table)) drawThumbs();
    for (const button of grid.querySelectorAll("button")) {
      const isHere = button.dataset.head === `${layer}.${head}`;
      button.setAttribute("aria-selected", isHere);
      button.tabIndex = isHere ? 0 : -1;
    }
    if (changed(large, trace, layer, head, heads, look, view.table)) drawLarge(layer, head);
    if (changed(rows, trace, layer, head, state.at, model)) drawRow(layer, head);
  }

  // By its scores; and, once part 7 has measured it, by the skills that it does.
  function nameInWords(layer, head) {
    const table = view.table?.checkpoint === view.state.checkpoint ? view.table : null;
    const skills = skillsDoneBy(table, layer, head);
    const done = skills.length ? [`does ${skills.join(" and ")}`] : [];
    const name = nameOf(layer, head)?.name;
    return [...done, ...(done.length && name === "unclassified" ? [] : [name ?? ""])].join(", ");
  }

  function nameOf(layer, head) {
    return view.heads?.heads?.find((each) => each.layer === layer && each.head === head);
  }

  function drawThumbs() {
    const { trace, state, store } = view;
    const [n_layers, n_heads, T] = trace.attention.shape;
    const off = new Set(state.off.split(" "));
    if (grid.dataset.shape !== `${n_layers} ${n_heads}`) {
      grid.dataset.shape = `${n_layers} ${n_heads}`;
      grid.style.setProperty("--heads", n_heads);
      fill(
        grid,
        ...Array.from({ length: n_layers * n_heads }, (_, i) => {
          const name = `${Math.floor(i / n_heads)}.${i % n_heads}`;
          return h(
            "button",
            { type: "button", role: "option", "data-head": name, onclick: () => store.set({ head: name }) },
            h("canvas", { "aria-hidden": "true" }),
            h("span", { class: "head-number" }, name),
            h("span", { class: "head-name" }),
          );
        }),
      );
    }
    grid.querySelectorAll("button").forEach((button, i) => {
      const [layer, head] = [Math.floor(i / n_heads), i % n_heads];
      const weights = trace.attention.row(layer, head).values;
      paint(button.firstChild, T, T, (t, s) => weights[t * T + s], shareColour);
      const named = nameOf(layer, head);
      button.lastChild.textContent = off.has(button.dataset.head) ? "switched off" : nameInWords(layer, head);
      button.classList.toggle("off", off.has(button.dataset.head));
      button.setAttribute("aria-label", `head ${button.dataset.head}, ${button.lastChild.textContent}`);
    });
  }

  function drawLarge(layer, head) {
    const { trace } = view;
    const T = trace.ids.length;
    const weights = trace.attention.row(layer, head).values;
    paint(map, T, T, (t, s) => weights[t * T + s], shareColour);
    map.setAttribute("aria-label", `Attention weights of head ${layer}.${head}, a row for each of ${T} tokens`);
    const named = nameOf(layer, head);
    fill(title, `Head ${layer}.${head}`, h("span", { class: "head-tag" }, nameInWords(layer, head)));
    fill(
      scores,
      ...Object.entries(named?.scores ?? {}).map(([key, value]) =>
        h(
          "div",
          { class: key === named.name ? "named" : "" },
          h("dt", {}, key),
          h("dd", {}, figure(`score ${key}`, value)),
        ),
      ),
    );
  }

  function drawRow(layer, head) {
    const here = placeOf(view);
    const { trace, model } = view;
    const weights = trace.attention.row(layer, head, here).values;
    const order = [...weights.keys()]
      .slice(0, here + 1)
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, MOST_SOURCES);
    setFigure(
      sum,
      weights.reduce((total, each) => total + each, 0),
      fixed(
        weights.reduce((total, each) => total + each, 0),
        3,
      ),
    );
    const name = (place) => (place ? visible(model.texts[trace.ids[place]]) : "start");
    fill(
      sources,
      h("h3", {}, "From ", h("b", { class: "mono" }, name(here)), " it takes most from"),
      ...order.map((s) =>
        h(
          "button",
          {
            type: "button",
            class: "source",
            "data-place": s,
            "data-value": weights[s].toPrecision(7),
            onclick: () => selectToken(view, s),
            title: "look from this token",
          },
          h("span", { class: "mono" }, name(s), h("sub", {}, s)),
          h("span", { class: "track" }, h("span", { class: "bar share", style: { width: `${100 * weights[s]}%` } })),
          h("span", { class: "number" }, percent(weights[s])),
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
            s ? model.texts[id] : "start",
          ),
        ),
    );
    point(here, null);
  }

  // The cross on the map, and in words what it is on.
  function point(t, s) {
    const { trace, model } = view;
    if (!trace || !model) return;
    const T = trace.ids.length;
    const [layer, head] = headOf(view);
    cross.style.setProperty("--row", t / T);
    cross.style.setProperty("--size", 1 / T);
    const name = (place) => (place ? visible(model.texts[trace.ids[place]]) : "start");
    if (s === null) return fill(pointed, h("span", { class: "muted" }, "Point at the map to read a weight."));
    const weight = trace.attention.at(layer, head, t, s);
    fill(
      pointed,
      h("b", { class: "mono" }, name(t)),
      s > t ? " may not look ahead at " : " takes ",
      s > t ? "" : figure("weight", weight, percent(weight)),
      s > t ? "" : " from ",
      h("b", { class: "mono" }, name(s)),
    );
  }
}
