// Part 7: parts of the model as switches, and what each of them is for.

import { changed, fill, goTo, h, withCode } from "./elements.js";
import { knockTable, workInWords } from "./knock_table.js";
import { headsThatLook, LOOKS } from "./moves.js";
import { waitedFor } from "./newest.js";
import { leftOut, nameOfPart, runHere, runOf } from "./store.js";

const NOT_LABELLED = "What each part is for can be measured only in a language that names its skills, such as Fables.";
const NOT_MEASURED =
  "Not measured yet. It takes some seconds, and shows how much the loss on each skill rises without each part.";

const INSTEAD = "A part that is off outputs zeros or, if you type a text here, its output for that text:";

const REST = 1000; // milliseconds, so that what one sees first comes first

const MOST_UNASKED = 5e7; // parameters times parts to knock out: the demo has 8e6

const isTraining = ({ live, state }) => live[runOf(state.checkpoint)]?.is_training;

export function knockPanel(root, view) {
  const [memory, opened, swaps] = [{}, {}, {}];
  const switches = h("div.switches");
  const all = h("button", { id: "all-on", onclick: () => view.store.set({ off: "" }) }, "Switch all on");
  const measure = h("button.main", { id: "measure", onclick: ask }, "Measure all parts on held-out texts");
  const result = h("div.table-frame", { tabindex: -1 });
  const note = h("p.muted.small", { role: "status" }, NOT_MEASURED);
  const instead = h("input", {
    id: "instead",
    type: "text",
    placeholder: "another text with as many tokens",
    onchange: () => view.store.set({ instead: instead.value }),
  });
  const patch = h("p.row.patch", h("label", { for: "instead" }, INSTEAD), instead);
  patch.hidden = !view.source.canPatch;
  const swap = h("p.row.swap", { hidden: true });
  const work = h("div.work", { hidden: true });
  root.append(swap, switches, patch, h("div.row", measure, note), work, result);
  return { draw };

  function draw() {
    const { trace, state, table, source } = view;
    if (source.isMeasured && changed(opened, state.checkpoint)) ask();
    if (!source.isMeasured && !opened.asked && isQuick() && runHere(view)?.knows_truth && !isTraining(view)) {
      opened.asked = true; // once: for other checkpoints there is the button
      setTimeout(askStill, REST);
    }
    drawSwap();
    if (document.activeElement !== instead) instead.value = state.instead;
    if (!trace || !changed(memory, trace.attention.shape.slice(0, 2).join(), state.off, state.checkpoint, table))
      return;
    const [n_layers, n_heads] = trace.attention.shape;
    const off = new Set(state.off.split(" ").filter(Boolean));
    const focus = document.activeElement?.dataset?.part;
    const ofLayer = (_, layer) => {
      const [name, heads] = [`layer ${layer}`, Array.from({ length: n_heads }, (_, head) => `${layer}.${head}`)];
      const toggles = [...heads, `a${layer}`, `f${layer}`].map((part) => toggle(part, off));
      return h("div.layer", { role: "group", "aria-label": name }, h("span.muted", name), toggles);
    };
    fill(switches, Array.from({ length: n_layers }, ofLayer), all);
    all.disabled = !off.size;
    drawTable(off);
    if (focus) root.querySelector(`[data-part="${focus}"]`)?.focus();
  }

  // Whether the measurement takes seconds, so that it needs no asking for.
  function isQuick() {
    const { trace, model } = view;
    if (!trace || !model) return false;
    const [n_layers, n_heads] = trace.attention.shape;
    return model.n_parameters * n_layers * (n_heads + 2) <= MOST_UNASKED;
  }

  // A patch by one button: the head that looks at the words that decide gets what it gave for another hero.
  function drawSwap() {
    const { trace, state, deciding, source, look } = view;
    if (!trace || !changed(swaps, trace, deciding, state.instead, state.off, state.at, look)) return;
    const isOfThis = source.canPatch && deciding?.text === state.text && trace.text === state.text && deciding.swap;
    const isDone = isOfThis && state.off && state.instead === deciding.swap.text;
    const [[share, head] = [0]] = isOfThis && !isDone ? headsThatLook(view) : [];
    swap.hidden = !isDone && share < LOOKS;
    if (swap.hidden) return;
    const { from, to, text } = deciding.swap;
    const set = (changes) => () => {
      view.store.set(changes);
      goTo(document.getElementById("part-next"));
    };
    const swapping = { id: "swap", onclick: set({ off: head, instead: text }) };
    const button = isDone
      ? h("button", { id: "swap-back", onclick: set({ off: "", instead: "" }) }, `Put ${from} back`)
      : h("button.main", swapping, `Put ${to} in ${from}'s place`);
    const says = `The model goes on reading about ${from}. Only head ${isDone ? state.off : head}, which looks at what decides here, outputs what it does for ${to}. Part 5 shows what follows.`;
    fill(swap, button, h("span.muted", says));
  }

  function toggle(part, off) {
    const flip = () => {
      const parts = new Set(off);
      if (!parts.delete(part)) parts.add(part);
      view.store.set({ off: [...parts].sort().join(" ") });
    };
    const attributes = { role: "switch", "aria-checked": String(!off.has(part)), "data-part": part, onclick: flip };
    return h("button.switch", attributes, h("span.lamp", { "aria-hidden": "true" }), nameOfPart(part));
  }

  // Another kind of model may be shown by now; then the page asks when one with heads is back.
  function askStill() {
    if (leftOut(view, view.state.checkpoint)) opened.asked = false;
    else ask();
  }

  async function ask() {
    const { checkpoint } = view.state;
    measure.disabled = true;
    note.textContent = "Reading held-out texts without each part in turn; this takes a few seconds …";
    try {
      view.table = { ...(await waitedFor(view.source.knockOutTable({ checkpoint }))), checkpoint };
      note.textContent = "";
      view.draw();
    } catch (error) {
      fill(note, withCode(error.message));
    }
    measure.disabled = false;
  }

  function drawTable(off) {
    const { table, state } = view;
    const isOfThis = table?.checkpoint === state.checkpoint;
    work.hidden = !isOfThis;
    const isLabelled = runHere(view)?.knows_truth;
    measure.hidden = isOfThis || !isLabelled;
    if (!isLabelled) note.textContent = NOT_LABELLED;
    else if (!isOfThis && !measure.disabled) note.textContent = NOT_MEASURED;
    fill(work, isOfThis && workInWords(table, see));
    fill(result, isOfThis && knockTable(table, (part) => toggle(part, off)));
  }

  function see(head) {
    view.store.set({ head });
    goTo(document.getElementById("part-attention"));
  }
}
