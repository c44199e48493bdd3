// The table of part 7: what each skill loses without each part, and where the heads look that do the work.

import { exact, figure, fixed, h, percent, tableHead } from "./elements.js";
import { partOfPlace } from "./store.js";

const isHead = (row) => row.places[0][0] === "head";
const total = (nats) => Object.values(nats).reduce((sum, each) => sum + each, 0);

// `toggle(part)` makes the switch that a row begins with.
export function knockTable(table, toggle) {
  const isThere = (skill) => table.intact[skill] > 0; // some skills may not occur in these texts
  const skills = [...Object.keys(table.floor).filter(isThere), "all"];
  const heads = table.knocked_out.filter(isHead);
  // One scale for all cells. It ends at what the worst head costs: to lose a whole layer is worse than a part of it.
  const most = Math.max(1e-9, ...heads.map((row) => row.nats_per_fable.all.mean));
  const looks = looksByHead(table);
  const row = (each) => {
    const part = partOfPlace(each.places[0]);
    const cells = skills.map((skill) => cell(skill, each.nats_per_fable[skill], most, looks[part]?.[skill]));
    return h("tr", { "data-row": part }, h("th", { scope: "row" }, toggle(part)), cells);
  };
  const known = (name, nats) => {
    const cells = skills.map((skill) => h("td", fixed(skill === "all" ? total(nats) : nats[skill])));
    return h("tr.known", h("th", { scope: "row" }, name), cells);
  };
  return h(
    "table",
    h(
      "caption",
      "How much the loss on each skill rises without a part, in nats per text, with the 95% interval over ",
      figure("fables", table.fables, String(table.fables)),
      " held-out texts. Coloured where that is clearly above zero, the stronger the more, in all columns alike",
      table.attribution ? "; below it, the share of the head's attention on the words that decide." : ".",
    ),
    tableHead("without", ...skills),
    h("tbody", known("the floor", table.floor), known("the whole model", table.intact), table.knocked_out.map(row)),
  );
}

function cell(skill, { mean, half_width }, most, look) {
  const isSure = mean - half_width > 0;
  const strength = isSure ? Math.min(1, mean / most) : 0;
  const attributes = { style: { "--strength": strength }, "data-skill": skill, "data-value": mean.toPrecision(7) };
  const looks = look && h("small.looks", { "data-value": look.mean.toPrecision(7) }, `looks ${percent(look.mean)}`);
  return h(isSure ? "td.sure" : "td.muted", attributes, exact(mean), h("small", ` ± ${exact(half_width)}`), looks);
}

// {"1.3": {skill: {mean, half_width}}}: how much of a head's attention is on the words that decide.
function looksByHead({ attribution }) {
  return Object.fromEntries((attribution?.heads ?? []).map(({ layer, head, looks }) => [`${layer}.${head}`, looks]));
}

// The skills that a head does: it looks at the words that decide, and they are lost without it.
export function skillsDoneBy(table, layer, head) {
  const done = Object.entries(table?.attribution?.done_by ?? {});
  return done.filter(([, who]) => who && who[0] === layer && who[1] === head).map(([skill]) => skill);
}

// In sentences: who does which skill. `select(head)` shows a head in part 3.
export function workInWords(table, select) {
  const { done_by = {}, evenly } = table.attribution ?? {};
  const looks = looksByHead(table);
  const found = Object.entries(done_by).filter(([, who]) => who);
  const none = Object.keys(done_by).filter((skill) => !done_by[skill]);
  return [
    found.map(([skill, who]) => {
      const part = who.join(".");
      const without = table.knocked_out.find((row) => partOfPlace(row.places[0]) === part);
      const { mean, half_width } = without.nats_per_fable[skill];
      const looked = `${percent(looks[part][skill].mean)} of its attention is on the words that decide (${percent(evenly[skill])} if it were spread evenly)`;
      const lost = `, and without it the loss on ${skill} rises by ${fixed(mean)} ± ${fixed(half_width)} nats per text. `;
      const see = h("button.chip", { onclick: () => select(part) }, "see where it looks");
      return h("p", h("b", `Head ${part} does ${skill}. `), looked, lost, see);
    }),
    none.length ? h("p.muted", `No single head does ${none.join(" or ")}.`) : null,
  ];
}
