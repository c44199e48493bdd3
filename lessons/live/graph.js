// The drawing of a walk: nodes with their values on the left and their cotangents on the right, and shares on the edges.

import { fill, svg } from "pellucid/elements.js";
import { inside, short } from "./numbers.js";
import { wayOf } from "./walk.js";

const WIDTH = 376;
const HEIGHT = 36; // of a node

export function drawGraph(drawing, walk) {
  const { expression, nodes } = walk;
  drawing.setAttribute("viewBox", `0 0 ${WIDTH} ${expression.height}`);
  drawing.setAttribute("aria-label", `The graph of ${expression.title}. ${described(walk)}.`);
  const edges = nodes.flatMap((node) => node.of.map((name) => edge(walk, walk.node(name), node)));
  fill(
    drawing,
    edges,
    nodes.map((node) => oval(walk, node)),
  );
}

// The cotangent of a node as far as it is known: "1 + 6", then "1 + 6 = 7".
export function sumOfShares(walk, name) {
  const sum = walk
    .arrived(name)
    .map((share, i) => (i ? inside(share) : short(share)))
    .join(" + ");
  return walk.has("total", name) ? `${sum} = ${short(walk.cotangents[name])}` : sum;
}

// A share and where it comes from: slope · cotangent.
export function productOf({ slopes, cotangents, shares }, from, name) {
  const way = wayOf(from, name);
  return `${short(slopes[way])} · ${inside(cotangents[from])} = ${short(shares[way])}`;
}

function described(walk) {
  const facts = walk.nodes
    .filter((node) => walk.hasValue(node))
    .map(({ name, label }) => {
      const shares = walk.arrived(name).length ? `, cotangent ${sumOfShares(walk, name)}` : "";
      return `${label}: value ${short(walk.values[name])}${shares}`;
    });
  return facts.join("; ");
}

function oval(walk, node) {
  const { name, label, at } = node;
  const [x, y] = at;
  const half = Math.max(20, 13 + 3.9 * label.length);
  const isHere = ["value", "first", "total"].some((kind) => walk.isHere(kind, name));
  const value = { x: x - half - 8, y: y + 5, "text-anchor": "end", "data-value-of": name };
  const cotangent = { x: x + half + 8, y: y + 5, "data-cotangent-of": name };
  const hasShares = walk.arrived(name).length > 0;
  const whole = walk.hasCotangent(name) ? walk.cotangents[name] : "";
  return svg(
    isHere ? "g.node.here" : "g.node",
    svg("rect", { x: x - half, y: y - HEIGHT / 2, width: 2 * half, height: HEIGHT, rx: HEIGHT / 2 }),
    svg("text", { x, y: y + 5, "text-anchor": "middle" }, label),
    walk.hasValue(node) && svg("text.value", { ...value, "data-value": walk.values[name] }, short(walk.values[name])),
    hasShares && svg("text.cotangent", { ...cotangent, "data-value": whole }, sumOfShares(walk, name)),
  );
}

// An edge leads up to the node that uses an input. When a share has come down on it, it points down.
function edge(walk, input, node) {
  const way = wayOf(node.name, input.name);
  const bend = walk.expression.bends[way] ?? 0;
  const [low, high] = [edgeOf(input, node, bend, -1), edgeOf(node, input, bend, 1)];
  const middle = [(low[0] + high[0]) / 2 - bend, (low[1] + high[1]) / 2];
  const isDown = walk.has("share", input.name, node.name);
  const [tail, tip] = isDown ? [high, low] : [low, high];
  const state = isDown ? "down" : walk.hasValue(node) ? "up" : "idle";
  const isHere = walk.isHere("share", input.name, node.name);
  // A curve comes half as far out as the point that bends it.
  const isLeft = walk.expression.left.includes(way);
  const place = { x: middle[0] + bend / 2 + (isLeft ? -9 : 9), y: middle[1] + 5 };
  const share = {
    ...place,
    "text-anchor": isLeft ? "end" : "start",
    "data-share": way,
    "data-value": walk.shares[way],
  };
  return svg(
    `g.edge.${state}${isHere ? ".here" : ""}`,
    svg("path", { d: `M${tail} Q${middle} ${tip}` }),
    svg("path", { d: tipOf(middle, tip) }),
    isDown && svg("text", share, productOf(walk, node.name, input.name)),
  );
}

// Where an edge meets a node: on its lower side (1) or its upper one (-1), a little towards the other end.
function edgeOf({ at: [x, y] }, { at: [otherX] }, bend, side) {
  const sideways = (otherX - bend - x) / 6;
  return [x + Math.max(-14, Math.min(14, sideways)), y + side * (HEIGHT / 2 + 4)];
}

function tipOf([fromX, fromY], [x, y]) {
  const angle = Math.atan2(y - fromY, x - fromX);
  const corner = (turn) => [x - 9 * Math.cos(angle + turn), y - 9 * Math.sin(angle + turn)];
  return `M${corner(0.45)} L${[x, y]} L${corner(-0.45)}`;
}
