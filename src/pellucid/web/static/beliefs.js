// In part 4, for texts that a hidden state writes: what the best reader believes about it, and what the model has of that.

import { figure, fill, fixed, h, percent, svg, tableHead } from "./elements.js";

const SIDE = 220; // of the triangle, in its own units
const HEIGHT = (SIDE * Math.sqrt(3)) / 2;
const ROOM = 22; // around it, for its letters
const CORNERS = [
  [0, HEIGHT],
  [SIDE, HEIGHT],
  [SIDE / 2, 0],
];

// Draws the beliefs at a token. `point` is the chosen row of the lens, and `names` are those of all rows.
export function drawBeliefs(root, beliefs, { place, point, names }) {
  root.hidden = !beliefs?.known || place >= beliefs.truth.length;
  if (root.hidden) return;
  const truth = beliefs.truth[place];
  const read = beliefs.read.map((row) => row[place]);
  const head = tableHead("", ...truth.map((_, state) => letter(state)));
  const body = h("tbody", row("truth", truth, "true"), row("read here", read[point], "read"));
  const explained = figure("explained", beliefs.explained[point], fixed(100 * beliefs.explained[point], 1));
  const says = `Truth: the best reader’s belief, by Bayes’ rule. Below it: what a linear map reads from ${names[point]}. `;
  fill(
    root,
    h("h3", "Belief about the hidden state"),
    truth.length === 3 && triangle(truth, read, point, names),
    h("table", head, body),
    h("p.muted.small", says, "It was fitted on other texts, and explains ", explained, " % of the beliefs’ variance."),
  );
}

function row(name, belief, kind) {
  const cells = belief.map((p, state) => h("td", figure(`${kind}_${letter(state)}`, p, share(p))));
  return h("tr", h("th", { scope: "row" }, name), cells);
}

// The truth as a ring, and a point for each row of the lens, joined in their order.
function triangle(truth, read, point, names) {
  const [ring, ...points] = [truth, ...read].map(pointOf);
  const says = `A triangle with a corner for each state. Truth: ${words(truth)}. Read from ${names[point]}: ${words(read[point])}.`;
  const box = [-ROOM, -ROOM, SIDE + 2 * ROOM, HEIGHT + 2 * ROOM].join(" ");
  return svg(
    "svg.simplex",
    { viewBox: box, role: "img", "aria-label": says },
    svg("polygon", { points: CORNERS.join(" ") }),
    CORNERS.map(([x, y], state) => svg("text", { x, y: y ? y + 16 : y - 7, "text-anchor": "middle" }, letter(state))),
    svg("polyline", { points: points.join(" ") }),
    points.map(([cx, cy], n) => svg(`circle${n === point ? ".here" : ""}`, { cx, cy, r: n === point ? 5.5 : 3 })),
    svg("circle.truth", { cx: ring[0], cy: ring[1], r: 9 }),
  );
}

function pointOf(belief) {
  return [0, 1].map((axis) => belief.reduce((sum, p, state) => sum + p * CORNERS[state][axis], 0).toFixed(2));
}

function words(belief) {
  return belief.map((p, state) => `${letter(state)} ${share(p)}`).join(", ");
}

// A map may read a share that is a little below zero.
function share(p) {
  return percent(Math.max(0, p));
}

function letter(state) {
  return String.fromCharCode("A".charCodeAt(0) + state);
}
