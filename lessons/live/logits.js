// Lesson 7: five logits, their softmax, and its gradient, p - 1 at the word that came. A step goes against it.

import { figure, fill, fixed, h, setFigure } from "pellucid/elements.js";

const WORDS = ["fox", "crow", "frog", "hare", "hen"];
const START = [1, 2, 0, -1, 0.5];
const RATE = 2;
const WIDEST = 6; // logits go from -6 to 6

export function logits(place) {
  const state = { z: [...START], came: 0, said: "" };
  const rows = WORDS.map(row);
  const loss = figure("loss", 0);
  const total = figure("sum of the gradient", 0);
  const said = h("p.said", { role: "status" });
  fill(
    place,
    h("p.title", "Probability, minus 1"),
    h("p.about", "Choose the word that came. Then step against the gradient: which bars grow, and which shrink?"),
    h(
      "div.choices",
      { role: "group", "aria-label": "The word that came" },
      rows.map(({ choice }) => choice),
    ),
    h(
      "table.logits",
      h(
        "thead",
        h(
          "tr",
          ["word", "logit z", "probability p", "gradient p − [came]"].map((name) => h("th", { scope: "col" }, name)),
        ),
      ),
      h(
        "tbody",
        rows.map(({ element }) => element),
      ),
    ),
    h("p.score", "loss −ln p = ", loss, " nats; the gradient sums to ", total, "."),
    said,
    h(
      "div.buttons",
      h("button.main", { onclick: step }, "Step"),
      h("button", { onclick: raise }, "Add 1 to all logits"),
      h("button", { onclick: () => set({ z: [...START], said: "" }) }, "Again"),
    ),
  );
  set({});

  function row(word, i) {
    const range = h("input", {
      type: "range",
      min: -WIDEST,
      max: WIDEST,
      step: 0.1,
      "data-input": word,
      "aria-label": `logit of ${word}`,
      oninput: ({ target }) => set({ z: state.z.with(i, Number(target.value)), said: "" }),
    });
    const z = figure(`z ${word}`, 0);
    const p = figure(`p ${word}`, 0);
    const gradient = figure(`gradient ${word}`, 0);
    const bar = h("div.share");
    const pull = h("div.pull");
    const element = h(
      "tr",
      h("th", { scope: "row" }, word),
      h("td", range, z),
      h("td", h("div.track", bar), p),
      h("td", h("div.track.signed", pull), gradient),
    );
    const choice = h("button", { onclick: () => set({ came: i, said: `${word} came.` }) }, word);
    return { element, choice, range, z, p, gradient, bar, pull };
  }

  function step() {
    const { p, gradient } = slopes(state);
    const z = state.z.map((each, i) => Math.max(-WIDEST, Math.min(WIDEST, each - RATE * gradient[i])));
    const after = slopes({ ...state, z });
    const word = WORDS[state.came];
    set({ z, said: `p of ${word} was ${fixed(p[state.came])} and is ${fixed(after.p[state.came])}.` });
  }

  function raise() {
    if (Math.max(...state.z) > WIDEST - 1) set({ said: "A logit would be above 6. Begin again, or lower one." });
    else set({ z: state.z.map((each) => each + 1), said: "All logits are 1 larger, and nothing else has changed." });
  }

  function set(changes) {
    Object.assign(state, changes);
    const { p, gradient } = slopes(state);
    rows.forEach((each, i) => {
      each.range.value = state.z[i];
      each.choice.setAttribute("aria-pressed", i === state.came);
      each.element.className = i === state.came ? "came" : "";
      setFigure(each.z, state.z[i], fixed(state.z[i], 1));
      setFigure(each.p, p[i], fixed(p[i], 3));
      setFigure(each.gradient, gradient[i], fixed(gradient[i], 3));
      each.bar.style.width = `${100 * p[i]}%`;
      each.pull.style.width = `${50 * Math.abs(gradient[i])}%`;
      each.pull.style.left = `${50 + 50 * Math.min(0, gradient[i])}%`;
      each.pull.classList.toggle("down", gradient[i] < 0);
    });
    setFigure(loss, -Math.log(p[state.came]), fixed(-Math.log(p[state.came]), 3));
    setFigure(total, sum(gradient), fixed(sum(gradient), 3));
    said.textContent = state.said;
  }
}

// The softmax of the logits, and the gradient of the loss by each of them.
function slopes({ z, came }) {
  const largest = Math.max(...z);
  const raised = z.map((each) => Math.exp(each - largest));
  const p = raised.map((each) => each / sum(raised));
  return { p, gradient: p.map((each, i) => each - (i === came ? 1 : 0)) };
}

const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
