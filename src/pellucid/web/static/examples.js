// Texts to start from: one for each skill that it takes to go on, and held-out ones.

import { changed, fill, h } from "./elements.js";
import { runHere } from "./store.js";

export const SKILLS = {
  choice: "a free choice",
  recall: "a name or thing said before",
  fact: "a fact about an animal",
  agreement: "agreement (he or she)",
  count: "counting",
  moral: "the moral",
  spelling: "spelling",
  instruction: "what was asked",
};

export function examplesOf(view) {
  const memory = {};
  const element = h("div.chips", { role: "group", "aria-label": "Examples" });
  let number = 0; // of the held-out text that was shown last
  return { element, draw };

  function draw() {
    if (!changed(memory, view.examples, runHere(view))) return;
    const run = runHere(view);
    const heldOut = `a held-out ${run?.has_chat ? "conversation" : run?.writes}`;
    const chip = ({ skill, text }) => h("button.chip", { title: text, onclick: () => use(text) }, nameOf(skill, text));
    const other = view.source.canType && h("button.chip", { id: "held-out", onclick: next }, heldOut);
    fill(element, h("span.muted", "Start from:"), (view.examples ?? []).map(chip), other);
  }

  function use(text) {
    view.store.goTo({ text, at: -1 });
  }

  async function next() {
    number += 1;
    const before = view.state.text;
    try {
      const { text } = await view.source.fable({ checkpoint: view.state.checkpoint, number });
      if (view.state.text === before) use(text); // nobody has typed meanwhile
    } catch ({ message }) {
      number = 0; // all have been shown: the next one is the first again
      view.said = { why: message, text: before };
      view.draw();
    }
  }
}

function nameOf(skill, text) {
  const words = text.replace(/<\|\w+\|>/g, "").slice(0, 26);
  return SKILLS[skill] ?? skill ?? `${words.replace(/\s\S*$/, "")} …`;
}
