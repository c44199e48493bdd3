// What changes how a token is chosen: a slider for each, in part 5, and for the temperature on the first screen too.

import { fixed, h } from "./elements.js";

export const SLIDERS = [
  { key: "temperature", name: "Temperature", min: 0, max: 2, step: 0.05 },
  { key: "top_k", name: "Top-k", min: 0, max: 50, step: 1 },
  { key: "top_p", name: "Top-p", min: 0.05, max: 1, step: 0.05 },
];
const SAYS = {
  temperature: (v) => (v === 0 ? "0: always the likeliest" : v === 1 ? "1: unchanged" : fixed(v)),
  top_k: (v) => (v === 0 ? "all tokens" : `the ${v} likeliest`),
  top_p: (v) => (v >= 1 ? "all of the probability" : `the first ${fixed(100 * v, 0)}%`),
};

// `place`: where it stands, if it is not in part 5.
export function slider(view, { key, name, min, max, step }, place = "slider") {
  const id = `${place}-${key}`;
  const shown = h("output", { for: id });
  const oninput = () => view.store.set({ [key]: Number(input.value) });
  const input = h("input", { type: "range", id, min, max, step, oninput });
  return { element: h("div.slider", h("label", { for: id }, name), input, shown), draw };

  function draw() {
    const [value, says] = [view.state[key], SAYS[key](view.state[key])];
    if (Number(input.value) !== value) input.value = value;
    shown.textContent = says;
    input.setAttribute("aria-valuetext", says);
  }
}
