// Part 1: the curve of what the run learns, which is also the slider over the checkpoints.

import { drawCurve } from "./curve.js";
import { changed, fact, figure, fill, fixed, h, svg, thousands, withCode } from "./elements.js";
import { term } from "./glossary.js";
import { curvesOf, levelAt, measuresOf, valueAt, valueNear } from "./measures.js";
import { moveCheckpoint } from "./moves.js";
import { runOf } from "./store.js";

export function runPanel(root, view) {
  const memory = {};
  const chart = svg("svg.curve", { role: "slider", tabindex: 0, "aria-label": "Checkpoint, along the curve" });
  const measures = h("div.measures.chips", { role: "group", "aria-label": "Curve" });
  const key = h("figcaption.key");
  const facts = h("dl.facts");
  const sampleSize = h("p.muted.small");
  const samples = h("div.samples");
  const problem = h("p.note", { hidden: true });
  const runs = h("select", {
    id: "run-choice",
    "aria-label": "Run",
    onchange: () => choose(view.runs.find(({ name }) => name === runs.value).checkpoints.at(-1), "goTo"),
  });
  root.classList.add("run");
  root.append(h("figure", measures, chart, key), h("aside", runs, problem, facts, sampleSize), samples);
  let places = []; // {x, checkpoint} of the checkpoints

  const choose = (checkpoint, how = "set") => checkpoint && view.store[how]({ checkpoint: checkpoint.id });
  const nearest = (event, how) => {
    const x = event.clientX - chart.getBoundingClientRect().left;
    const distance = (place) => Math.abs(place.x - x);
    if (places.length)
      choose(places.reduce((best, place) => (distance(place) < distance(best) ? place : best)).checkpoint, how);
  };
  chart.addEventListener("pointerdown", (event) => {
    chart.setPointerCapture(event.pointerId);
    nearest(event, "goTo");
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
    const { checkpoint, curve } = state;
    if (changed(memory, run, metrics[run.name], checkpoint, curve, model, look, view.samples[run.name])) redraw(run);
  }

  function redraw(run) {
    const { metrics, state } = view;
    const rows = metrics[run.name] ?? [];
    const all = measuresOf(run, rows);
    const measure = all.find(({ name }) => name === state.curve) ?? all[0];
    const chosen = run.checkpoints.find(({ id }) => id === state.checkpoint);
    fill(runs, ...view.runs.map((each) => option(each, each === run)));
    runs.hidden = view.runs.length < 2;
    root.parentElement.classList.toggle("no-surprise", run.loss_unit !== "nats per token");
    problem.hidden = !run.problem;
    fill(problem, withCode(run.problem ?? ""));
    fill(measures, all.length > 1 && all.map((each) => choice(each, each === measure)));
    drawChart(run, rows, measure, chosen);
    fill(facts, factsOf(run, rows, measure, chosen));
    const isRead = measure?.isOfText && chosen && valueAt(rows, measure, chosen.step).isHeldOut;
    fill(sampleSize, isRead && run.evaluation_tokens && withCode(sizeOf(run)));
    drawSamples(run, chosen);
  }

  function choice({ name }, isShown) {
    return h("button.chip", { "aria-pressed": isShown, onclick: () => view.store.set({ curve: name }) }, name);
  }

  function drawChart(run, rows, measure, chosen) {
    const { checkpoints } = run;
    chart.setAttribute("aria-valuemin", checkpoints[0]?.step ?? 0);
    chart.setAttribute("aria-valuemax", checkpoints.at(-1)?.step ?? 0);
    chart.setAttribute("aria-valuenow", chosen?.step ?? 0);
    chart.setAttribute("aria-valuetext", chosen ? `step ${chosen.step}` : "no checkpoint");
    const curves = measure ? curvesOf(run, rows, measure) : { held: [], training: [], level: null };
    places = drawCurve(chart, {
      ...curves,
      unit: measure?.unit,
      isEven: !measure?.isOfText,
      checkpoints,
      chosen,
      end: run.steps,
    });
    const what = measure?.isOfText ? "text" : measure?.isOfPairs ? "pairs" : "instructions";
    fill(
      key,
      h("span", mark("val"), `held-out ${what}`),
      h("span", mark("train"), `training ${what}`),
      curves.level !== null && h("span", mark("floor"), measure.level.name),
      h("span", mark("kept"), "checkpoints"),
      measure?.says && h("span.says", measure.says),
    );
  }

  // What is known of the run at the chosen checkpoint.
  function factsOf(run, rows, measure, chosen) {
    const { model } = view;
    const ofRun = run.steps ?? run.checkpoints.at(-1)?.step;
    const steps = chosen ? `${thousands(chosen.step)} of ${thousands(ofRun)}` : "–";
    const weights = model?.n_parameters ?? null;
    return [
      fact("step", figure("step", chosen?.step ?? null, steps)),
      measure && chosen && measured(run, rows, measure, chosen.step),
      fact("parameters", figure("parameters", weights, model ? thousands(weights) : "–")),
    ];
  }

  function measured(run, rows, measure, step) {
    const { name, heldOut, training, isOfText, isAbove, beside = [] } = measure;
    const { value, isHeldOut } = valueAt(rows, measure, step);
    const level = levelAt(run, rows, measure, step);
    const where = isHeldOut ? "held out" : isOfText ? "training text" : "in training";
    const shown = (key, number) => figure(key, number, fixed(number, 3));
    return [
      fact(`${isAbove ? "loss" : name}, ${where}`, shown(isHeldOut ? heldOut : training, value)),
      beside.map(([each, words]) => {
        const key = isHeldOut ? `val_${each}` : each;
        const number = valueNear(rows, key, step);
        return number !== null && fact(words, shown(key, number));
      }),
      level !== null &&
        fact(isOfText ? [term("floor"), ": the best possible"] : measure.level.name, shown("level", level)),
      level !== null && isOfText && isHeldOut && fact(term("excess"), shown("val_excess", value - level)),
    ];
  }

  // What the model of this moment wrote, or else the one shortly before; of earlier ones nothing is known.
  function drawSamples(run, chosen) {
    const moment = view.samples[run.name]?.findLast(({ step }) => !chosen || step <= chosen.step);
    if (!moment) return fill(samples);
    const steps = [figure("sample_step", moment.step, thousands(moment.step)), moment.step === 1 ? " step" : " steps"];
    const texts = moment.texts.slice(0, 2).map((text) => h("blockquote", run.has_chat ? withBold(text) : text));
    const did = run.left_out?.fills_gaps ? "What it put into gaps, in brackets, after " : "What it wrote after ";
    fill(samples, h("h3", did, steps), texts);
  }
}

function sizeOf({ evaluation_tokens }) {
  return `While it trains, a run reads ${thousands(evaluation_tokens)} held-out tokens at most. \`pellucid evaluate\` reads all.`;
}

// Of a model that answers, what was asked is written as **bold**.
function withBold(text) {
  return text.split("**").map((part, i) => (i % 2 ? h("b", part) : part));
}

function option({ name, problem, checkpoints }, selected) {
  const why = problem ? " (gone)" : checkpoints.length ? "" : " (no checkpoint yet)";
  return h("option", { value: name, selected, disabled: !checkpoints.length }, name + why);
}

function mark(name) {
  return h(`span.mark.${name}`, { "aria-hidden": "true" });
}
