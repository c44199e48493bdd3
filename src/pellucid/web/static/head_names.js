// What a head is called: by the skills that it does, once part 7 has measured them, and by its scores.

import { skillsDoneBy } from "./knock_table.js";

export const UNNAMED = "unclassified";

export function scoresOf({ heads }, layer, head) {
  return heads?.heads?.find((each) => each.layer === layer && each.head === head);
}

export function nameInWords(view, layer, head) {
  const table = view.table?.checkpoint === view.state.checkpoint ? view.table : null;
  const skills = skillsDoneBy(table, layer, head);
  const done = skills.length ? [`does ${skills.join(" and ")}`] : [];
  const name = scoresOf(view, layer, head)?.name;
  return [...done, ...(done.length && name === UNNAMED ? [] : [name ?? ""])].join(", ");
}
