// Lesson 15: an all-reduce in a ring, round by round. A letter says whose numbers are in a chunk.

import { figure, fill, h } from "pellucid/elements.js";
import { short } from "./numbers.js";

const SIZES = [2, 3, 4, 6];

export function ring(place) {
  const state = { n: 4, at: 0 }; // devices, and rounds that are over
  const choices = SIZES.map((n) => h("button", { onclick: () => set({ n, at: 0 }) }, `${n} devices`));
  const question = h("p.question");
  const guesses = h("div.choices", { role: "group", "aria-label": "The chunk that it hands on" });
  const verdict = h("p.verdict", { role: "status" });
  const said = h("p.said", { role: "status" });
  const table = h("table.chunks");
  const facts = h("p.sum");
  const forward = h("button.main", { onclick: () => set({ at: state.at + 1 }) }, "Next round");
  const back = h("button", { onclick: () => set({ at: state.at - 1 }) }, "Step back");
  const again = h("button", { onclick: () => set({ at: 0 }) }, "Again");
  fill(
    place,
    h("p.title", "All-reduce in a ring"),
    h("p.about", "Each device hands one chunk to the next, and the last one to device 0. Say which, before it goes."),
    h("div.choices", { role: "group", "aria-label": "How many devices" }, choices),
    question,
    guesses,
    verdict,
    h("div.buttons", forward, back, again),
    said,
    h("div.scroll", { tabindex: 0, role: "region", "aria-label": "What each device has" }, table),
    facts,
  );
  set({});

  function set(changes, praise = "") {
    Object.assign(state, changes);
    const { n, at } = state;
    const isOver = at === 2 * (n - 1);
    choices.forEach((each, i) => each.setAttribute("aria-pressed", SIZES[i] === n));
    forward.disabled = isOver;
    back.disabled = again.disabled = at === 0;
    if (document.activeElement?.disabled || (isOver && guesses.contains(document.activeElement)))
      (isOver ? again : forward).focus();
    const asked = at % n;
    question.hidden = guesses.hidden = isOver;
    fill(question, h("b", `Which chunk does device ${asked} hand on now?`));
    drawGuesses();
    verdict.dataset.kind = "right";
    fill(verdict, praise);
    fill(said, sentence(state));
    drawTable(table, state);
    fill(facts, sums(state));
  }

  // The buttons stay, so that the keyboard stays where it is.
  function drawGuesses() {
    if (guesses.children.length === state.n) return;
    fill(
      guesses,
      Array.from({ length: state.n }, (_, chunk) => h("button", { onclick: () => guess(chunk) }, `chunk ${chunk}`)),
    );
  }

  function guess(chunk) {
    const { n, at } = state;
    const [device, right] = [at % n, sentChunk(n, at, at % n)];
    if (chunk === right) {
      set({ at: at + 1 }, `Right: device ${device} hands on chunk ${right}.`);
      return;
    }
    verdict.dataset.kind = "wrong";
    fill(verdict, at ? `Not ${chunk}. Which chunk has just arrived at device ${device}?` : first(chunk));
  }
}

const first = (chunk) => `Not ${chunk}. At the start, each device hands on the chunk of its own number.`;

// The chunk that a device hands on in a round, both counted from 0. The second half goes on where the first has ended.
const sentChunk = (n, round, device) => (device - round + 2 * n) % n;

const isAdding = (n, round) => round < n - 1;

// After so many rounds: for each device and chunk, the devices whose numbers are in it, and whether it has just come.
function heldAfter({ n, at }) {
  const all = Array.from({ length: n }, (_, i) => i);
  let held = all.map((device) => all.map(() => ({ of: [device], isNew: false })));
  for (let round = 0; round < at; round++) {
    const before = held;
    held = before.map((chunks) => chunks.map(({ of }) => ({ of, isNew: false })));
    for (const device of all) {
      const [from, chunk] = [(device + n - 1) % n, sentChunk(n, round, (device + n - 1) % n)];
      const arrived = before[from][chunk].of;
      const of = isAdding(n, round) ? [...before[device][chunk].of, ...arrived] : arrived;
      held[device][chunk] = { of: of.toSorted((a, b) => a - b), isNew: true };
    }
  }
  return held;
}

const letters = (devices) => devices.map((device) => "ABCDEF"[device]).join("");

function sentence({ n, at }) {
  if (at === 0) return `Nothing was sent yet: each device has ${n} chunks of its own numbers.`;
  const how = isAdding(n, at - 1) ? "What arrived was added." : "What arrived was kept.";
  const then =
    at === n - 1
      ? " Now each chunk is complete on one device. Only complete chunks travel from here on."
      : at === 2 * (n - 1)
        ? " All devices have all sums."
        : "";
  return `Round ${at} of ${2 * (n - 1)}. ${how}${then}`;
}

function drawTable(table, state) {
  const { n } = state;
  const head = Array.from({ length: n }, (_, chunk) => h("th", { scope: "col" }, `chunk ${chunk}`));
  const rows = heldAfter(state).map((chunks, device) =>
    h(
      "tr",
      h("th", { scope: "row" }, `device ${device} (${letters([device])})`),
      chunks.map(({ of, isNew }, chunk) =>
        h(
          `td${isNew ? ".new" : ""}${of.length === n ? ".whole" : ""}`,
          figure(`device ${device}, chunk ${chunk}`, of.length, letters(of)),
        ),
      ),
    ),
  );
  fill(table, h("thead", h("tr", h("td"), head)), h("tbody", rows));
}

function sums({ n, at }) {
  return [
    "Each device has sent ",
    figure("sent", at / n, short(at / n)),
    " times its data; in the end it is ",
    figure("sent in the end", (2 * (n - 1)) / n, short((2 * (n - 1)) / n)),
    ". If all went through device 0, ",
    figure("through device 0", 2 * (n - 1), short(2 * (n - 1))),
    " times the data would pass its wire.",
  ];
}
