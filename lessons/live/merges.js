// Lesson 6: byte pairs, merge by merge, in a text of the reader's own. Before each merge the reader says which pair it is.

import { figure, fill, h } from "pellucid/elements.js";

const TEXTS = ["abracadabra", "the fox saw the frog and the frog saw the other fox", "no no no no no pun pup put"];
const MOST = 200; // characters of a text
const SHOWN = 6; // pairs to choose from
// The words of GPT-2, for letters and digits of every script.
const WORD = /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

// Token i < 256 is the byte BYTES[i]; as in GPT-2, those that print as a visible character come first.
const isVisible = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
const ALL = [...Array(256).keys()];
const BYTES = [...ALL.filter(isVisible), ...ALL.filter((byte) => !isVisible(byte))];
const ID = new Map(BYTES.map((byte, id) => [byte, id]));

export function merges(place) {
  const state = { text: TEXTS[0], at: 0, verdict: "" };
  const typed = h("input", { maxlength: MOST, autocomplete: "off", spellcheck: "false", oninput: changeText });
  const choices = TEXTS.map((text) => h("button", { onclick: () => restart(text) }, text.slice(0, 11)));
  const tokens = h("p.tokens");
  const question = h("p.question");
  const pairs = h("div.choices", { role: "group", "aria-label": "Which pair is merged next?" });
  const said = h("p.said", { role: "status" });
  const counts = h("p.counted");
  const learned = h("ol.merges");
  const forward = h("button.main", { onclick: () => go(1) }, "Forward");
  const back = h("button", { onclick: () => go(-1) }, "Step back");
  const again = h("button", { onclick: () => go(-state.at) }, "Again");
  fill(
    place,
    h("p.title", "Merge by merge"),
    h("div.choices", { role: "group", "aria-label": "The text" }, choices),
    h("div.ask", h("label", "Your own text: ", typed)),
    tokens,
    counts,
    question,
    pairs,
    said,
    h("div.buttons", forward, back, again),
    learned,
  );
  draw();

  function changeText() {
    Object.assign(state, { text: typed.value, at: 0, verdict: "" });
    draw();
  }

  function restart(text) {
    typed.value = "";
    Object.assign(state, { text, at: 0, verdict: "" });
    draw();
  }

  function go(by) {
    Object.assign(state, { at: state.at + by, verdict: "" });
    draw();
    if (document.activeElement === document.body || document.activeElement.disabled)
      (forward.disabled ? again : forward).focus();
  }

  function guess(pair, now) {
    const { best } = now;
    if (pair.key === best.key) {
      const tied = now.ranked.filter(({ n, key }) => n === best.n && key !== best.key);
      const why = tied.length ? `; ${tied[0].name} does, too, but its ids are larger` : "";
      state.verdict = `Right: ${best.name} comes ${times(best.n)}${why}.`;
      state.at += 1;
      draw();
      (pairs.querySelector("button") ?? again).focus();
    } else if (pair.n < best.n) {
      fill(said, `Not ${pair.name}: it comes ${times(pair.n)}, and another pair comes more often.`);
    } else {
      fill(said, `${pair.name} comes ${times(pair.n)}. So does another pair, and its ids are smaller.`);
    }
  }

  function draw() {
    const now = learn(state.text, state.at);
    state.at = now.merged.length;
    choices.forEach((each, i) => each.setAttribute("aria-pressed", TEXTS[i] === state.text));
    place.dataset.ids = JSON.stringify(now.words.flat());
    place.dataset.merges = JSON.stringify(now.merged.map(({ pair }) => pair));
    const shown = now.words.map((word) =>
      h(
        "span.word",
        word.map((id) => h(id < 256 ? "span.token" : "span.token.merged", now.spell(id))),
      ),
    );
    fill(tokens, shown);
    const nTokens = now.words.flat().length;
    const nBytes = new TextEncoder().encode(state.text).length;
    fill(counts, figure("tokens", nTokens, String(nTokens)), ` tokens for ${nBytes} bytes; the vocabulary has `);
    counts.append(figure("vocabulary", 256 + state.at, String(256 + state.at)), " tokens.");
    question.textContent = now.best
      ? "Which pair is merged next?"
      : "No pair comes twice any more, so this is the end.";
    fill(pairs, now.best && inText(now).map((pair) => h("button", { onclick: () => guess(pair, now) }, pair.name)));
    fill(said, state.verdict);
    forward.disabled = !now.best;
    back.disabled = again.disabled = state.at === 0;
    fill(
      learned,
      now.merged.map(({ name, n }) => h("li", `${name} (${n})`)),
    );
  }
}

const times = (n) => (n === 1 ? "once" : `${n} times`);

// The pairs to choose from: those that come most often, in the order in which the text has them.
function inText({ ranked, words }) {
  const keys = [...new Set(words.flatMap(pairsOf).map(String))];
  return ranked.slice(0, SHOWN).sort((a, b) => keys.indexOf(a.key) - keys.indexOf(b.key));
}

// A text after so many merges, or fewer if there are no more: its words as ids, and all pairs by their rank.
function learn(text, nMerges) {
  const spelled = BYTES.map((byte) => [byte]);
  const spell = (id) => shown(spelled[id]);
  let words = (text.match(WORD) ?? []).map((word) => [...new TextEncoder().encode(word)].map((byte) => ID.get(byte)));
  const merged = [];
  for (;;) {
    const ranked = count(words).map((each) => ({ ...each, name: each.pair.map(spell).join("+") }));
    const best = ranked[0]?.n > 1 ? ranked[0] : undefined;
    if (!best || merged.length === nMerges) return { words, merged, ranked, best, spell };
    spelled.push(best.pair.flatMap((id) => spelled[id]));
    words = words.map((word) => merge(word, best.pair, 256 + merged.length));
    merged.push(best);
  }
}

const pairsOf = (word) => word.slice(1).map((id, i) => [word[i], id]);

// Most often first; of equally frequent ones, the smallest ids.
function count(words) {
  const found = new Map();
  for (const pair of words.flatMap(pairsOf)) {
    const key = String(pair);
    if (!found.has(key)) found.set(key, { key, pair, n: 0 });
    found.get(key).n += 1;
  }
  return [...found.values()].sort((a, b) => b.n - a.n || a.pair[0] - b.pair[0] || a.pair[1] - b.pair[1]);
}

function merge(word, [left, right], id) {
  const result = [];
  for (let i = 0; i < word.length; i++) {
    const isPair = word[i] === left && word[i + 1] === right;
    result.push(isPair ? id : word[i]);
    if (isPair) i += 1;
  }
  return result;
}

// Bytes as a text; a part of a character as its bytes.
function shown(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes));
    return text.replaceAll(" ", "␣").replaceAll("\n", "⏎");
  } catch {
    return bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  }
}
