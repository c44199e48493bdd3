// A box for the text that the model reads: on the first screen, and in part 2.

import { h } from "./elements.js";
import { placeOf } from "./moves.js";

export function textBox(view, attributes) {
  const box = h("textarea", { rows: 2, spellcheck: "false", ...attributes });
  box.addEventListener("input", (event) => {
    view.typedAt = event.timeStamp;
    view.store.set({ text: box.value, at: -1 });
  });
  return { box, draw };

  function draw() {
    const { state, trace } = view;
    if (box.value !== (state.text ?? "")) {
      box.value = state.text ?? "";
      box.scrollTop = box.scrollHeight; // its end, which is what changes while the model writes
    }
    box.hidden = state.guess && trace && placeOf(view) < trace.ids.length - 1; // it would tell what comes
  }
}
