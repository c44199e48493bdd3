// How tokens are shown.

import { h } from "./elements.js";

// The token at a place of the text.
export function nameAt({ trace, model }, place) {
  return place ? visible(model.texts[trace.ids[place]]) : "start";
}

export const GAP = "▢"; // in place of a hidden token

// A character may be spread over several tokens, so it is their bytes that are joined. Of the marks in a conversation,
// which have none, it is their names, as they can be typed.
export function textOf({ bytes: hex, texts, has_chat }, ids) {
  const named = (id) => (has_chat ? [...new TextEncoder().encode(texts[id])] : []);
  const bytes = ids.flatMap((id) => (hex[id] ? hex[id].split(" ").map((byte) => parseInt(byte, 16)) : named(id)));
  return new TextDecoder().decode(Uint8Array.from(bytes));
}

// On a picture of n rows, the frame of the one that is looked from.
export const rowMark = (place, n) => h("div.cross", { style: { "--row": place / n, "--size": 1 / n } });

// A token in one line: marks for blanks and line ends.
export function visible(text) {
  if (text === "<|endoftext|>") return "⟨end⟩";
  return text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
}

// The same in HTML, where the marks are fainter than the letters; nothing of a token is lost at the end of a line.
export function piece(text) {
  if (text === "<|endoftext|>") return "⟨end⟩";
  return text.split(/([ \n\t]+)/).map((part) => (/[ \n\t]/.test(part) ? h("i.blank", visible(part)) : part));
}

// For each token, whether the model has learned to predict it: all but the first or, in a conversation, those of the
// answers and their ends.
function isLearned(model, ids) {
  if (!model.has_chat) return ids.map((_, place) => place > 0);
  const [begins, ends] = ["<|assistant|>", "<|end|>"].map((mark) => model.texts.indexOf(mark));
  let isAnswer = false;
  return ids.map((id) => {
    const wasAnswer = isAnswer;
    isAnswer = id === begins || (isAnswer && id !== ends);
    return wasAnswer;
  });
}

// How much each token surprised the model; null where it did not learn to predict it.
export function surprises(model, { ids, surprise }) {
  return isLearned(model, ids).map((learned, place) => (learned ? surprise.values[place - 1] : null));
}
