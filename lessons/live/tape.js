// Lesson 1: a stepper for the graph of an expression. Values go up, then cotangents come down, and before each share the
// reader may guess it.

import { fill, h, svg } from "pellucid/elements.js";
import { EXPRESSIONS } from "./expressions.js";
import { drawGraph, productOf, sumOfShares } from "./graph.js";
import { numberIn, short } from "./numbers.js";
import { Walk, wayOf } from "./walk.js";

const TOLERANCE = 0.02; // of a guess, as the numbers in sight are rounded

export function tape(place) {
  let expression, inputs, walk;
  const drawing = svg("svg.graph", { role: "img" });
  const sliders = h("div.sliders");
  const said = h("p.said", { role: "status" });
  const asked = h("label", { for: "tape-guess" });
  const guess = h("input", { id: "tape-guess", autocomplete: "off", size: 6 });
  const question = h(
    "form.question",
    { onsubmit: judge },
    asked,
    " ",
    guess,
    " ",
    h("button", { type: "submit" }, "Check"),
  );
  const verdict = h("p.verdict", { role: "status" });
  const forward = h("button.main", { onclick: () => go(walk.at + 1) }, "Forward");
  const back = h("button", { onclick: () => go(walk.at - 1) }, "Step back");
  const again = h("button", { onclick: () => go(0) }, "Again");
  const choices = EXPRESSIONS.map((each) => h("button", { onclick: () => choose(each) }, each.title));
  fill(
    place,
    h("p.title", "Step through a graph"),
    h("div.choices", { role: "group", "aria-label": "The expression" }, choices),
    h("p.legend", h("span.one", "↑ values go up"), h("span.two", "↓ shares come down")),
    h("div.sides", drawing, h("div.panel", sliders, h("div.buttons", forward, back, again), said, verdict, question)),
  );
  choose(EXPRESSIONS[0]);

  function choose(chosen) {
    expression = chosen;
    const nodes = expression.nodes.filter(({ of }) => !of.length);
    inputs = Object.fromEntries(nodes.map(({ name, start }) => [name, start]));
    fill(sliders, nodes.map(slider));
    choices.forEach((each, i) => each.setAttribute("aria-pressed", EXPRESSIONS[i] === expression));
    go(0);
  }

  function slider({ name, start, most, step }) {
    const shown = h("output", short(start));
    const change = ({ target }) => {
      inputs[name] = Number(target.value);
      shown.textContent = short(inputs[name]);
      go(walk.at);
    };
    const range = { type: "range", min: -most, max: most, step, value: start, "data-input": name, oninput: change };
    return h("label", h("span", name), h("input", range), shown);
  }

  function go(at) {
    walk = new Walk(expression, inputs, at);
    drawGraph(drawing, walk);
    said.textContent = sentence(walk);
    say("");
    guess.value = "";
    question.hidden = !["share", "total"].includes(walk.next?.kind);
    asked.textContent = question.hidden ? "" : questionFor(walk);
    const focused = document.activeElement;
    forward.disabled = !walk.next;
    back.disabled = again.disabled = at === 0;
    // What is hidden or disabled would lose the keyboard's place.
    if (focused?.disabled || (question.hidden && question.contains(focused))) (walk.next ? forward : again).focus();
  }

  // A right guess goes on. After a wrong one there is a hint, and another try.
  function judge(event) {
    event.preventDefault();
    const given = numberIn(guess.value);
    if (Number.isNaN(given)) return say("Type a number first.");
    const right = answerTo(walk);
    if (Math.abs(given - right) <= Math.max(0.006, TOLERANCE * Math.abs(right))) {
      go(walk.at + 1);
      say(`Right: ${short(right)}.`, "right");
    } else say(`Not ${short(given)}. ${hintFor(walk, walk.next)} Try again, or go forward to see it.`, "wrong");
  }

  function say(text, kind = "") {
    verdict.textContent = text;
    verdict.dataset.kind = kind;
  }
}

// What has just happened, and why.
function sentence(walk) {
  const { kind, name, from } = walk.here;
  if (kind === "start") return "Choose the inputs, and go forward. First the values, from the inputs up.";
  if (kind === "value") return `${walk.node(name).label} is ${short(walk.values[name])}.`;
  if (kind === "first") return "Now back. The result begins with 1: when it grows by 1, it grows by 1.";
  if (kind === "total") return `${name} is used twice, and both count: ${sumOfShares(walk, name)}.${ending(walk)}`;
  const waits = walk.nMissing(name) ? ` ${name} waits: its other share is still to come.` : "";
  return `${hintFor(walk, walk.here)} So ${name} gets ${productOf(walk, from, name)}.${waits}${ending(walk)}`;
}

function ending({ next, nodes, cotangents }) {
  if (next) return "";
  const { name } = nodes[0];
  return ` That was all. When ${name} grows by 0.01, the result changes by about ${short(cotangents[name] / 100, 4)}.`;
}

function questionFor(walk) {
  const { kind, name, from } = walk.next;
  if (kind === "share") return `What does ${name} get from ${walk.node(from).label}?`;
  const shares = walk.arrived(name).map((share) => short(share));
  return `${name} got ${shares.join(" and ")}. What is its cotangent?`;
}

function hintFor(walk, { kind, from, name }) {
  if (kind === "total") return "It is used twice, and both count.";
  const { of, why } = walk.node(from);
  return why(
    of,
    of.map((input) => walk.values[input]),
    of.indexOf(name),
  );
}

function answerTo({ next: { kind, name, from }, shares, cotangents }) {
  return kind === "total" ? cotangents[name] : shares[wayOf(from, name)];
}
