// Part 7: parts of the model as switches, and what each of them is for.

import { changed, figure, fill, fixed, h } from "./elements.js";
import { nameOfPart, partOfPlace } from "./store.js";

export function knockPanel(root, view) {
  const memory = {};
  const switches = h("div", { class: "switches" });
  const all = h(
    "button",
    { type: "button", id: "all-on", onclick: () => view.store.set({ off: "" }) },
    "Switch all on",
  );
  const measure = h(
    "button",
    { type: "button", id: "measure", class: "main", onclick: ask },
    "Measure all parts on held-out fables",
  );
  const result = h("div", { class: "table-frame", tabindex: -1 });
  const note = h("p", { class: "muted small", role: "status" });
  const instead = h("input", {
    id: "instead",
    type: "text",
    placeholder: "nothing; or a text of as many tokens",
    onchange: () => view.store.set({ instead: instead.value }),
  });
  const patch = h(
    "p",
    { class: "row patch" },
    h("label", { for: "instead" }, "What is off gives what it gave for"),
    instead,
  );
  patch.hidden = !view.source.canPatch;
  const reading = h("p", { class: "reading", hidden: true });
  root.append(switches, patch, h("div", { class: "row" }, measure, note), reading, result);
  return { draw };

  function draw() {
    const { trace, state, table } = view;
    if (document.activeElement !== instead) instead.value = state.instead;
    if (!trace || !changed(memory, trace.attention.shape.slice(0, 2).join(), state.off, state.checkpoint, table))
      return;
    const [n_layers, n_heads] = trace.attention.shape;
    const off = new Set(state.off.split(" ").filter(Boolean));
    const focus = document.activeElement?.dataset?.part;
    fill(
      switches,
      Array.from({ length: n_layers }, (_, layer) =>
        h(
          "div",
          { class: "layer", role: "group", "aria-label": `layer ${layer}` },
          h("span", { class: "muted" }, `layer ${layer}`),
          Array.from({ length: n_heads }, (_, head) => toggle(`${layer}.${head}`, off)),
          toggle(`a${layer}`, off),
          toggle(`f${layer}`, off),
        ),
      ),
      all,
    );
    all.disabled = !off.size;
    drawTable(off);
    if (focus) root.querySelector(`[data-part="${focus}"]`)?.focus();
  }

  function toggle(part, off) {
    const flip = () => {
      const parts = new Set(off);
      if (!parts.delete(part)) parts.add(part);
      view.store.set({ off: [...parts].sort().join(" ") });
    };
    const name = nameOfPart(part);
    return h(
      "button",
      {
        type: "button",
        class: "switch",
        role: "switch",
        "aria-checked": String(!off.has(part)),
        "data-part": part,
        onclick: flip,
      },
      h("span", { class: "lamp", "aria-hidden": "true" }),
      name,
    );
  }

  async function ask() {
    const { checkpoint } = view.state;
    measure.disabled = true;
    note.textContent = "Reading held-out fables without each part in turn …";
    try {
      view.table = { ...(await view.source.knockOutTable({ checkpoint })), checkpoint };
      note.textContent = "";
      view.draw();
    } catch (error) {
      note.textContent = error.message;
    }
    measure.disabled = false;
  }

  function drawTable(off) {
    const { table, state } = view;
    reading.hidden = !table || table.checkpoint !== state.checkpoint;
    if (reading.hidden) return fill(result);
    const skills = [...Object.keys(table.floor), "all"];
    const total = (nats) => Object.values(nats).reduce((sum, each) => sum + each, 0);
    const isHead = (row) => row.places[0][0] === "head";
    const most = Object.fromEntries(
      skills.map((skill) => [
        skill,
        Math.max(1e-9, ...table.knocked_out.filter(isHead).map((row) => row.nats_per_fable[skill].mean)),
      ]),
    );
    const cell = (skill, row) => {
      const { mean, half_width } = row.nats_per_fable[skill];
      const isSure = mean - half_width > 0;
      const strength = isSure ? Math.min(1, Math.max(0, mean / most[skill])) : 0;
      return h(
        "td",
        {
          class: isSure ? "sure" : "muted",
          style: { "--strength": strength },
          "data-skill": skill,
          "data-value": mean.toPrecision(7),
        },
        fixed(mean),
        h("small", {}, ` ± ${fixed(half_width)}`),
      );
    };
    const plain = (name, nats) =>
      h(
        "tr",
        { class: "plain" },
        h("th", { scope: "row" }, name),
        skills.map((skill) => h("td", {}, fixed(skill === "all" ? total(nats) : nats[skill]))),
      );
    fill(
      result,
      h(
        "table",
        {},
        h(
          "caption",
          {},
          "What each skill loses without a part, in nats per fable, with the 95 % interval over ",
          figure("fables", table.fables, String(table.fables)),
          " held-out fables",
        ),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "without"),
            skills.map((skill) => h("th", { scope: "col" }, skill)),
          ),
        ),
        h(
          "tbody",
          {},
          plain("the floor", table.floor),
          plain("the whole model", table.intact),
          table.knocked_out.map((row) => {
            const part = partOfPlace(row.places[0]);
            return h(
              "tr",
              { "data-row": part },
              h("th", { scope: "row" }, toggle(part, off)),
              skills.map((skill) => cell(skill, row)),
            );
          }),
        ),
      ),
    );
    const heads = table.knocked_out.filter(isHead);
    const of = (skill) =>
      heads.reduce((best, row) => (row.nats_per_fable[skill].mean > best.nats_per_fable[skill].mean ? row : best));
    const strongest = skills
      .filter((skill) => skill !== "all" && skill !== "spelling" && skill !== "choice")
      .map((skill) => [skill, of(skill)])
      .filter(([skill, row]) => row.nats_per_fable[skill].mean > row.nats_per_fable[skill].half_width);
    fill(
      reading,
      strongest.length
        ? [
            "Most needed among the heads: ",
            strongest.map(([skill, row], i) => [
              i ? ", " : "",
              `${skill} `,
              h("b", { class: "mono" }, partOfPlace(row.places[0])),
            ]),
            ".",
          ]
        : "No head is clearly needed for one skill.",
    );
  }
}
