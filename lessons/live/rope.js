// Lesson 9: the clocks of RoPE, for a head of width 8. A query and a key turn their hands by their positions; the score
// depends on the angle between the hands, so on how far apart they stand.

import { figure, fill, fixed, h, setFigure, svg } from "pellucid/elements.js";
import { Decoder, dot } from "pellucid/model.js";
import { sized } from "./chart.js";

const K = 8;
const CLOCKS = [...Array(K / 2).keys()];
const LAST = 63; // position
const STEPS = [-10, -1, 1, 10];

// The positions of the microscope's decoder. Of the decoder itself nothing is needed, so it has no layer and no weight.
const SHAPE = { head_width: K, n_layers: 0, norm_placement: "post", logit_soft_cap: null };
const { positions } = new Decoder({ ...SHAPE, position: { type: "rope", base: 10_000, rotated_fraction: 1 } }, {});

// Hands before they turn: all of length 1 and to the right, if a head does nothing about it. Numbers i and i + K/2 are the
// tip of hand i.
const EQUAL = [1, 1, 1, 1, 0, 0, 0, 0];
const SLOW = [0.2, 0.2, 1, 1, 0, 0, 0, 0];
const HEADS = [
  {
    title: "equal hands",
    query: EQUAL,
    key: EQUAL,
    says: "Query and key have the same hands: the score is highest at distance 0.",
  },
  {
    title: "three back",
    query: positions.rotate(EQUAL, -3),
    key: EQUAL,
    says: "The query's hands start three steps behind. They meet the key's at distance 3: this head looks three words back.",
  },
  {
    title: "slow clocks",
    query: SLOW,
    key: SLOW,
    says: "The fast clocks have short hands, so they hardly count. This head asks what stands in the text, and hardly where.",
  },
];

export function rope(place) {
  const state = { head: HEADS[0], query: 12, key: 9 };
  const clocks = CLOCKS.map(clock);
  const score = figure("score", 0);
  const parts = h("span.parts");
  const said = h("p.said", { role: "status" });
  const about = h("p.about");
  const chart = svg("svg.curve", { role: "img" });
  const sliders = { query: slider("query", "one"), key: slider("key", "two") };
  const choices = HEADS.map((head) => h("button", { onclick: () => set({ head }) }, head.title));
  const moves = STEPS.map((by) =>
    h("button", { "data-by": by, onclick: () => moveBoth(by) }, fixed(by, 0).replace(/^(\d)/, "+$1")),
  );
  fill(
    place,
    h("p.title", "Turn the hands"),
    h("div.choices", { role: "group", "aria-label": "The head" }, choices),
    about,
    h("div.sliders", sliders.query.element, sliders.key.element),
    h("div.buttons", { role: "group", "aria-label": "Move both" }, h("span", "Move both:"), moves),
    h(
      "div.clocks",
      clocks.map(({ element }) => element),
    ),
    h("p.score", "score = ", parts, " = ", score),
    said,
    h("div.chart", chart),
  );
  addEventListener("resize", draw);
  set({});

  function slider(name, colour) {
    const shown = h("output");
    // A query sees what stands before it, so neither may pass the other: it takes the other along.
    const change = ({ target }) => {
      const at = Number(target.value);
      const other = name === "query" ? { key: Math.min(at, state.key) } : { query: Math.max(at, state.query) };
      set({ [name]: at, ...other });
    };
    const range = h("input", { type: "range", min: 0, max: LAST, step: 1, "data-input": name, oninput: change });
    return { range, shown, element: h(`label.${colour}`, h("span", `${name} at`), range, shown) };
  }

  function moveBoth(by) {
    const moved = Math.max(-state.key, Math.min(by, LAST - state.query));
    const before = scoreAt(state);
    set({ query: state.query + moved, key: state.key + moved });
    said.textContent = moved
      ? `Both hands of a clock have turned by the same angle. The score was ${fixed(before)}, and is ${fixed(scoreAt(state))}.`
      : "They stand at the edge of the text.";
  }

  function set(changes) {
    Object.assign(state, changes);
    said.textContent = "Move one of them, and the angles change. Now move both.";
    draw();
  }

  function draw() {
    const { head, query, key } = state;
    for (const [name, { range, shown }] of Object.entries(sliders)) {
      range.value = state[name];
      shown.textContent = state[name];
    }
    choices.forEach((each, i) => each.setAttribute("aria-pressed", HEADS[i] === head));
    about.textContent = head.says;
    const [q, k] = [positions.rotate(head.query, query), positions.rotate(head.key, key)];
    place.dataset.query = JSON.stringify(head.query);
    place.dataset.key = JSON.stringify(head.key);
    clocks.forEach((each, i) => each.draw(handOf(q, i), handOf(k, i)));
    const products = CLOCKS.map((i) => dot(handOf(q, i), handOf(k, i)));
    parts.textContent = products.map((each, i) => (i && each < 0 ? `(${fixed(each)})` : fixed(each))).join(" + ");
    setFigure(score, dot(q, k));
    drawCurve(chart, state);
  }
}

const handOf = (x, i) => [x[i], x[i + K / 2]];

function scoreAt({ head, query, key }) {
  return dot(positions.rotate(head.query, query), positions.rotate(head.key, key));
}

// One clock: both hands, and the angle between them.
function clock(i) {
  const speed = 10_000 ** ((-2 * i) / K);
  const face = svg("svg", { viewBox: "-1.2 -1.2 2.4 2.4", role: "img" });
  const angle = figure(`angle ${i}`, 0);
  const product = figure(`product ${i}`, 0);
  const element = h(
    "figure",
    h("figcaption", h("b", `clock ${i}`), ` ${speed.toPrecision(1)} rad a step`),
    face,
    h("p", "angle ", angle),
    h("p", "adds ", product),
  );
  return { element, draw };

  function draw(query, key) {
    const between = Math.atan2(key[0] * query[1] - key[1] * query[0], dot(query, key));
    setFigure(angle, between, `${fixed(Math.abs(between))} rad`);
    setFigure(product, dot(query, key));
    face.setAttribute(
      "aria-label",
      `Clock ${i}: the hands of query and key, ${fixed(Math.abs(between))} radians apart`,
    );
    fill(face, svg("circle", { r: 1.12 }), wedge(key, between), hand("two", key), hand("one", query));
  }
}

// A hand, as an arrow. Here the second axis points down, on a clock of mathematics it points up.
function hand(name, [x, y]) {
  const [angle, size] = [Math.atan2(y, x), Math.min(0.16, 0.5 * Math.hypot(x, y))];
  const corner = (turn) => [x - size * Math.cos(angle + turn), size * Math.sin(angle + turn) - y];
  return svg(`path.hand.${name}`, { d: `M0 0 L${[x, -y]} M${corner(0.45)} L${[x, -y]} L${corner(-0.45)}` });
}

// The part of the face between the hands, if it can be seen at all.
function wedge(key, between) {
  if (Math.abs(between) < 0.02) return null;
  const [radius, start] = [0.42, Math.atan2(key[1], key[0])];
  const at = (angle) => [radius * Math.cos(angle), -radius * Math.sin(angle)];
  return svg("path.wedge", {
    d: `M0 0 L${at(start)} A${radius} ${radius} 0 0 ${between > 0 ? 0 : 1} ${at(start + between)} Z`,
  });
}

// The score at each distance, and where the two stand now.
function drawCurve(chart, { head, query, key }) {
  const height = 200;
  const width = sized(chart, height);
  const frame = { x1: 34, x2: width - 12, y1: 26, y2: height - 36 };
  const most = Math.sqrt(dot(head.query, head.query) * dot(head.key, head.key));
  const x = (distance) => frame.x1 + (distance / LAST) * (frame.x2 - frame.x1);
  const y = (score) => frame.y2 - ((score + most) / (2 * most)) * (frame.y2 - frame.y1);
  const scores = Array.from({ length: LAST + 1 }, (_, distance) => scoreAt({ head, query: distance, key: 0 }));
  const here = { cx: x(query - key), cy: y(scores[query - key]) };
  const level = (score) => [
    svg("line.grid", { ...frame, y1: y(score), y2: y(score) }),
    svg("text", { x: frame.x1 - 6, y: y(score) + 4, "text-anchor": "end" }, fixed(score, 0)),
  ];
  const mark = (distance) =>
    svg("text", { x: x(distance), y: frame.y2 + 16, "text-anchor": "middle" }, String(distance));
  chart.setAttribute(
    "aria-label",
    `The score at each distance; at distance ${query - key} it is ${fixed(scores[query - key])}`,
  );
  fill(
    chart,
    [-Math.round(most), 0, Math.round(most)].map(level),
    [0, 10, 20, 30, 40, 50, 60].map(mark),
    svg("text", { x: frame.x2, y: height - 4, "text-anchor": "end" }, "distance between query and key"),
    svg("text", { x: 2, y: 12 }, "score"),
    svg("path.line", { d: `M${scores.map((score, distance) => [x(distance), y(score)]).join("L")}` }),
    svg("line.now", { x1: here.cx, x2: here.cx, y1: frame.y1, y2: frame.y2 }),
    svg("circle.now", { ...here, r: 5, "data-distance": query - key, "data-value": scores[query - key] }),
  );
}
