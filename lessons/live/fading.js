// Lesson 8: what is left of a gradient after so many words: in an RNN, along the cells of an LSTM, and with attention.

import { figure, fill, fixed, h, setFigure, svg } from "pellucid/elements.js";
import { sized } from "./chart.js";
import { raised } from "./numbers.js";

const LAST = 120; // words
const LEAST = -12; // the power of ten at the foot of the drawing
const SLIDERS = [
  { name: "gain", label: "g of the RNN", min: 0.3, max: 1.5, step: 0.05, value: 1, colour: "one" },
  { name: "state", label: "size of its states h", min: 0, max: 0.9, step: 0.05, value: 0.3, colour: "one" },
  { name: "bias", label: "bias of the LSTM's gate f", min: 0, max: 8, step: 0.1, value: 1, colour: "two" },
  { name: "distance", label: "words back", min: 0, max: LAST, step: 1, value: 20 },
];

export function fading(place) {
  const state = Object.fromEntries(SLIDERS.map(({ name, value }) => [name, value]));
  const sliders = SLIDERS.map(slider);
  const rnn = figure("RNN", 0);
  const lstm = figure("LSTM", 0);
  const said = h("p.said", { role: "status" });
  const chart = svg("svg.curve.fading", { role: "img" });
  fill(
    place,
    h("p.title", "What is left of a gradient"),
    h("p.about", "Each step of the RNN multiplies by g · (1 − h²), each step along the cells by f = σ(bias)."),
    h(
      "div.sliders",
      sliders.map(({ element }) => element),
    ),
    h("p.score", h("span.one", "RNN: ", rnn), "; ", h("span.two", "LSTM: ", lstm), "; attention: 1, one step away."),
    said,
    h("div.chart", chart),
  );
  addEventListener("resize", draw);
  draw();

  function slider({ name, label, colour, value, ...range }) {
    const shown = h("output");
    const change = ({ target }) => {
      state[name] = Number(target.value);
      draw();
    };
    const input = h("input", { type: "range", ...range, value, "data-input": name, oninput: change });
    return { name, shown, element: h(colour ? `label.${colour}` : "label", h("span", label), input, shown) };
  }

  function draw() {
    const step = { rnn: state.gain * (1 - state.state ** 2), lstm: 1 / (1 + Math.exp(-state.bias)) };
    for (const { name, shown } of sliders) shown.textContent = fixed(state[name], name === "distance" ? 0 : 2);
    setFigure(rnn, step.rnn ** state.distance, power(step.rnn ** state.distance));
    setFigure(lstm, step.lstm ** state.distance, power(step.lstm ** state.distance));
    fill(said, sentence("The RNN", step.rnn, "RNN"), " ", sentence("The LSTM", step.lstm, "LSTM"));
    drawCurves(chart, state, step);
  }
}

// How many words it takes to lose half of the gradient.
function sentence(who, factor, name) {
  if (Math.abs(factor - 1) < 1e-9) return `${who} keeps all of it.`;
  if (factor > 1) return `${who}'s gradient explodes: ${fixed(factor)} times as much with each step.`;
  const words = Math.log(0.5) / Math.log(factor);
  return [`${who} has lost half of it after `, figure(`half of ${name}`, words, fixed(words, 1)), " words."];
}

// 0.43, and 2 · 10⁻⁷.
function power(value) {
  if (value >= 0.01 && value < 1000) return fixed(value);
  const [factor, exponent] = value.toExponential(0).split("e");
  return `${factor} · 10${raised(Number(exponent))}`;
}

function drawCurves(chart, { distance }, step) {
  const height = 220;
  const width = sized(chart, height);
  const frame = { x1: 44, x2: width - 12, y1: 14, y2: height - 36 };
  const x = (n) => frame.x1 + (n / LAST) * (frame.x2 - frame.x1);
  const y = (log) => frame.y1 + ((2 - Math.max(LEAST, Math.min(2, log))) / (2 - LEAST)) * (frame.y2 - frame.y1);
  const at = (factor, n) => n * Math.log10(factor);
  const line = (name, factor) => {
    const logs = Array.from({ length: LAST + 1 }, (_, n) => at(factor, n));
    const inside = logs.filter((log) => log >= LEAST && log <= 2);
    return svg(`path.line.${name}`, { d: `M${inside.map((log, n) => [x(n), y(log)]).join("L")}` });
  };
  const level = (log) => [
    svg("line.grid", { ...frame, y1: y(log), y2: y(log) }),
    svg("text", { x: frame.x1 - 6, y: y(log) + 4, "text-anchor": "end" }, log ? `10${raised(log)}` : "1"),
  ];
  const mark = (n) => svg("text", { x: x(n), y: frame.y2 + 16, "text-anchor": "middle" }, String(n));
  const dot = (name, factor) => {
    const log = at(factor, distance);
    return log >= LEAST && log <= 2 && svg(`circle.now.${name}`, { cx: x(distance), cy: y(log), r: 5 });
  };
  chart.setAttribute(
    "aria-label",
    `What is left after ${distance} words: RNN ${power(step.rnn ** distance)}, LSTM ${power(step.lstm ** distance)}`,
  );
  fill(
    chart,
    [0, -4, -8, -12].map(level),
    [0, 40, 80, 120].map(mark),
    svg("text", { x: frame.x2, y: height - 4, "text-anchor": "end" }, "words back"),
    line("rnn", step.rnn),
    line("lstm", step.lstm),
    line("attention", 1),
    svg("line.now", { x1: x(distance), x2: x(distance), y1: frame.y1, y2: frame.y2 }),
    [dot("rnn", step.rnn), dot("lstm", step.lstm)],
  );
}
