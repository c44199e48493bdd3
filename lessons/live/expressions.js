// What the tape of lesson 1 can record: operations with their slopes, and three expressions made of them.

import { inside, short } from "./numbers.js";

// slopes: how much the result grows for each 1 that an input grows, one for each input. why: the same in words.
const OPERATIONS = {
  sum: {
    value: (a, b) => a + b,
    slopes: () => [1, 1],
    why: () => "A sum grows as much as its part: the slope is 1.",
  },
  product: {
    value: (a, b) => a * b,
    slopes: (a, b) => [b, a],
    why: (names, values, i) =>
      `The slope by one factor is the other factor, ${names[1 - i]} = ${short(values[1 - i])}.`,
  },
  square: {
    value: (a) => a * a,
    slopes: (a) => [2 * a],
    why: ([name], [value]) => `The slope of ${name}² is 2${name} = 2 · ${inside(value)}.`,
  },
  tanh: {
    value: Math.tanh,
    slopes: (a) => [1 - Math.tanh(a) ** 2],
    why: () => "The slope of tanh is 1 − tanh².",
  },
};

// The nodes of a graph, each after its inputs; f is the result. `of` names the inputs, `at` is the place in the drawing.
const input = (name, at, start, most, step) => ({ name, label: name, at, of: [], start, most, step });
const node = (name, label, at, operation, ...of) => ({ name, label, at, of, ...OPERATIONS[operation] });

// bends: how far an edge swings out to the left, to pass by another node. left: edges with their numbers on the left.
export const EXPRESSIONS = [
  {
    title: "x + x²",
    height: 332,
    nodes: [
      input("x", [166, 300], 3, 4, 0.5),
      node("x²", "x²", [266, 168], "square", "x"),
      node("f", "x + x²", [166, 36], "sum", "x", "x²"),
    ],
    bends: { "f x": 110 },
    left: ["f x"],
  },
  {
    title: "u + u², with u = x²",
    height: 432,
    nodes: [
      input("x", [166, 400], 2, 3, 0.5),
      node("u", "u = x²", [166, 294], "square", "x"),
      node("u²", "u²", [266, 165], "square", "u"),
      node("f", "u + u²", [166, 36], "sum", "u", "u²"),
    ],
    bends: { "f u": 110 },
    left: ["f u"],
  },
  {
    title: "tanh(w · x + b)",
    height: 402,
    nodes: [
      input("w", [82, 370], 0.8, 2, 0.1),
      input("x", [230, 370], 1.5, 2, 0.1),
      input("b", [314, 252], -0.5, 2, 0.1),
      node("p", "p = w · x", [152, 252], "product", "w", "x"),
      node("a", "a = p + b", [230, 140], "sum", "p", "b"),
      node("f", "tanh(a)", [230, 36], "tanh", "a"),
    ],
    bends: {},
    left: ["p w", "a p"],
  },
];
