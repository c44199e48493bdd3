// Part 4: what the model would say after each part of each layer.

import { drawBeliefs } from "./beliefs.js";
import { bar, changed, exact, fact, figure, fill, h, percent, setFigure } from "./elements.js";
import { placeOf, rove } from "./moves.js";
import { divergence, divergenceFromTruth, likeliest, logSoftmax } from "./sampling.js";
import { nameAt, visible } from "./tokens.js";
import { matching } from "./truth.js";

const CELL = 5.5; // how wide a column must be, in letters' heights (rem)
const HEADER = 9.6; // and the names of the rows
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
  root.append(
    table,
    h(
      "aside",
      title,
      h(
        "dl.facts",
        fact("KL to the final prediction", toEnd, h("small", " nats")),
        h("div.if-truth", h("dt", "KL to the truth"), h("dd", toTruth, h("small", " nats"))),
      ),
      list,
      beliefs,
    ),
  );
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-point]");
    if (cell) choose(cell);
  });
  table.addEventListener("keydown", (event) => {
    const cells = [...table.querySelectorAll("[data-point]")];
    rove(event, cells, cells.filter((cell) => cell.dataset.point === "0").length, (i) => {
      choose(cells[i]);
    });
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
      room = Math.floor((table.clientWidth / rem - HEADER) / CELL); // to ask for it costs a layout
    }
    const n_columns = Math.max(2, Math.min(T, room));
    const first = Math.max(0, Math.min(T - n_columns, here - Math.floor(n_columns * 0.7)));
    const places = Array.from({ length: n_columns }, (_, i) => first + i).filter(
      (place) => place < T && !(isGuess && place > here),
    );
    const cells = document.activeElement?.closest?.(".lens") === table ? document.activeElement.dataset : null;
    table.style.setProperty("--columns", n_columns);
    fill(
      table,
      h(
        "div.lens-row",
        { role: "row" },
        h("span.corner", { role: "columnheader" }, "after reading"),
        places.map((place) =>
          h(
            "span",
            { role: "columnheader", class: `mono ${place === here ? "here" : ""}`, title: nameAt(view, place) },
            nameAt(view, place),
          ),
        ),
      ),
      ...trace.points.map((point, n) =>
        h(
          "div.lens-row",
          { role: "row" },
          h("span", { role: "rowheader" }, nameOfPoint(point, n, trace)),
          places.map((place) => {
            const id = trace.lens.ids.at(n, place);
            const p = trace.lens.probabilities.at(n, place);
            const hidden = isGuess && place === here;
            return h(
              "span",
              {
                role: "gridcell",
                class: `cell ${p > 0.45 ? "sure" : ""}`,
                "data-point": n,
                "data-place": place,
                "data-id": id,
                "data-value": p.toPrecision(7),
                "data-kl": trace.lens.kl.at(n, place).toPrecision(7),
                style: { "--p": hidden ? 0 : p },
                title: hidden
                  ? ""
                  : `${percent(p)}, KL to the final prediction ${exact(trace.lens.kl.at(n, place))} nats`,
              },
              hidden ? "?" : visible(model.texts[id]),
            );
          }),
        ),
      ),
    );
    if (cells?.point) table.querySelector(`[data-point="${cells.point}"][data-place="${cells.place}"]`)?.focus();
  }

  function drawCard(here, point) {
    const { trace, model, logits, state } = view;
    const logQ = logSoftmax(logits.logits.row(point).values);
    const end = logSoftmax(logits.logits.row(trace.points.length - 1).values);
    const truth = matching(view.truth, trace);
    const p = truth?.positions?.[here];
    root.classList.toggle("no-truth", !truth?.known);
    fill(title, nameOfPoint(trace.points[point], point, trace), ", after ", h("b.mono", nameAt(view, here)));
    setFigure(toEnd, state.guess ? null : divergence(end, logQ)); // it would tell how sure the model is
    setFigure(toTruth, p && !state.guess ? divergenceFromTruth(p, logQ) : null);
    const best = likeliest(logQ, N_SHOWN);
    if (state.guess) return fill(list, h("li.muted", "Hidden while “Guess first” is on."));
    fill(
      list,
      ...best.map((id) => {
        const q = Math.exp(logQ[id]);
        return h(
          "li",
          { "data-id": id, "data-value": q.toPrecision(7) },
          h("span.mono", visible(model.texts[id])),
          h("span.track", bar("model", q)),
          h("span.number", percent(q)),
        );
      }),
    );
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
