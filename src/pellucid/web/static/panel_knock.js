// Part 7: parts of the model as switches, and what each of them is for.

import { changed, h } from "./elements.js";

export function knockPanel(root, view) {
  const memory = {};
  const switches = h("div", { class: "switches" });
  const all = h("button", { type: "button", id: "all-on", onclick: () => view.store.set({ off: "" }) }, "Switch all on");
  const measure = h("button", { type: "button", id: "measure", class: "main", onclick: ask }, "Measure each part on held-out fables");
  const result = h("div", { class: "table-frame" });
  const note = h("p", { class: "muted small", role: "status" });
  root.append(switches, h("div", { class: "row" }, measure, note), result);
  return { draw };

  function draw() {
    const { trace, state, table, heads } = view;
    if (!trace || !changed(memory, trace.attention.shape.slice(0, 2).join(), state.off, state.checkpoint, table, heads)) return;
    const [n_layers, n_heads] = trace.attention.shape;
    const off = new Set(state.off.split(" ").filter(Boolean));
    const focus = document.activeElement?.dataset?.part;
    switches.replaceChildren(
      ...Array.from({ length: n_layers }, (_, layer) =>
        h("div", { class: "layer" }, h("span", { class: "muted" }, `layer ${layer}`), Array.from({ length: n_heads }, (_, head) => toggle(`${layer}.${head}`, `head ${layer}.${head}`, off)), toggle(`f${layer}`, "feed-forward", off)),
      ),
      all,
    );
    all.disabled = !off.size;
    if (focus) switches.querySelector(`[data-part="${focus}"]`)?.focus();
    drawTable(off);
  }

  function toggle(part, name, off) {
    const flip = () => {
      const parts = new Set(off);
      if (!parts.delete(part)) parts.add(part);
      view.store.set({ off: [...parts].sort().join(" ") });
    };
    return h("button", { type: "button", class: "switch", role: "switch", "aria-checked": !off.has(part), "data-part": part, onclick: flip }, h("span", { class: "lamp", "aria-hidden": "true" }), name);
  }

  async function ask() {
    const { checkpoint } = view.state;
    measure.disabled = true;
    note.textContent = "Reading held-out fables without each part in turn …";
    try {
      const table = await view.source.knockOutTable({ checkpoint });
      view.table = { ...table, checkpoint };
      note.textContent = "";
      view.draw();
    } catch (error) {
      note.textContent = error.message;
    }
    measure.disabled = false;
  }

  function drawTable() {
    result.replaceChildren();
  }
}

