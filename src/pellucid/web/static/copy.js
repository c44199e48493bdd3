// Taking a part of the page away: a link that opens it as it is, and a picture of it for slides and papers.

import { fill, h } from "./elements.js";
import { placeOf } from "./moves.js";
import { pictureOf } from "./picture.js";
import { runOf } from "./store.js";
import { textOf } from "./tokens.js";

const MOST = 60; // characters of a text or a link below a picture

export function linkCopies(sections, view) {
  for (const [part, section] of Object.entries(sections)) {
    const name = section.querySelector("h2").innerText.trim(); // without words that are not shown
    const said = h("span", { "aria-live": "polite" });
    const button = (words, onclick) => h("button.eq", { onclick, "aria-label": `${words}: ${name}` }, words);
    const link = button("copy link", () => copy(view.store.linkTo(part), said));
    const picture = button("save picture", () => save(part, section, `${name}: `, view));
    section.querySelector(".lead").append(" ", link, " ", picture, " ", said);
  }
}

// A browser may refuse the clipboard, as to every page that comes over a network without https.
async function copy(link, said) {
  try {
    await navigator.clipboard.writeText(link);
    fill(said, "copied");
  } catch {
    const field = h("input", { value: link, readonly: true, "aria-label": "Link to this view" });
    fill(said, "copy it from here: ", field);
    field.select();
  }
}

// In light colours, without what only a page needs, and with a line that says what it is of.
function save(part, section, name, view) {
  const { trace, model, state, store } = view;
  const { classList } = document.documentElement;
  const link = store.linkTo(part).replace(/^file:.*\//, ""); // whose folders are nobody's business
  const run = runOf(state.checkpoint);
  const title = `${run}, ${document.getElementById("status").textContent.replace(`${run}, `, "")}`;
  const text = trace ? textOf(model, trace.ids.slice(1, placeOf(view) + 1)) : "";
  const [end, address] = [text.slice(-MOST), link.slice(0, MOST)];
  const shown = [end === text ? end : `…${end}`, address === link ? link : `${address}…`];
  const caption = h("p.imprint", `${title}, after “${shown[0]}” · ${shown[1]}`);
  classList.add("pictured");
  store.set({ theme: "light" });
  section.append(caption);
  const svg = pictureOf(section, name + title, `After “${text}”. ${link}`);
  caption.remove();
  store.set({ theme: state.theme });
  classList.remove("pictured");
  const href = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  h("a", { href, download: `${state.checkpoint}-${part}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(href));
}
