// The page: a state, a view of what has been computed for it, and nine panels that draw the view.
//
// A change of the state asks the source for what the view lacks (requests.js). Whatever arrives is put into the view,
// and the panels draw; each draws only if what it shows has changed.

import { forgetColours } from "./colours.js";
import { linkCopies } from "./copy.js";
import { goTo, h } from "./elements.js";
import { linkEquations } from "./equations.js";
import { linkTerms } from "./glossary.js";
import { keys } from "./keys.js";
import { attentionPanel } from "./panel_attention.js";
import { comparePanel } from "./panel_compare.js";
import { insidePanel } from "./panel_inside.js";
import { knockPanel } from "./panel_knock.js";
import { lensPanel } from "./panel_lens.js";
import { machinePanel } from "./panel_machine.js";
import { nextPanel } from "./panel_next.js";
import { runPanel } from "./panel_run.js";
import { textPanel } from "./panel_text.js";
import { atRest } from "./newest.js";
import { makeRequests } from "./requests.js";
import { followRuns, isMissing, openCheckpoint, readRuns, useDefaults } from "./runs.js";
import { settings, applySettings } from "./settings.js";
import { fail, leaveOut, noProblem, showStatus } from "./status.js";
import { leftOut, makeStore } from "./store.js";
import { tourGuide } from "./tour.js";

const PANELS = {
  machine: machinePanel,
  run: runPanel,
  text: textPanel,
  attention: attentionPanel,
  lens: lensPanel,
  next: nextPanel,
  inside: insidePanel,
  knock: knockPanel,
  compare: comparePanel,
};

// A model that fills gaps draws no token, and there is none to guess.
const OF_GAPS = { temperature: 1, top_k: 0, top_p: 1, guess: false };

export async function showPage(source) {
  const view = makeView(source);
  const { store } = view;
  const sections = {};
  const panels = Object.entries(PANELS).map(([name, panel]) => {
    sections[name] = document.getElementById(`part-${name}`);
    return { section: sections[name], ...panel(sections[name].querySelector(".body"), view) };
  });
  const only = sections[new URLSearchParams(location.search).get("only")]; // ?only=attention: a part to embed
  for (const each of only ? [document.body, only] : []) each.classList.add("only");
  const guide = tourGuide(document.getElementById("tour"), view);
  const requests = makeRequests(view);
  const inSight = seenOf(Object.values(sections), () => view.isTyping && view.draw());
  const rested = atRest(() => {
    view.isTyping = false;
    view.draw();
  });
  // While somebody types, the parts out of sight wait: to draw them all takes longer than a keystroke.
  view.draw = () => {
    leaveOut(view, sections);
    const isNow = ({ section }) => !section.hidden && (!view.isTyping || inSight.has(section));
    panels.filter(isNow).forEach((panel) => panel.draw());
    if (view.isTyping) rested();
    guide.draw();
    showStatus(view);
    const wanted = view.trace && sections[view.state.part];
    if (!wanted) return;
    store.set({ part: "" });
    goTo(wanted);
  };
  window.microscope = view; // for whoever opens the console

  store.onChange((state, before) => {
    applySettings(state);
    if (state.theme !== before.theme || state.large !== before.large) forgetLook(view);
    if (before.checkpoint && state.checkpoint !== before.checkpoint) view.notFound = "";
    if (!state.checkpoint || isMissing(view, state.checkpoint)) return useDefaults(view);
    if (state.checkpoint !== before.checkpoint) openCheckpoint(view, state.checkpoint);
    if (state.text === null) return useDefaults(view);
    requests.refresh();
    view.draw();
  });
  const drawAnew = () => {
    forgetLook(view);
    view.draw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
  addEventListener("resize", drawAnew);
  addEventListener("hashchange", () => sayDropped(view));
  sayDropped(view);
  settings(document.getElementById("settings"), view);
  applySettings(store.get());
  linkEquations();
  linkTerms();
  linkParts(sections);
  linkCopies(sections, view);
  keys(view);

  // When the page opens; and when the server is back: what was asked in vain is asked again.
  async function begin() {
    await readRuns(view);
    noProblem(view);
    const { checkpoint } = view.state;
    if (checkpoint && (!view.examplesOf || view.heads?.problem)) await openCheckpoint(view, checkpoint);
    requests.refresh();
    view.draw();
    await guide.open();
  }
  await begin().catch(fail);
  followRuns(view, () => {
    requests.forget();
    return begin();
  });
}

// What the panels draw. trace: of checkpoint A without the parts that are switched off; base: with them; other: of B.
// model: of the same run as the trace, for another may have another vocabulary.
function makeView(source) {
  const store = makeStore();
  return {
    source,
    store,
    // The state, without what a model of this kind cannot do.
    get state() {
      const state = store.get();
      const lacks = leftOut(this, state.checkpoint);
      return lacks ? { ...state, off: "", inside: false, ...(lacks.fills_gaps && OF_GAPS) } : state;
    },
    runs: [],
    metrics: {}, // by run, as are samples and live
    samples: {},
    live: {},
    shown: "", // what the trace was asked for
    // Undefined until they come: model, examples and examplesOf (a run), trace, base, other, truth, deciding, heads,
    // inside, table; beliefs, about a hidden state, of runs that have one; logits, at one place, as are baseLogits and
    // otherLogits; otherProblem: why B cannot read the text.
    opensOn: {}, // by run, the head that is shown until one is chosen
    look: {}, // another object whenever colours or sizes may have changed
    notFound: "", // what an address asked for in vain
    said: null, // {text, why}: the text that part 5 made last, or why no token was added to it
    isWriting: false, // whether part 5 adds token after token
    typedAt: 0, // when the last letter was typed, until its trace is asked for
    isTyping: false, // whether the trace is of a letter that was typed just now
  };
}

// Those of the sections that are in sight, or within a part of the window; `act` is called when others are.
function seenOf(sections, act, rootMargin) {
  const seen = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](target);
      act();
    },
    { rootMargin },
  );
  sections.forEach((section) => observer.observe(section));
  return seen;
}

function sayDropped(view) {
  const parts = view.store.dropped();
  if (!parts.length) return;
  view.notFound = `These parts of the address mean nothing here and are left out: ${parts.join(", ")}`;
  noProblem(view);
}

function forgetLook(view) {
  forgetColours();
  view.look = {};
}

// The links at the top. They scroll, and leave the address to the state.
function linkParts(sections) {
  const list = document.getElementById("parts");
  const links = new Map();
  for (const section of Object.values(sections)) {
    const heading = section.querySelector("h2");
    const [number, ...name] = [...heading.cloneNode(true).childNodes];
    links.set(section, h("button", { onclick: () => goTo(section) }, number.textContent && number, name));
    list.append(h("li", links.get(section)));
  }
  const mark = () => {
    const here = [...links.keys()].filter((section) => inSight.has(section)).at(-1);
    links.forEach((link, section) => link.classList.toggle("here", section === here));
    const link = links.get(here);
    if (link) list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2; // on a phone
  };
  const inSight = seenOf([...links.keys()], mark, "-20% 0px -75% 0px"); // two, where one ends and the next begins
}
