// Lesson 13: a text is written, once with a cache of keys and values and once without. What is computed for each token,
// and what is kept.

import { fill, h, svg, thousands } from "pellucid/elements.js";
import { written } from "./numbers.js";

// What the demo writes greedily, token by token; the first six are the prompt here.
const TOKENS =
  "The| old| people| still| tell| of| a| young| and| cheerful| fox| named| Hazel|.| She| lived| in| a| den| under| an| oak| with| a| little| lantern| and| a| little| lantern|.| On| a| fine| morning| when| the| larks| sang|,| Hazel| was| busy| filling| her| cellar".split(
    "|",
  );
const N_PROMPT = 6;
const N_NEW = TOKENS.length - N_PROMPT;

// V tokens, L layers, D numbers per position, H query heads, G heads of keys and values, F hidden numbers.
const MODELS = [
  { name: "the demo", V: 2048, L: 2, D: 128, H: 4, G: 4, F: 512 },
  { name: "GPT-3", V: 50_257, L: 96, D: 12_288, H: 96, G: 96, F: 49_152 },
  { name: "GPT-3, 12 queries to a key", V: 50_257, L: 96, D: 12_288, H: 96, G: 8, F: 49_152 },
];
const SIDES = { without: "without a cache", with: "with a cache" };
const COUNTS = { positions: "positions", scores: "scores of each head", products: "multiplications" };

export function cache(place) {
  const state = { model: MODELS[0], nNew: 1 };
  const choices = MODELS.map((model) => h("button", { onclick: () => set({ model }) }, model.name));
  const write = (by) =>
    h(
      "button",
      { onclick: () => set({ nNew: Math.min(N_NEW, state.nNew + by) }) },
      by > 1 ? "Write ten" : "Write a token",
    );
  const [one, ten] = [write(1), write(10)];
  one.classList.add("main");
  const again = h("button", { onclick: () => set({ nNew: 1 }) }, "Again");
  const tokens = TOKENS.map((token, i) => h(i < N_PROMPT ? "span.prompt" : "span", token));
  const said = h("p.said", { role: "status" });
  const drawings = Object.entries(SIDES).map(([side, name]) => picture(side, name));
  const { table, draw: drawTable } = counts();
  fill(
    place,
    h("p.title", "Write with a cache, and without"),
    h(
      "p.about",
      "Each row below is a token that was written. Coloured: what was computed for it. Grey: what was read from the cache.",
    ),
    h("div.buttons", one, ten, again),
    h("p.text", tokens),
    said,
    h(
      "div.triangles",
      drawings.map(({ element }) => element),
    ),
    h("div.choices", { role: "group", "aria-label": "The model" }, h("span", "Count for:"), choices),
    table,
  );
  set({});

  function set(changes) {
    Object.assign(state, changes);
    const { model, nNew } = state;
    const nText = N_PROMPT + nNew;
    choices.forEach((each, i) => each.setAttribute("aria-pressed", MODELS[i] === model));
    one.disabled = ten.disabled = nNew === N_NEW;
    again.disabled = nNew === 1;
    if (document.activeElement?.disabled) (nNew === 1 ? one : again).focus();
    tokens.forEach((each, i) => {
      each.classList.toggle("unwritten", i >= nText);
      each.classList.toggle("newest", i === nText - 1);
    });
    for (const { draw } of drawings) draw(nNew);
    drawTable(model, nNew);
    said.textContent = sentence(model, nNew);
  }
}

// The positions, counted from 1, that are computed for new token i, counted from 1; the last token has not been read.
function positionsFor(i, side) {
  const last = N_PROMPT + i - 1;
  return { first: side === "with" && i > 1 ? last : 1, last };
}

// All that is computed for new token i.
function workFor({ V, L, D, H, G, F }, i, side) {
  const { first, last } = positionsFor(i, side);
  const positions = last - first + 1;
  const scores = (positions * (first + last)) / 2; // the query at position t meets t keys
  const K = D / H;
  const matrices = L * (2 * D * H * K + 2 * D * G * K + 2 * D * F);
  // A score takes K multiplications, and so does the value that it weights. The logits are those of the newest position.
  return { positions, scores, products: positions * matrices + 2 * L * H * K * scores + V * D };
}

function workOfAll(model, nNew, side) {
  const total = { positions: 0, scores: 0, products: 0 };
  for (let i = 1; i <= nNew; i++) for (const [name, n] of Object.entries(workFor(model, i, side))) total[name] += n;
  return total;
}

const numbersKept = ({ L, D, H, G }, nNew) => 2 * L * G * (D / H) * (N_PROMPT + nNew - 1);

function sentence(model, nNew) {
  if (nNew === 1)
    return `The first new token. The prompt of ${N_PROMPT} tokens is read, with and without a cache. Now write on.`;
  const before = N_PROMPT + nNew - 2;
  const [slow, fast] = ["without", "with"].map((side) => workOfAll(model, nNew, side).products);
  return `Without a cache, ${before} positions were computed once more, with the same keys and values as before. In all, that is ${written(slow / fast, 2)} times the work.`;
}

// A row for each token that was written: its text as a line, what was computed filled.
function picture(side, name) {
  const drawing = svg("svg", { role: "img", viewBox: `0 0 ${TOKENS.length} ${N_NEW}`, preserveAspectRatio: "none" });
  const total = h("b");
  const element = h(`figure.${side}`, h("figcaption", `${name}: `, total), drawing);
  return { element, draw };

  function draw(nNew) {
    const rows = Array.from({ length: nNew }, (_, n) => positionsFor(n + 1, side));
    const n = rows.reduce((sum, { first, last }) => sum + last - first + 1, 0);
    total.textContent = `${thousands(n)} positions`;
    drawing.setAttribute("aria-label", `${name}, ${thousands(n)} positions were computed for ${nNew} new tokens`);
    fill(
      drawing,
      rows.map(({ first, last }, y) => [
        svg("rect.read", { x: 0, y, width: first - 1, height: 0.8 }),
        svg("rect.computed", { x: first - 1, y, width: last - first + 1, height: 0.8 }),
      ]),
    );
  }
}

function counts() {
  const cells = {};
  const row = (part, name, label) =>
    h(
      "tr",
      h("th", { scope: "row" }, label),
      Object.keys(SIDES).map(
        (side) => (cells[`${part} ${name} ${side}`] = h("td.figure", { "data-name": `${part} ${name} ${side}` })),
      ),
    );
  const group = (label, ...rows) => h("tbody", h("tr", h("th.group", { scope: "rowgroup", colspan: 3 }, label)), rows);
  const rowsOf = (part) => Object.entries(COUNTS).map(([name, label]) => row(part, name, label));
  const table = h(
    "table.counts",
    h(
      "thead",
      h(
        "tr",
        h("td"),
        Object.values(SIDES).map((name) => h("th", { scope: "col" }, name)),
      ),
    ),
    group("For this token", rowsOf("this")),
    group("For all new tokens", rowsOf("all")),
    group("Kept in memory", row("kept", "numbers", "keys and values"), row("kept", "bytes", "at 2 bytes each")),
  );
  return { table, draw };

  function draw(model, nNew) {
    for (const side of Object.keys(SIDES)) {
      const parts = { this: workFor(model, nNew, side), all: workOfAll(model, nNew, side) };
      for (const [part, counted] of Object.entries(parts))
        for (const [name, n] of Object.entries(counted)) setExact(cells[`${part} ${name} ${side}`], n, large(n));
      const kept = side === "with" ? numbersKept(model, nNew) : 0;
      setExact(cells[`kept numbers ${side}`], kept, large(kept));
      setExact(cells[`kept bytes ${side}`], 2 * kept, inBytes(2 * kept));
    }
  }
}

function setExact(cell, n, shown) {
  cell.dataset.value = n;
  cell.textContent = shown;
}

const SIZES = [
  [1e12, "trillion", "TB"],
  [1e9, "billion", "GB"],
  [1e6, "million", "MB"],
];

function large(n) {
  const size = SIZES.find(([least]) => n >= least);
  return size ? `${written(n / size[0], 3)} ${size[1]}` : thousands(n);
}

function inBytes(n) {
  if (n === 0) return "0";
  const [least, , unit] = SIZES.find(([least]) => n >= least) ?? [1e3, "", "kB"];
  return `${written(n / least, 3)} ${unit}`;
}
