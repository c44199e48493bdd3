// Part 1: the loss curve, which is also the slider over the checkpoints.

import { changed, fact, figure, fill, fixed, h, setFigure, svg, thousands, withCode } from "./elements.js";
import { term } from "./glossary.js";
import { moveCheckpoint } from "./moves.js";
import { runOf } from "./store.js";

const HEIGHT = 230;
const MARGIN = { left: 46, right: 16, top: 24, bottom: 24 };

export function runPanel(root, view) {
  const memory = {};
  const chart = svg("svg.curve", {
    height: HEIGHT,
    role: "slider",
    tabindex: 0,
    "aria-label": "Checkpoint, along the loss curve",
  });
  const step = figure("step", null);
  const loss = figure("val_loss", null);
  const floor = figure("val_floor", null);
  const excess = figure("val_excess", null);
  const parameters = figure("parameters", null);
  const floorRows = [fact([term("floor"), ": the best possible"], floor), fact(term("excess"), excess)];
  const floorKey = h("span", mark("floor"), "floor");
  const train = figure("train_loss", null);
  const heldOutRow = fact("loss, held out", loss);
  const trainRow = fact("loss, training text", train); // where no other was measured
  const sampleSize = h("p.muted.small");
  const sizeOf = ({ evaluation_tokens }) =>
    `While it trains, a run reads ${thousands(evaluation_tokens)} held-out tokens at most. \`pellucid evaluate\` reads all.`;
  const samples = h("div.samples");
  const problem = h("p.note", { hidden: true });
  const runs = h("select", {
    id: "run-choice",
    "aria-label": "Run",
    onchange: () => choose(view.runs.find(({ name }) => name === runs.value).checkpoints.at(-1)),
  });
  root.classList.add("run");
  root.append(
    h(
      "figure",
      chart,
      h(
        "figcaption.key",
        h("span", mark("val"), "held-out text"),
        h("span", mark("train"), "training text"),
        floorKey,
        h("span", mark("kept"), "checkpoints"),
      ),
    ),
    h(
      "aside",
      runs,
      problem,
      h("dl.facts", fact("step", step), heldOutRow, trainRow, floorRows, fact("parameters", parameters)),
      sampleSize,
    ),
    samples,
  );
  let places = []; // {x, checkpoint} of the checkpoints

  const choose = (checkpoint) => checkpoint && view.store.set({ checkpoint: checkpoint.id });
  const nearest = (event) => {
    const x = event.clientX - chart.getBoundingClientRect().left;
    const distance = (place) => Math.abs(place.x - x);
    if (places.length)
      choose(places.reduce((best, place) => (distance(place) < distance(best) ? place : best)).checkpoint);
  };
  chart.addEventListener("pointerdown", (event) => {
    chart.setPointerCapture(event.pointerId);
    nearest(event);
  });
  chart.addEventListener("pointermove", (event) => event.buttons && nearest(event));
  chart.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    const end = { Home: 0, End: -1 }[event.key];
    if (by) moveCheckpoint(view, by);
    else if (end !== undefined) choose(places.at(end)?.checkpoint);
    else return;
    event.preventDefault();
  });

  return { draw };

  function draw() {
    const { runs: all, metrics, state, model, look } = view;
    const run = all.find(({ name }) => name === runOf(state.checkpoint)) ?? all[0];
    if (!run) return;
    if (changed(memory, run, metrics[run.name], state.checkpoint, model, look, view.samples[run.name])) redraw(run);
  }

  function redraw(run) {
    const { metrics, state, model } = view;
    const rows = metrics[run.name] ?? [];
    fill(runs, ...view.runs.map((each) => option(each, each === run)));
    runs.hidden = view.runs.length < 2;
    root.parentElement.classList.toggle("no-surprise", run.loss_unit !== "nats per token");
    problem.hidden = !run.problem;
    fill(problem, withCode(run.problem ?? ""));
    const chosen = run.checkpoints.find(({ id }) => id === state.checkpoint);
    drawCurve(run, rows, chosen);
    const row = chosen && nearestRow(rows, chosen.step, "val_loss");
    const known = chosen?.val_loss ?? null;
    const floorHere = row?.val_floor ?? null;
    setFigure(
      step,
      chosen?.step ?? null,
      chosen ? `${thousands(chosen.step)} of ${thousands(run.steps ?? run.checkpoints.at(-1).step)}` : "–",
    );
    setFigure(loss, known, fixed(known, 3));
    setFigure(floor, floorHere, fixed(floorHere, 3));
    setFigure(
      excess,
      known !== null && floorHere !== null ? known - floorHere : null,
      known !== null && floorHere !== null ? fixed(known - floorHere, 3) : "–",
    );
    const measured = known === null && chosen ? nearestRow(rows, chosen.step, "train_loss") : undefined;
    const trainHere = measured?.train_loss ?? null;
    setFigure(train, trainHere, fixed(trainHere, 3));
    heldOutRow.hidden = trainHere !== null;
    trainRow.hidden = trainHere === null;
    for (const each of [...floorRows, floorKey]) each.hidden = !run.knows_truth;
    if (trainHere !== null) floorRows[1].hidden = true; // an excess is that of held-out text
    setFigure(parameters, model?.n_parameters ?? null, model ? thousands(model.n_parameters) : "–");
    // What the model of this moment wrote, or else the one shortly before; of earlier ones nothing is known.
    const moment = view.samples[run.name]?.findLast(({ step }) => !chosen || step <= chosen.step);
    fill(sampleSize, known !== null && run.evaluation_tokens && withCode(sizeOf(run)));
    fill(
      samples,
      moment && [
        h(
          "h3",
          "What it wrote after ",
          figure("sample_step", moment.step, thousands(moment.step)),
          moment.step === 1 ? " step" : " steps",
        ),
        moment.texts.slice(0, 2).map((text) => h("blockquote", run.has_chat ? withBold(text) : text)),
      ],
    );
  }

  function drawCurve(run, rows, chosen) {
    const width = Math.max(280, chart.parentElement.clientWidth);
    chart.setAttribute("width", width);
    chart.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    chart.setAttribute("aria-valuemin", run.checkpoints[0]?.step ?? 0);
    chart.setAttribute("aria-valuemax", run.checkpoints.at(-1)?.step ?? 0);
    chart.setAttribute("aria-valuenow", chosen?.step ?? 0);
    chart.setAttribute("aria-valuetext", chosen ? `step ${chosen.step}` : "no checkpoint");
    const train = rows.filter((row) => Number.isFinite(row.train_loss));
    const validation = rows.filter((row) => Number.isFinite(row.val_loss));
    const losses = [...train.map((row) => row.train_loss), ...validation.map((row) => row.val_loss)];
    if (!losses.length) {
      fill(
        chart,
        svg("text.empty", { x: width / 2, y: HEIGHT / 2 }, "The first numbers of this run will appear here."),
      );
      places = [];
      return;
    }
    const floorLevel = validation.at(-1)?.val_floor ?? null;
    const steps = [...rows.map((row) => row.step), ...run.checkpoints.map((each) => each.step)].filter(
      (each) => each > 0,
    );
    const [first, last] = [Math.min(...steps), Math.max(...steps, run.steps ?? 0)];
    const [least, largest] = [Math.min(...losses, floorLevel ?? Infinity), Math.max(...losses)];
    // Losses in nats fall by factors. Those of a reward can be negative: they need an even scale.
    const isEven = least <= 0 || largest < 2 * least;
    const edge = isEven ? 0.08 * (largest - least || 1) : 0;
    const [low, high] = isEven ? [least - edge, largest + edge] : [least * 0.93, largest * 1.05];
    const along = (value, from, to) => (from === to ? 1 : Math.log(value / from) / Math.log(to / from));
    const x = (at) => MARGIN.left + along(Math.max(at, first), first, last) * (width - MARGIN.left - MARGIN.right);
    const up = (loss) => (isEven ? (loss - low) / (high - low) : along(loss, low, high));
    const y = (loss) => HEIGHT - MARGIN.bottom - up(loss) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    const line = (points, name) =>
      svg("path", {
        class: name,
        d: points.map(([px, py], i) => `${i ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join(""),
      });
    const lossAt = (at) =>
      nearestRow(rows, at, "val_loss", true)?.val_loss ?? nearestRow(rows, at, "train_loss")?.train_loss;
    places = run.checkpoints.map((checkpoint) => ({
      checkpoint,
      x: x(Math.max(1, checkpoint.step)),
      y: y(lossAt(checkpoint.step) ?? high),
    }));
    const here = places.find(({ checkpoint }) => checkpoint === chosen);
    fill(
      chart,
      ...(isEven ? evenTicks(low, high) : ticks(low, high)).map((nats) =>
        svg(
          "g.grid",
          svg("line", {
            x1: MARGIN.left,
            x2: width - MARGIN.right,
            y1: y(nats),
            y2: y(nats),
          }),
          svg("text", { x: MARGIN.left - 8, y: y(nats) + 4, "text-anchor": "end" }, signed(nats)),
        ),
      ),
      ...ticks(first, last).map((at) =>
        svg(
          "g.grid",
          svg("line", {
            x1: x(at),
            x2: x(at),
            y1: MARGIN.top,
            y2: HEIGHT - MARGIN.bottom,
          }),
          svg("text", { x: x(at), y: HEIGHT - 6, "text-anchor": "middle" }, thousands(at)),
        ),
      ),
      svg("text.axis", { x: 2, y: HEIGHT - 6 }, "step"),
      svg("text.axis", { x: 2, y: 12 }, signed(run.loss_unit.replace(/^=/, "loss =").replace("beta", "β"))),
      line(
        train.map((row) => [x(row.step), y(row.train_loss)]),
        "train",
      ),
      ...(floorLevel
        ? [
            svg("line.floor", {
              x1: MARGIN.left,
              x2: width - MARGIN.right,
              y1: y(floorLevel),
              y2: y(floorLevel),
            }),
          ]
        : []),
      line(
        validation.map((row) => [x(row.step), y(row.val_loss)]),
        "val",
      ),
      ...places.map((place) => svg("circle.kept", { cx: place.x, cy: place.y, r: 4.5 })),
      ...(here
        ? [
            svg("line.here", {
              x1: here.x,
              x2: here.x,
              y1: MARGIN.top,
              y2: HEIGHT - MARGIN.bottom,
            }),
            svg("circle.here", { cx: here.x, cy: here.y, r: 8 }),
          ]
        : []),
    );
  }
}

// Of a model that answers, what was asked is written as **bold**.
function withBold(text) {
  return text.split("**").map((part, i) => (i % 2 ? h("b", part) : part));
}

function signed(text) {
  return String(text).replaceAll("-", "−");
}

function option({ name, problem, checkpoints }, selected) {
  const why = problem ? " (gone)" : checkpoints.length ? "" : " (no checkpoint yet)";
  return h("option", { value: name, selected, disabled: !checkpoints.length }, name + why);
}

function mark(name) {
  return h(`span.mark.${name}`, { "aria-hidden": "true" });
}

// Four or five round numbers between two others.
function evenTicks(low, high) {
  const ten = 10 ** Math.floor(Math.log10((high - low) / 2));
  const step = [1, 2, 5, 10].map((digit) => digit * ten).find((each) => (high - low) / each <= 5);
  const n = Math.floor(high / step) - Math.ceil(low / step) + 1;
  return Array.from({ length: n }, (_, i) => Number(((Math.ceil(low / step) + i) * step).toPrecision(6)));
}

// 1, 2, 5, 10, 20, … between two numbers; fewer where there are many.
function ticks(low, high) {
  const all = [];
  for (let ten = 10 ** Math.floor(Math.log10(low)); ten <= high; ten *= 10)
    all.push(...[1, 2, 5].map((digit) => Number((digit * ten).toPrecision(1))));
  const inside = all.filter((each) => each >= low && each <= high);
  return inside.length > 8 ? inside.filter((each) => /^0?\.?0*1/.test(String(each))) : inside;
}

// The row next to a step among those that have this figure; `exact`: None if it was not measured there.
function nearestRow(rows, step, key, exact = false) {
  const measured = rows.filter((row) => row[key] !== undefined && row[key] !== null);
  if (exact) return measured.find((row) => row.step === step);
  return measured.reduce(
    (best, row) => (!best || Math.abs(row.step - step) < Math.abs(best.step - step) ? row : best),
    undefined,
  );
}
