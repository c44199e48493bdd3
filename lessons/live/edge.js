// Lesson 10: gradient descent from beside a minimum, with a learning rate below or above 2/sharpness.

import { figure, fill, fixed, h, setFigure, svg } from "pellucid/elements.js";
import { sized } from "./chart.js";
import { nearMinimum, Network } from "./small_network.js";
import { short, written } from "./numbers.js";

const LAST = 500; // step
const EVERY = 5; // steps from one sharpness to the next
const SHARES = [0.95, 0.99, 1.01, 1.05, 1.2, 1.5];

export function edge(place) {
  const { bottom, beside } = nearMinimum();
  const lowest = new Network(bottom).error();
  const { sharpness, direction } = new Network(bottom).sharpest(beside);
  const limit = 2 / sharpness;
  const state = { share: 0.95, step: 10 };
  let way = walk(state.share);
  const shares = slider("share", "rate / limit", 0.5, 1.5, 0.01, "one");
  const steps = slider("step", "steps", 0, LAST, 1, "two");
  const choices = SHARES.map((share) => h("button", { onclick: () => set({ share }) }, short(share)));
  const [rate, factor, error, now, demanded] = ["rate", "factor", "error", "sharpness", "2 / rate"].map((name) =>
    figure(name, 0),
  );
  const said = h("p.said", { role: "status" });
  const charts = [svg("svg.curve", { role: "img" }), svg("svg.curve", { role: "img" })];
  fill(
    place,
    h("p.title", "At the edge"),
    h(
      "p.about",
      `Five neurons, just beside a minimum with the sharpness ${fixed(sharpness)}. The limit is 2/${fixed(sharpness)} = ${fixed(limit, 3)}. Where does each rate lead in 500 steps?`,
    ),
    h("div.buttons", { role: "group", "aria-label": "The rate, as a share of the limit" }, choices),
    h("div.sliders", shares.element, steps.element),
    h(
      "p",
      "Rate ",
      rate,
      ": a step multiplies what is left of the steepest direction by 1 − rate · sharpness = ",
      factor,
    ),
    h("div.chart", charts[0]),
    h("p", "Error above the minimum: ", error),
    h("div.chart", charts[1]),
    h("p", "Sharpness here: ", now, "; the rate demands at most 2 / rate = ", demanded),
    said,
  );
  addEventListener("resize", draw);
  set({});

  function slider(name, title, min, max, step, colour) {
    const shown = h("output");
    const oninput = ({ target }) => set({ [name]: Number(target.value) });
    const range = h("input", { type: "range", min, max, step, "data-input": name, oninput });
    return { range, shown, element: h(`label.${colour}`, h("span", title), range, shown) };
  }

  // The parameters at each step, the error above the minimum, and now and then the sharpness.
  function walk(share) {
    const path = [];
    let [theta, towards] = [beside, direction];
    for (let n = 0; n <= LAST; n++) {
      const network = new Network(theta);
      const here = { theta, error: network.error() - lowest };
      if (n % EVERY === 0) {
        const sharpest = network.sharpest(towards);
        here.sharpness = sharpest.sharpness;
        towards = sharpest.direction;
      }
      path.push(here);
      const gradient = network.gradient();
      theta = theta.map((each, i) => each - share * limit * gradient[i]);
    }
    return path;
  }

  function set(changes) {
    Object.assign(state, changes);
    if ("share" in changes) way = walk(state.share);
    draw();
  }

  function draw() {
    const { share, step } = state;
    const here = way[step];
    const flat = here.sharpness ?? new Network(here.theta).sharpest(direction).sharpness;
    for (const [{ range, shown }, value] of [
      [shares, share],
      [steps, step],
    ]) {
      range.value = value;
      shown.textContent = short(value);
    }
    choices.forEach((each, i) => each.setAttribute("aria-pressed", SHARES[i] === share));
    place.dataset.theta = JSON.stringify(here.theta);
    setFigure(rate, share * limit, fixed(share * limit, 3));
    setFigure(factor, 1 - share * limit * sharpness, fixed(1 - share * limit * sharpness));
    setFigure(error, here.error, written(here.error, 2));
    setFigure(now, flat);
    setFigure(demanded, 2 / (share * limit));
    said.textContent = sentence(share, way[step].error);
    drawErrors(charts[0], way, step);
    drawSharpness(charts[1], way, step, flat, 2 / (share * limit));
  }
}

function sentence(share, error) {
  if (share < 1) return "Below the limit: from side to side of the valley, and nearer each time.";
  if (share === 1) return "At the limit: from side to side, and it stays as far away.";
  if (error < 1e-3) return "Above the limit: each jump is wider than the one before, though the place is a minimum.";
  return "It does not fly away: it has left the sharp place, for one that is about as flat as its rate demands.";
}

function drawErrors(chart, way, step) {
  const [low, high] = [-9, 0]; // powers of ten
  const { frame, x, y, marks } = axes(chart, 190, low, high);
  const at = (error) => y(Math.min(high, Math.max(low, Math.log10(Math.max(error, 1e-12)))));
  chart.setAttribute("aria-label", `The error above the minimum, now ${written(way[step].error, 2)}`);
  fill(
    chart,
    marks,
    [-8, -6, -4, -2, 0].map((power) => level(frame, y(power), written(10 ** power, 1))),
    svg("text", { x: 2, y: 12 }, "error above the minimum"),
    svg("path.line", { d: `M${way.map(({ error }, n) => [x(n), at(error)]).join("L")}` }),
    svg("line.now", { x1: x(step), x2: x(step), y1: frame.y1, y2: frame.y2 }),
    svg("circle.now", { cx: x(step), cy: at(way[step].error), r: 5 }),
  );
}

function drawSharpness(chart, way, step, flat, demanded) {
  const [low, high] = [0, 14];
  const { frame, x, y, marks } = axes(chart, 170, low, high);
  const inside = (value) => y(Math.min(high, Math.max(low, value)));
  const known = way.map(({ sharpness }, n) => [n, sharpness]).filter(([, sharpness]) => sharpness !== undefined);
  chart.setAttribute("aria-label", `The sharpness, now ${fixed(flat)}; the rate demands at most ${fixed(demanded)}`);
  fill(
    chart,
    marks,
    [0, 5, 10].map((each) => level(frame, y(each), String(each))),
    svg("text", { x: 2, y: 12 }, "sharpness"),
    svg("line.demanded", { ...frame, y1: y(demanded), y2: y(demanded) }),
    svg("text.two", { x: frame.x2, y: y(demanded) - 6, "text-anchor": "end" }, "2 / rate"),
    svg("path.line", { d: `M${known.map(([n, sharpness]) => [x(n), inside(sharpness)]).join("L")}` }),
    svg("line.now", { x1: x(step), x2: x(step), y1: frame.y1, y2: frame.y2 }),
    svg("circle.now", { cx: x(step), cy: inside(flat), r: 5 }),
  );
}

function axes(chart, height, low, high) {
  const width = sized(chart, height);
  const frame = { x1: 62, x2: width - 12, y1: 24, y2: height - 34 };
  const x = (step) => frame.x1 + (step / LAST) * (frame.x2 - frame.x1);
  const y = (value) => frame.y2 - ((value - low) / (high - low)) * (frame.y2 - frame.y1);
  const marks = [0, 100, 200, 300, 400, 500].map((step) =>
    svg("text", { x: x(step), y: frame.y2 + 16, "text-anchor": "middle" }, String(step)),
  );
  return { frame, x, y, marks: [marks, svg("text", { x: frame.x2, y: height - 4, "text-anchor": "end" }, "step")] };
}

const level = (frame, y, text) => [
  svg("line.grid", { ...frame, y1: y, y2: y }),
  svg("text", { x: frame.x1 - 6, y: y + 4, "text-anchor": "end" }, text),
];
