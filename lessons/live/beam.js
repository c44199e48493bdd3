// Lesson 13: beam search in a small tree, step by step. All beams go on, and then all but the likeliest are dropped.

import { figure, fill, h, svg } from "pellucid/elements.js";
import { sized } from "./chart.js";
import { short } from "./numbers.js";
import { isComplete, roundsOf } from "./small_tree.js";

const WIDTHS = [1, 2, 3];
const ROW = 32; // the height of a node in the drawing
const EDGE_LABELS = 380; // the least width in which the edges have room for numbers
const WORDS = ["none", "one", "two", "three"];

export function beam(place) {
  const state = { nBeams: 1, at: 0 };
  const choices = WIDTHS.map((n) =>
    h("button", { onclick: () => set({ nBeams: n, at: 0 }) }, n === 1 ? "1 beam: greedy" : `${n} beams`),
  );
  const drawing = svg("svg.tree", { role: "img" });
  const table = h("table.beams");
  const said = h("p.said", { role: "status" });
  const forward = h("button.main", { onclick: () => set({ at: state.at + 1 }) }, "Forward");
  const back = h("button", { onclick: () => set({ at: state.at - 1 }) }, "Step back");
  const again = h("button", { onclick: () => set({ at: 0 }) }, "Again");
  fill(
    place,
    h("p.title", "Search with beams"),
    h("p.about", "Before each cut, say which beginnings stay. Compare what one, two and three beams find."),
    h("div.choices", { role: "group", "aria-label": "How many beams" }, choices),
    h("div.buttons", forward, back, again),
    said,
    h("div.sides", h("div.wide", drawing), h("div.panel", table)),
  );
  addEventListener("resize", () => drawTree(drawing, new Search(state)));
  set({});

  function set(changes) {
    Object.assign(state, changes);
    const search = new Search(state);
    choices.forEach((each, i) => each.setAttribute("aria-pressed", WIDTHS[i] === state.nBeams));
    forward.disabled = search.isOver;
    back.disabled = again.disabled = state.at === 0;
    if (document.activeElement?.disabled) (search.isOver ? again : forward).focus();
    fill(said, sentence(search));
    drawTable(table, search);
    drawTree(drawing, search);
  }
}

// A search after so many steps; each round takes two: the beams go on, and the likeliest stay.
class Search {
  constructor({ nBeams, at }) {
    const rounds = roundsOf(nBeams);
    Object.assign(this, { nBeams, at, rounds });
    this.grown = rounds.slice(0, Math.ceil(at / 2));
    this.round = this.grown.at(-1); // undefined at the start
    this.isCut = at > 0 && at % 2 === 0;
    this.isOver = at === 2 * rounds.length;
  }

  // The beams as they are now; before a cut, those that have just gone on.
  get beams() {
    if (!this.round) return this.rounds[0].beams;
    return this.isCut ? this.round.kept : this.round.beams;
  }

  isKept(text) {
    return this.beams.some((beam) => beam.text.startsWith(text));
  }

  // A beginning of what the search has found.
  isBest(text) {
    return this.isOver && this.beams[0].text.startsWith(text);
  }

  // Whether a text waits for the cut.
  isOpen({ text }) {
    return !this.isCut && this.round?.candidates.some((candidate) => candidate.text === text);
  }
}

function sentence(search) {
  const { nBeams, round, isCut, isOver, at } = search;
  if (at === 0) return "Nothing is written yet. Go forward to see what may come first.";
  if (!isCut) {
    const open = round.beams.filter(({ text }) => text && !isComplete(text)).map(({ text }) => text);
    const of = open.length ? ` of ${listed(open)}` : "";
    return `${round.candidates.length} candidates${of ? `: the continuations${of}` : ""}. Which ${nBeams === 1 ? "one stays" : `${WORDS[nBeams]} stay`}?`;
  }
  if (isOver) return ending(search);
  const dropped = round.candidates.filter((each) => !round.kept.includes(each)).sort((a, b) => b.p - a.p)[0];
  const barren = round.beams.filter(({ text }) => text && !search.isKept(text)).map(({ text }) => text);
  const without = barren.length ? ` ${listed(barren)} ${barren.length > 1 ? "have" : "has"} no child among them.` : "";
  return `${named(round.kept)} ${nBeams === 1 ? "stays" : "stay"}.${without} The likeliest that is dropped: ${named([dropped])}.`;
}

function ending({ nBeams, round: { kept } }) {
  const [best] = kept;
  const found = WIDTHS.map((n) => {
    const [{ text, p }] = roundsOf(n).at(-1).kept;
    const who = n === 1 ? "One beam finds" : `${WORDS[n]} find`;
    return [n > 1 && ", ", `${who} ${text} (`, figure(`found by ${n}`, p, short(p, 3)), ")"];
  });
  return [h("b", `Found: ${best.text} with ${short(best.p, 3)}.`), " ", found, nBeams < 3 ? ". Take more beams." : "."];
}

const named = (texts) => listed(texts.map(({ text, p }) => `${text} (${short(p, 3)})`));

const listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]);

// The candidates of this round: in the order of the tree, and after the cut by their probability.
function drawTable(table, search) {
  const { round, isCut, nBeams } = search;
  const rows = !round ? [] : isCut ? round.candidates.toSorted((a, b) => b.p - a.p) : round.candidates;
  const row = ({ text, p, share, parent }, i) => {
    const isOld = round.beams.some((beam) => beam.text === text);
    const how = isOld ? "complete" : parent.text ? `${short(parent.p, 3)} · ${short(share)} =` : "";
    const state = !isCut ? "open" : i < nBeams ? "kept" : i === nBeams ? "dropped.first" : "dropped";
    return h(
      `tr.${state}`,
      h("th", { scope: "row" }, text),
      h("td", how),
      h("td", figure(text, p, short(p, 3))),
      h("td", state === "kept" && "kept"),
    );
  };
  const head = ["candidate", "", "probability", ""].map((name) => (name ? h("th", { scope: "col" }, name) : h("td")));
  table.hidden = !round;
  fill(table, h("thead", h("tr", head)), h("tbody", rows.map(row)));
}

// The tree from left to right, a column for each token. A node has the same place in all steps of a search.
function drawTree(drawing, search) {
  const levels = [[search.rounds[0].beams[0]], [], [], [], []];
  for (const { candidates } of search.rounds)
    for (const each of candidates) if (!levels[each.text.length].includes(each)) levels[each.text.length].push(each);
  for (const level of levels) level.sort((a, b) => order(a.text).localeCompare(order(b.text)));
  const height = ROW * Math.max(...levels.map((level) => level.length)) + 8;
  const width = sized(drawing, height);
  const column = (width - 52) / 4;
  const at = new Map();
  levels.forEach((level, depth) =>
    level.forEach((node, i) =>
      at.set(node.text, [26 + depth * column, height / 2 + (i - (level.length - 1) / 2) * ROW]),
    ),
  );
  const shown = levels
    .flat()
    .filter(
      ({ text }) => !text || search.grown.some(({ candidates }) => candidates.some((each) => each.text === text)),
    );
  const stateOf = (node) =>
    search.isBest(node.text)
      ? "kept.best"
      : search.isKept(node.text)
        ? "kept"
        : search.isOpen(node)
          ? "open"
          : "dropped";
  const facts = shown.slice(1).map((node) => `${node.text} ${short(node.p, 3)} ${stateOf(node).split(".")[0]}`);
  drawing.setAttribute(
    "aria-label",
    facts.length ? `The tree so far: ${facts.join(", ")}` : "The tree before the first token",
  );
  fill(
    drawing,
    shown.slice(1).map((node) => edge(node, at.get(node.parent.text), at.get(node.text), stateOf(node), width)),
    shown.map((node) => label(node, at.get(node.text), stateOf(node))),
  );
}

// Sorted as the tokens are: the dot comes last.
const order = (text) => text.replaceAll(".", "Z");

function edge({ share }, [fromX, fromY], [toX, toY], state, width) {
  const [x1, x2] = [fromX + 23, toX - 23];
  const [x, y] = [x1 + 0.76 * (x2 - x1), fromY + 0.76 * (toY - fromY)];
  return svg(
    `g.edge.${state}`,
    svg("line", { x1, y1: fromY, x2, y2: toY }),
    width > EDGE_LABELS && svg("text", { x, y: y + 4, "text-anchor": "middle" }, short(share)),
  );
}

function label({ text, p }, [x, y], state) {
  if (!text) return svg("text.name", { x, y: y + 4, "text-anchor": "middle" }, "start");
  return svg(
    `g.text.${state}`,
    svg("text.name", { x, y: y - 2, "text-anchor": "middle" }, text),
    svg("text", { x, y: y + 11, "text-anchor": "middle" }, short(p, 3)),
  );
}
