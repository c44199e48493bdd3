// A box for the text that the model reads: in part 2, and on the first screen, where a conversation is shown as bubbles
// and the box holds the last question.

import { fill, h } from "./elements.js";
import { placeOf } from "./moves.js";

export function textBox(view, attributes, hasBubbles = () => false) {
  const box = h("textarea", { rows: 2, spellcheck: "false", ...attributes });
  const [before, answer] = [h("div.bubbles"), h("div.bubbles")];
  const element = h("div.talk", before, box, answer);
  box.addEventListener("input", (event) => {
    view.typedAt = event.timeStamp;
    view.store.set({ text: hasBubbles() ? asked(view.state.text, box.value) : box.value, at: -1 });
  });
  return { box, element, draw };

  function draw() {
    const { state, trace } = view;
    const isTalk = hasBubbles();
    const text = state.text ?? "";
    const turn = isTalk ? lastTurn(text) : { question: text };
    if (box.value !== turn.question) {
      box.value = turn.question;
      if (view.isWriting) box.scrollTop = box.scrollHeight; // its end, which is what changes
    }
    box.hidden = state.guess && trace && placeOf(view) < trace.ids.length - 1; // it would tell what comes
    element.classList.toggle("is-talk", isTalk);
    fill(before, bubbles(turn.before));
    fill(answer, !box.hidden && bubbles(turn.answer));
  }
}

// The last question in a text, which may have no marks; what is before it, and the answer so far, with their marks.
function lastTurn(text) {
  const start = Math.max(0, text.lastIndexOf("<|user|>"));
  const [question, ...answer] = text.slice(start).split(/(?:<\|end\|>)?(?=<\|assistant\|>)/);
  return { before: text.slice(0, start), question: question.replace("<|user|>", ""), answer: answer.at(-1) };
}

// A text with its last question, or another in its place, and without an answer.
export function asked(text, question = lastTurn(text).question) {
  return `${lastTurn(text).before}<|user|>${question}<|end|><|assistant|>`;
}

function bubbles(text = "") {
  const [, ...turns] = text.replaceAll("<|end|>", "").split(/<\|(user|assistant)\|>/);
  return turns.map((said, i) => (i % 2 && said ? h(`p.bubble.${turns[i - 1]}`, said) : null));
}
