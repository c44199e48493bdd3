// What the page draws: the curves, a document with the model's guesses beside the truth, where a head looks, the skills.

import { fill, fixed, h, percent, svg } from "./elements.js";

const [LEAST_WIDTH, HEIGHT] = [320, 250];
const FRAME = { left: 52, right: 14, top: 16, bottom: 30 };
const N_GUESSES = 6;
const NAMES = ["model", "rival"]; // of the colours of style.css

// The held-out loss of each model by updates, and the dashed floor that none can pass.
export function drawCurves(chart, runs, { floor, byFrequency, isPredicted, steps }) {
  const width = Math.max(LEAST_WIDTH, chart.clientWidth);
  const highest = Math.max(
    byFrequency,
    ...runs.flatMap(({ held }) => held.map(([, loss]) => Math.min(loss, 2 * byFrequency))),
  );
  const lowest = floor - 0.12 * (highest - floor);
  const x = (step) => FRAME.left + (step / steps) * (width - FRAME.left - FRAME.right);
  const y = (loss) =>
    FRAME.top + ((highest - Math.min(loss, highest)) / (highest - lowest)) * (HEIGHT - FRAME.top - FRAME.bottom);
  const level = (name, loss, label, below = 0) => [
    svg(`line.${name}`, { x1: FRAME.left, x2: width - FRAME.right, y1: y(loss), y2: y(loss) }),
    svg(
      "text",
      { x: width - FRAME.right, y: y(loss) - 5 + below, "text-anchor": "end" },
      `${label}: ${fixed(loss, 3)}`,
    ),
  ];
  chart.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  fill(
    chart,
    svg("text", { x: FRAME.left + 8, y: FRAME.top + 10 }, "loss on new texts, in nats per token"),
    svg("text", { x: width - FRAME.right, y: HEIGHT - 6, "text-anchor": "end" }, `${steps} updates`),
    svg("text", { x: FRAME.left, y: HEIGHT - 6, "text-anchor": "middle" }, "0"),
    svg("text", { x: FRAME.left - 6, y: y(highest) + 10, "text-anchor": "end" }, fixed(highest, 1)),
    level("grid", byFrequency, "who knows only how often each token occurs"),
    isPredicted && level("floor", floor, "the floor: no model can do better", 19),
    runs.map(({ held }, index) => [
      held.length > 1 &&
        svg(`path.${NAMES[index]}`, {
          d: `M${held.map(([step, loss]) => `${x(step).toFixed(1)} ${y(loss).toFixed(1)}`).join("L")}`,
        }),
      held.map(([step, loss]) => svg(`circle.${NAMES[index]}`, { cx: x(step), cy: y(loss), r: 3 })),
    ]),
  );
}

// The tokens of a document as buttons, and below them the guesses for the one after the chosen token.
export function drawDocument(element, language, { document, p, place, choose }) {
  const ids = tokensOf(language, document);
  const truth = language.truth[document];
  const shown = place ?? 0;
  const guesses =
    p && likeliest(p.subarray(shown * language.vocab_size, (shown + 1) * language.vocab_size), truth[shown], language);
  fill(
    element,
    h(
      "p.tokens",
      ids.map((id, t) =>
        h(
          "button.token",
          { "aria-pressed": t === shown, title: t ? `token ${t}` : "before the text", onclick: () => choose(t) },
          t ? language.symbols[id] : "▸",
        ),
      ),
    ),
    guesses &&
      h(
        "table.guesses",
        h(
          "caption",
          shown
            ? `What comes after “${textOf(language, ids.slice(Math.max(1, shown - 7), shown + 1))}”?`
            : "What comes first?",
        ),
        h("thead", h("tr", ...["token", "model", "truth"].map((name) => h("th", { scope: "col" }, name)))),
        h(
          "tbody",
          guesses.map(([id, model, true_]) =>
            h(
              "tr",
              h("th", { scope: "row" }, nameOf(language, id)),
              h("td", share("model", model)),
              h("td", share("truth", true_)),
            ),
          ),
        ),
      ),
  );
}

function likeliest(p_V, truth, language) {
  const known = Object.keys(language.symbols).map((id) => [Number(id), p_V[id], truth[id] ?? 0]);
  known.sort((a, b) => Math.max(b[1], b[2]) - Math.max(a[1], a[2]));
  const shown = known.slice(0, N_GUESSES);
  const rest = (column) => Math.max(0, 1 - shown.reduce((sum, row) => sum + row[column], 0));
  return [...shown, [null, rest(1), rest(2)]];
}

const share = (name, p) => [
  h("span.track", h(`span.bar.${name}`, { style: { width: `${100 * p}%` } })),
  h("span.number", percent(p)),
];

export function textOf(language, ids) {
  return ids
    .map((id) => language.symbols[id] ?? "�")
    .join("")
    .trim();
}

function nameOf(language, id) {
  if (id === null) return "(all others)";
  return id === language.end_of_text ? "(the end)" : language.symbols[id].trim();
}

export function tokensOf(language, document) {
  const { ids, lengths, length_of_row: n } = language.held_out;
  return [...ids.subarray(document * n, document * n + lengths[document] - 1)];
}

// Where a head looks: each row is a token, each column a token that it looks back at; dark is much.
export function drawMap(canvas, language, { document, attention, heads, T, head, place }) {
  const n = tokensOf(language, document).length;
  const map = attention[Math.floor(head / heads)];
  const offset = (head % heads) * T * T;
  const style = getComputedStyle(canvas);
  const [ink, paper, accent] = ["--share-end", "--paper-cell", "--accent"].map((name) => style.getPropertyValue(name));
  const cell = Math.max(4, Math.floor(300 / n));
  canvas.width = canvas.height = n * cell;
  const context = canvas.getContext("2d");
  context.fillStyle = paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  for (let t = 0; t < n; t++)
    for (let s = 0; s <= t; s++) {
      context.globalAlpha = Math.sqrt(map[offset + t * T + s]);
      context.fillStyle = ink;
      context.fillRect(s * cell, t * cell, cell - 1, cell - 1);
    }
  context.globalAlpha = 1;
  context.strokeStyle = accent;
  context.strokeRect(0.5, (place ?? 0) * cell + 0.5, ((place ?? 0) + 1) * cell - 1, cell - 1);
}

// Where each skill stands between a reader who knows only how often each token occurs, and the best one.
export function drawSkills(element, language, bySkill) {
  const rows = language.skills.map((name, i) => ({ name, ...bySkill[i], guessing: language.skills_by_frequency[i] }));
  fill(
    element,
    h("caption", "What it has learned, from knowing how often each token occurs (0 %) to the best possible (100 %)"),
    h(
      "tbody",
      rows
        .filter(({ tokens }) => tokens)
        .map(({ name, nats, floor, tokens, guessing }) => {
          const learned = Math.min(1, Math.max(0, (guessing - nats / tokens) / (guessing - floor / tokens)));
          return h(
            "tr",
            { class: learned > 0.95 ? "learned" : null },
            h("th", { scope: "row" }, name),
            h("td", share("model", learned)),
          );
        }),
    ),
  );
}
