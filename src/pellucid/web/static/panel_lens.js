// Part 4: what the model would say after each part of each layer.

import { drawBeliefs } from "./beliefs.js";
import { barAndShare, changed, exact, fact, figure, fill, h, percent, setFigure } from "./elements.js";
import { placeOf, rove } from "./moves.js";
import { divergence, divergenceFromTruth, likeliest, logSoftmax } from "./sampling.js";
import { nameAt, visible } from "./tokens.js";
import { matching } from "./truth.js";

const CELL = 5.2; // how wide a column must be, in letters' heights (rem)
const HEADERS = [6.8, 9.6]; // and the names of the rows, on a phone and on a wider page
const N_SHOWN = 10;

export function lensPanel(root, view) {
  const [memory, cards, sizes, believed] = [{}, {}, {}, {}];
  let room = 2;
  const table = h("div.lens", { role: "grid", "aria-label": "Logit lens: places by tokens" });
  const title = h("h3");
  const [toEnd, toTruth] = [figure("kl_end", null), figure("kl_truth", null)];
  const list = h("ol.likeliest");
  const beliefs = h("div.beliefs", { hidden: true });
  root.classList.add("lens-panel");
  const ofTruth = h("div.if-truth", h("dt", "KL to the truth"), h("dd", toTruth, h("small", " nats")));
  const facts = h("dl.facts", fact("KL to the final prediction", toEnd, h("small", " nats")), ofTruth);
  root.append(table, h("aside", title, facts, list, beliefs));
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-point]");
    if (cell) choose(cell);
  });
  table.addEventListener("keydown", (event) => {
    const cells = [...table.querySelectorAll("[data-point]")];
    rove(event, cells, cells.filter((cell) => cell.dataset.point === "0").length, (i) => choose(cells[i]));
  });

  const choose = (cell) => {
    const place = Number(cell.dataset.place);
    view.store.set({ at: place === view.trace.ids.length - 1 ? -1 : place, point: Number(cell.dataset.point) });
  };
  return { draw };

  function draw() {
    const { trace, model, state, look, logits, truth } = view;
    if (!trace || !model) return;
    const point = pointOf(state, trace);
    const here = placeOf(view);
    if (changed(memory, trace, model, here, look, state.guess)) drawTable(here, state.guess);
    for (const cell of table.querySelectorAll("[data-point]")) {
      const isHere = Number(cell.dataset.place) === here && Number(cell.dataset.point) === point;
      cell.setAttribute("aria-selected", isHere);
      cell.tabIndex = isHere ? 0 : -1;
    }
    if (changed(believed, view.beliefs, trace, here, point, state.guess)) drawBelief(here, point);
    if (logits?.at === here && changed(cards, logits, point, matching(truth, trace), model, state.guess))
      drawCard(here, point);
  }

  function drawBelief(place, point) {
    const { trace, state } = view;
    const names = trace.points.map((name, n) => nameOfPoint(name, n, trace));
    drawBeliefs(beliefs, state.guess ? null : view.beliefs, { place, point, names });
  }

  function drawTable(here, isGuess) {
    const { trace, model } = view;
    const T = trace.ids.length;
    if (changed(sizes, view.look)) {
      const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
      const width = table.clientWidth / rem; // to ask for it costs a layout
      room = Math.floor((width - HEADERS[Number(width > 38)]) / CELL);
    }
    const n_columns = Math.max(2, Math.min(T, room));
    const first = Math.max(trace.fills_gaps ? 1 : 0, Math.min(T - n_columns, here - Math.floor(n_columns * 0.7)));
    const places = Array.from({ length: n_columns }, (_, i) => first + i).filter(
      (place) => place < T && !(isGuess && place > here),
    );
    const cells = document.activeElement?.closest?.(".lens") === table ? document.activeElement.dataset : null;
    table.style.setProperty("--columns", n_columns);
    const header = (place) => {
      const [title, mark] = [nameAt(view, place), place === here ? ".here" : ""];
      return h(`span.mono${mark}`, { role: "columnheader", title }, title);
    };
    const cell = (n, place) => {
      const [id, p, kl] = ["ids", "probabilities", "kl"].map((key) => trace.lens[key].at(n, place));
      const isHidden = isGuess && place === here;
      const attributes = {
        role: "gridcell",
        "data-point": n,
        "data-place": place,
        "data-id": id,
        "data-value": p.toPrecision(7),
        "data-kl": kl.toPrecision(7),
        style: { "--p": isHidden ? 0 : p },
        title: isHidden ? "" : `${percent(p)}, KL to the final prediction ${exact(kl)} nats`,
      };
      return h("span.cell", attributes, isHidden ? "?" : visible(model.texts[id]));
    };
    const row = (...cells) => h("div.lens-row", { role: "row" }, cells);
    const name = (point, n) => h("span", { role: "rowheader" }, nameOfPoint(point, n, trace));
    const ofPoint = (point, n) => row(name(point, n), ...places.map((place) => cell(n, place)));
    const corner = h("span.corner", { role: "columnheader" }, "after reading");
    fill(table, row(corner, places.map(header)), trace.points.map(ofPoint));
    if (cells?.point) table.querySelector(`[data-point="${cells.point}"][data-place="${cells.place}"]`)?.focus();
  }

  function drawCard(here, point) {
    const { trace, model, logits, state } = view;
    const logQ = logSoftmax(logits.logits.row(point).values);
    const end = logSoftmax(logits.logits.row(trace.points.length - 1).values);
    const truth = matching(view.truth, trace);
    const p = truth?.positions?.[here];
    root.classList.toggle("no-truth", !truth?.known);
    fill(
      title,
      nameOfPoint(trace.points[point], point, trace),
      trace.fills_gaps ? ", in place of " : ", after ",
      h("b.mono", nameAt(view, here)),
    );
    setFigure(toEnd, state.guess ? null : divergence(end, logQ)); // it would tell how sure the model is
    setFigure(toTruth, p && !state.guess ? divergenceFromTruth(p, logQ) : null);
    const best = likeliest(logQ, N_SHOWN);
    if (state.guess) return fill(list, h("li.muted", "Hidden while “Guess first” is on."));
    const row = (id) => {
      const [q, name] = [Math.exp(logQ[id]), h("span.mono", visible(model.texts[id]))];
      return h("li", { "data-id": id, "data-value": q.toPrecision(7) }, name, barAndShare("model", q));
    };
    fill(list, best.map(row));
  }
}

function pointOf(state, trace) {
  return state.point < 0 ? trace.points.length - 1 : Math.min(state.point, trace.points.length - 1);
}

// "1.feed_forward" in words, as part 7 names it; the last is where the model's answer is read.
function nameOfPoint(point, n, trace) {
  if (point === "embedding") return "embedding";
  const [layer, part] = point.split(".");
  return `${part.replace("_", "-")} ${layer}${n === trace.points.length - 1 ? " (end)" : ""}`;
}
