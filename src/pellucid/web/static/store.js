// What the page shows is one flat state, kept in its address: a link opens the same view.

import { thousands } from "./elements.js";

// Each key with its value when nothing is said. The kind of that value is the kind that the address is read as.
export const DEFAULTS = {
  checkpoint: "", // RUN@STEP; empty: the best
  curve: "", // the measure that part 1 shows; empty: the most telling one of the run
  other: "", // the checkpoint B of part 8, or "none"; empty: the page chooses one
  text: null, // none: the first example
  at: -1, // the token looked from; -1: the last
  head: "", // layer.head; empty: the one that looks at the words that decide, or the first
  point: -1, // of the logit lens; -1: the last
  off: "", // switched-off parts: "1.3 f0" is head 3 of layer 1 and feed-forward layer 0
  instead: "", // a text: parts that are off give what they gave for it; empty: they give nothing
  temperature: 1,
  top_k: 0, // 0: all tokens
  top_p: 1,
  guess: false,
  inside: false,
  tour: "", // the name of the one that is played
  stop: 1, // of the tour
  part: "", // of the page, to which a copied link leads; there, the address forgets it
  large: false,
  theme: "auto",
};

export const MOST_CHARACTERS = 15_000; // of a text: more than a context holds, and no more than the server takes

const PARTS = String.raw`(\d+\.\d+|[af]\d+)`;
const from = (least) => (number) => Number.isInteger(number) && number >= least;
const form = (pattern) => (text) => new RegExp(`^(${pattern})?$`).test(text);
// What the address may say, where not every value of its kind has a meaning.
const HAS_MEANING = {
  at: from(-1),
  head: form(String.raw`\d+\.\d+`),
  point: from(-1),
  off: form(`${PARTS}( ${PARTS})*`),
  temperature: (value) => value >= 0 && value <= 2,
  top_k: from(0),
  top_p: (value) => value > 0 && value <= 1,
  stop: from(1),
  part: form("machine|run|text|attention|lens|next|inside|knock|compare"),
  theme: form("auto|light|dark"),
};

export function makeStore() {
  let dropped = []; // parts of the address without a meaning, as "off=zz"
  let state = fromAddress();
  const listeners = [];
  let writing = 0;
  let address = location.hash; // as it was read or written last

  addEventListener("hashchange", () => {
    address = location.hash;
    dropped = [];
    if (toAddress(state) !== address) change(fromAddress());
  });

  // `isFarther`: the browser's Back leads to what is shown until now.
  function change(changes, isFarther = false) {
    const before = state;
    state = { ...state, ...changes };
    for (const key of ["text", "instead"]) state[key] = state[key] && beginningOf(state[key]);
    if (Object.keys(state).every((key) => state[key] === before[key])) return;
    clearTimeout(writing); // a slider changes the state more often than a browser lets its address be changed
    if (isFarther) {
      write(before);
      history.pushState(null, "", toAddress(state) || "#");
      address = location.hash;
    } else writing = setTimeout(() => write(state), 400);
    listeners.forEach((listener) => listener(state, before));
  }

  function write(state) {
    if (location.hash !== address) return; // the reader goes elsewhere, and the event that says so is on its way
    history.replaceState(null, "", toAddress(state) || "#");
    address = location.hash;
  }

  function fromAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    const read = { number: Number, boolean: (text) => text === "true", string: beginningOf, object: beginningOf };
    const state = { ...DEFAULTS };
    dropped = [];
    for (const [key, value] of Object.entries(DEFAULTS)) {
      if (!said.has(key)) continue;
      const given = read[typeof value](said.get(key));
      if (Number.isNaN(given) || HAS_MEANING[key]?.(given) === false)
        dropped.push(`${key}=${said.get(key).slice(0, 40)}`);
      else state[key] = given;
    }
    return state;
  }

  return {
    get: () => state,
    dropped: () => dropped,
    linkTo: (part) => new URL(toAddress({ ...state, part }), location.href).href,
    set: (changes) => change(changes),
    goTo: (changes) => change(changes, true),
    onChange: (listener) => listeners.push(listener),
  };
}

// As much of a text as the page sends, without half of a character at its end.
function beginningOf(text) {
  return text.slice(0, MOST_CHARACTERS).replace(/[\ud800-\udbff]$/, "");
}

function toAddress(state) {
  const said = Object.entries(state).filter(([key, value]) => value !== DEFAULTS[key]);
  return said.length ? `#${new URLSearchParams(said)}` : "";
}

// A checkpoint is named RUN@STEP.
export function runOf(checkpoint) {
  return checkpoint.slice(0, checkpoint.lastIndexOf("@"));
}

export function isThere({ runs }, checkpoint) {
  return runs.some(({ checkpoints }) => checkpoints.some(({ id }) => id === checkpoint));
}

// What of a checkpoint's run the page leaves out, and why: null, or {parts: [name], why}.
export function leftOut({ runs }, checkpoint) {
  return runs.find(({ name }) => name === runOf(checkpoint))?.left_out ?? null;
}

// The run of the checkpoint that is shown.
export function runHere({ runs, state }) {
  return runs.find(({ name }) => name === runOf(state.checkpoint));
}

export const mostRead = ({ context_length }) => `The model reads ${thousands(context_length)} tokens at most.`;

export function stepOf(checkpoint) {
  return Number(checkpoint.slice(checkpoint.lastIndexOf("@") + 1));
}

// "1.3 f0" as the server wants it: [["head", 1, 3], ["feed_forward", 0]].
export function partsOff(off) {
  return off.split(" ").filter(Boolean).map(placeOfPart);
}

const SUBLAYERS = { a: "attention", f: "feed_forward" };

function placeOfPart(part) {
  if (part[0] in SUBLAYERS) return [SUBLAYERS[part[0]], Number(part.slice(1))];
  return ["head", ...part.split(".").map(Number)];
}

// The other way round: the short name of a place.
export function partOfPlace([kind, ...numbers]) {
  return kind === "head" ? numbers.join(".") : kind[0] + numbers[0];
}

// The short name in words.
export function nameOfPart(part) {
  if (part[0] in SUBLAYERS) return `${SUBLAYERS[part[0]].replace("_", "-")} ${part.slice(1)}`;
  return `head ${part}`;
}
