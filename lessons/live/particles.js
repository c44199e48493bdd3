// Lesson 12: tokens as particles on a sphere that attract each other, without a mask and with the causal one. Depth is
// time: a layer is a step.

import { figure, fill, fixed, h, setFigure, svg } from "pellucid/elements.js";
import { dot, farthest, Flow, plus, randomTokens, spread, TOKENS, unit } from "./flow.js";
import { short } from "./numbers.js";

const END = 60; // of the time
const STEPS = [0.1, 0.5, 1];
const SPEED = 4; // time that goes by in a second, when it plays
const N_POINTS = 150; // of a path, at most
const SIDES = [
  { name: "free", title: "without a mask", isCausal: false },
  { name: "causal", title: "with the causal mask", isCausal: true },
];

export function particles(place) {
  const state = { start: TOKENS, beta: 1, step: STEPS[0], time: 0, turn: 0 };
  let playedAt = null; // the moment of the last picture; null while all stands still
  let flows = [];
  const spheres = SIDES.map(sphere);
  const sliders = [
    slider("layers", "layers", 0, END / state.step, 1, (layer) => set({ time: layer * state.step })),
    slider("beta", "β", 0, 9, 0.5, (beta) => set({ beta })),
    slider("turn", "turn", -180, 180, 5, (turn) => set({ turn })),
  ];
  const [layers, beta, turn] = sliders;
  const steps = STEPS.map((step) => h("button", { onclick: () => set({ step }) }, short(step)));
  const play = h("button.main", { onclick: () => (playedAt === null ? start() : stop()) }, "Play");
  const again = h("button", { onclick: () => (stop(), set({ time: 0 })) }, "Again");
  const others = h("button", { onclick: () => (stop(), set({ start: randomTokens(), time: 0 })) }, "Other tokens");
  const said = h("p.said", { role: "status" });
  fill(
    place,
    h("p.title", "Let the tokens flow"),
    h(
      "p.about",
      "24 tokens, from the first (blue) to the last (orange). Where will they meet? Then try a larger β, and longer steps.",
    ),
    h(
      "div.buttons",
      play,
      again,
      others,
      h("span.steps", { role: "group", "aria-label": "Step" }, h("span", "step h:"), steps),
    ),
    h(
      "div.sliders",
      sliders.map(({ element }) => element),
    ),
    h(
      "div.spheres",
      spheres.map(({ element }) => element),
    ),
    said,
  );
  set({});

  function slider(name, title, min, max, step, change) {
    const shown = h("output");
    const input = {
      type: "range",
      min,
      max,
      step,
      "data-input": name,
      oninput: ({ target }) => change(Number(target.value)),
    };
    const range = h("input", input);
    return { range, shown, element: h("label", h("span", title), range, shown) };
  }

  function start() {
    if (state.time >= END) set({ time: 0 });
    playedAt = performance.now();
    play.textContent = "Pause";
    requestAnimationFrame(tick);
  }

  function stop() {
    playedAt = null;
    play.textContent = "Play";
    tell();
  }

  function tick(now) {
    if (playedAt === null) return;
    const time = Math.min(END, state.time + (SPEED * Math.max(0, now - playedAt)) / 1000);
    playedAt = now;
    set({ time });
    if (time < END) requestAnimationFrame(tick);
    else stop();
  }

  function set(changes) {
    const isNew = ["start", "beta", "step"].some((name) => name in changes) || !flows.length;
    Object.assign(state, changes);
    if (isNew) {
      flows = SIDES.map(({ isCausal }) => new Flow({ ...state, isCausal }));
      place.dataset.start = JSON.stringify(state.start);
    }
    const layer = layerAt(state);
    layers.range.max = END / state.step;
    for (const [{ range, shown }, value] of [
      [layers, layer],
      [beta, state.beta],
      [turn, state.turn],
    ]) {
      range.value = value;
      shown.textContent = short(value);
    }
    steps.forEach((each, i) => each.setAttribute("aria-pressed", STEPS[i] === state.step));
    const camera = cameraFor(state);
    spheres.forEach(({ draw }, i) => draw(flows[i], layer, camera));
    if (playedAt === null) tell();
  }

  function tell() {
    const layer = layerAt(state);
    const text = sentence(
      state,
      layer,
      flows.map((flow) => spread(flow.at(layer))),
    );
    if (said.textContent !== text) said.textContent = text;
  }
}

const layerAt = ({ time, step }) => Math.floor(time / step + 1e-6);

function sentence({ beta, step, time }, layer, [free, causal]) {
  if (layer === 0) return "Press Play, or move the layers.";
  const so = `${layer} layers with a step of ${short(step)} are a time of ${short(layer * step, 1)}.`;
  if (causal < 0.1)
    return `${so} Both have met: without a mask somewhere between them, with the mask where token 0 has stood all the time.`;
  if (free < 0.1)
    return `${so} Without a mask they have met. With it, the later tokens are on their way after the earlier ones.`;
  if (time >= END && beta > 2)
    return `${so} With this β each token looks at little but its nearest: clusters form, and take very long to meet.`;
  return `${so} They draw together.`;
}

// The three directions of a view: to the right, up, and towards us. We look at token 0 and the middle of all.
function cameraFor({ start, turn }) {
  const mean = unit(start.reduce((sum, token) => plus(sum, 1, token), [0, 0, 0]));
  const [x, y, z] = unit(plus(plus(start[0], 1, mean), 1, [0, 0, 0.25]));
  const angle = (turn * Math.PI) / 180;
  const towards = [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle), z];
  const right = unit([-towards[1], towards[0], 0]);
  return [right, cross(towards, right), towards];
}

const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

function sphere({ name, title }) {
  const drawing = svg("svg", { viewBox: "-1.12 -1.12 2.24 2.24", role: "img" });
  const [apart, fromFirst] = ["apart", "from first"].map((what) => figure(`${what} ${name}`, 0));
  const element = h(
    "figure",
    h("figcaption", title),
    drawing,
    h("p", "at most ", apart, " apart, and ", fromFirst, " from where token 0 began"),
  );
  return { element, draw };

  function draw(flow, layer, camera) {
    const now = flow.at(layer);
    setFigure(apart, spread(now), fixed(spread(now), 3));
    setFigure(fromFirst, farthest(now, flow.path[0][0]), fixed(farthest(now, flow.path[0][0]), 3));
    drawing.setAttribute(
      "aria-label",
      `24 tokens on a sphere ${title}, after ${layer} layers: at most ${fixed(spread(now), 3)} apart`,
    );
    const seen = (token) => [dot(token, camera[0]), -dot(token, camera[1]), dot(token, camera[2])];
    const every = Math.ceil((layer + 1) / N_POINTS);
    const times = [...Array(layer + 1).keys()].filter((each) => each % every === 0 || each === layer);
    const tokens = now.map((_, t) =>
      particle(
        t,
        times.map((each) => seen(flow.path[each][t])),
        now.length,
      ),
    );
    fill(drawing, svg("circle.ball", { r: 1 }), tokens.toReversed(), firstToken(seen(flow.path[0][0])));
  }
}

// The path of a token, pale behind the sphere, and where it is now.
function particle(t, path, n) {
  const parts = { front: "", back: "" };
  for (let i = 1; i < path.length; i++) {
    const side = path[i][2] > 0 ? "front" : "back";
    parts[side] += `M${path[i - 1].slice(0, 2)}L${path[i].slice(0, 2)}`;
  }
  const [cx, cy, z] = path.at(-1);
  return svg(
    "g.particle",
    { style: { "--late": `${(100 * t) / (n - 1)}%` } },
    svg("path.back", { d: parts.back }),
    svg("path", { d: parts.front }),
    svg(z > 0 ? "circle" : "circle.back", { cx, cy, r: 0.04, "data-token": t }),
  );
}

function firstToken([cx, cy, z]) {
  return [
    svg(z > 0 ? "circle.ring" : "circle.ring.back", { cx, cy, r: 0.075 }),
    svg("text", { x: cx, y: cy - 0.12, "text-anchor": "middle" }, "token 0"),
  ];
}
