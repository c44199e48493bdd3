// The page: a state, a view of what has been computed for it, and eight panels that draw the view.
//
// A change of the state asks the source for what it lacks. Whatever arrives is put into the view, and the panels draw;
// each draws only if what it shows has changed.

import { forgetColours } from "./colours.js";
import { changed, fill, h, thousands, withCode } from "./elements.js";
import { linkEquations } from "./equations.js";
import { keys } from "./keys.js";
import { headOf, headsThatLook, LOOKS, placeOf } from "./moves.js";
import { newest, waitedFor } from "./newest.js";
import { attentionPanel } from "./panel_attention.js";
import { comparePanel } from "./panel_compare.js";
import { insidePanel } from "./panel_inside.js";
import { knockPanel } from "./panel_knock.js";
import { lensPanel } from "./panel_lens.js";
import { nextPanel } from "./panel_next.js";
import { runPanel } from "./panel_run.js";
import { textPanel } from "./panel_text.js";
import { settings, applySettings } from "./settings.js";
import { isThere, leftOut, makeStore, nameOfPart, partsOff, runOf, stepOf } from "./store.js";

const PANELS = {
  run: runPanel,
  text: textPanel,
  attention: attentionPanel,
  lens: lensPanel,
  next: nextPanel,
  inside: insidePanel,
  knock: knockPanel,
  compare: comparePanel,
};

const REST = 250; // milliseconds without a keystroke

export async function showPage(source) {
  const store = makeStore();
  // What the panels draw. trace: of checkpoint A without the parts that are switched off; base: with them; other: of B.
  // model: of the same run as the trace, for another may have another vocabulary.
  const view = {
    source,
    store,
    state: store.get(),
    runs: [],
    metrics: {},
    model: null,
    examples: null,
    samples: {},
    live: {},
    trace: null,
    logits: null,
    base: null,
    baseLogits: null,
    other: null,
    otherLogits: null,
    truth: null,
    deciding: null,
    heads: null,
    inside: null,
    table: null,
    opensOn: {}, // by run, the head that is shown until one is chosen
    asked: null,
    byTyping: 0,
  };
  const panels = Object.entries(PANELS).map(([name, panel]) => {
    const section = document.getElementById(`part-${name}`);
    return { name, section, ...panel(section.querySelector(".body"), view) };
  });
  view.draw = draw;
  // The state, without what a model of this kind cannot do.
  const stateNow = () => ({ ...store.get(), ...(leftOut(view, store.get().checkpoint) && { off: "", inside: false }) });
  window.microscope = view; // for whoever opens the console

  function draw() {
    view.state = stateNow();
    // Until the trace of another run is there, nothing is drawn that the trace at hand does not have either.
    leaveOut(leftOut(view, view.state.checkpoint) ?? leftOut(view, view.trace?.checkpoint ?? ""));
    panels.filter(({ section }) => !section.hidden).forEach((panel) => panel.draw());
    showStatus();
  }

  // What this kind of model does not have: its parts of the page are hidden, and a line says why.
  const drawn = {};

  function leaveOut(lacks) {
    if (!changed(drawn, lacks?.why)) return;
    const links = document.getElementById("parts").children;
    panels.forEach(({ name, section }, i) => {
      section.hidden = links[i].hidden = lacks?.parts.includes(name) ?? false;
    });
    const names = panels.filter(({ section }) => section.hidden).map(({ section }) => section.querySelector("h2").textContent);
    const line = document.getElementById("left-out");
    line.hidden = !lacks;
    line.textContent = lacks && `Left out: ${names.join(", ")}, because ${lacks.why}.`;
  }

  // In the bar that stays in sight: which model all of this is about.
  function showStatus() {
    const { checkpoint, off, instead } = view.state;
    const parts = off.split(" ").filter(Boolean).map(nameOfPart);
    const step = `step ${thousands(stepOf(checkpoint))}`;
    const name = view.runs.length > 1 ? `${runOf(checkpoint)}, ` : "";
    const training = Object.values(view.live).find(({ is_training }) => is_training);
    document.getElementById("main").classList.toggle("waiting", !checkpoint);
    document.getElementById("live").hidden = !training;
    if (training)
      document.getElementById("live").textContent =
        `training: step ${thousands(training.step ?? 0)}${training.steps ? ` of ${thousands(training.steps)}` : ""}`;
    document.getElementById("status").textContent =
      checkpoint && `${name}${step}${parts.length ? `, ${instead ? "patched" : "without"} ${parts.join(", ")}` : ""}`;
    document.getElementById("status").classList.toggle("changed", parts.length > 0);
  }

  let notFound = ""; // what an address asked for in vain: said until another checkpoint is chosen

  function fail(error) {
    if (error.name === "AbortError") return;
    const problem = document.getElementById("problem");
    fill(problem, withCode(error.message));
    problem.hidden = false;
  }

  function noProblem() {
    document.getElementById("problem").hidden = true;
    if (notFound) fail(new Error(notFound));
  }

  const ask = (keys) => ({
    checkpoint: keys.checkpoint,
    text: keys.text,
    at: keys.at < 0 ? undefined : keys.at,
    knockOut: keys.knockOut,
    patchText: keys.knockOut.length ? keys.patchText : undefined,
  });

  const models = new Map(); // by run

  async function modelOf(checkpoint) {
    const run = runOf(checkpoint);
    if (!models.has(run)) models.set(run, source.model({ checkpoint }));
    try {
      return await models.get(run);
    } catch (error) {
      models.delete(run);
      throw error;
    }
  }

  const askTrace = newest(
    (asked) => Promise.all([source.trace(ask(asked)), modelOf(asked.checkpoint)]),
    ([trace, model], asked) => {
      noProblem();
      if (view.model !== model)
        Object.assign(view, { model, base: null, baseLogits: null, truth: null, deciding: null, inside: null });
      Object.assign(view, { trace, logits: { at: trace.at, logits: trace.logits } });
      if (!asked.knockOut.length) Object.assign(view, { base: trace, baseLogits: view.logits });
      draw();
      measure("keystroke to redrawn", asked.typedAt);
      followUp(asked.typedAt);
    },
    fail,
  );
  const askBase = newest(
    (asked) => source.trace(ask({ ...asked, knockOut: [] })),
    (base) => {
      Object.assign(view, { base, baseLogits: { at: base.at, logits: base.logits } });
      draw();
    },
    fail,
  );
  const askOther = newest(
    (asked) => source.trace(ask({ ...asked, checkpoint: asked.other, knockOut: [] })),
    (other) => {
      Object.assign(view, { other, otherLogits: { at: other.at, logits: other.logits } });
      draw();
    },
    fail,
  );
  const askTruth = newest(
    (asked) => source.truth({ checkpoint: asked.checkpoint, text: asked.text }),
    (truth, asked) => {
      view.truth = truth;
      draw();
      measure("keystroke to truth", asked.typedAt);
    },
    fail,
  );
  const askDeciding = newest(
    (asked) => source.deciding({ checkpoint: asked.checkpoint, text: asked.text }),
    ({ places }, asked) => {
      view.deciding = { text: asked.text, places };
      draw();
      const [share, head] = headsThatLook(view)[0] ?? [0];
      const run = runOf(asked.checkpoint);
      if (share < LOOKS || store.get().head || view.opensOn[run]) return;
      view.opensOn[run] = head;
      draw();
      followUp();
    },
    fail,
  );
  const askLogits = newest(
    async (asked) => ({
      logits: await source.logits(ask(asked)),
      baseLogits: asked.knockOut.length ? await source.logits(ask({ ...asked, knockOut: [] })) : null,
      otherLogits: asked.other ? await source.logits(ask({ ...asked, checkpoint: asked.other, knockOut: [] })) : null,
    }),
    (answers) => {
      view.logits = answers.logits;
      view.baseLogits = answers.baseLogits ?? answers.logits;
      view.otherLogits = answers.otherLogits;
      draw();
    },
    fail,
  );
  const askInside = newest(
    (asked) => source.inside({ ...ask(asked), layer: asked.layer }),
    (inside, asked) => {
      view.inside = { ...inside, layer: asked.layer };
      draw();
    },
    fail,
  );

  function keysOf(state) {
    return {
      checkpoint: state.checkpoint,
      other: isThere(view, state.other) ? state.other : "",
      text: state.text,
      at: state.at,
      knockOut: partsOff(state.off),
      patchText: (state.off && state.instead) || undefined,
      typedAt: view.byTyping,
    };
  }

  let resting = 0;

  // What else the view lacks once the trace is there. The trace comes first: it is what one waits for.
  function followUp(typedAt = 0) {
    const state = stateNow();
    const keys = { ...keysOf(state), typedAt };
    const { asked } = view;
    if (view.logits.at !== placeOf(view)) askLogits(keys);
    const truth = `${runOf(state.checkpoint)} ${state.text}`;
    if (asked.truth !== truth) {
      askTruth(keys);
      clearTimeout(resting); // it takes the grammar longer than a keystroke, so it is asked when nobody types
      if (typedAt) resting = setTimeout(() => askDeciding(keys), REST);
      else askDeciding(keys);
    }
    asked.truth = truth;
    const base = state.off ? `${state.checkpoint} ${state.text}` : "";
    if (base && asked.base !== base) askBase(keys);
    asked.base = base;
    const other = keys.other ? `${keys.other} ${state.text}` : "";
    if (other && asked.other !== other) askOther(keys);
    if (!other) Object.assign(view, { other: null, otherLogits: null });
    asked.other = other;
    const [layer] = headOf(view);
    const inside = state.inside ? `${asked.trace} ${layer}` : "";
    if (inside && asked.inside !== inside) askInside({ ...keys, layer });
    asked.inside = inside;
  }

  // Asks for what a change of the state makes necessary.
  function refresh() {
    const state = stateNow();
    if (!state.checkpoint || state.text === null) return;
    view.asked ??= {};
    const keys = keysOf(state);
    view.byTyping = 0;
    const trace = JSON.stringify([state.checkpoint, state.text, state.off, state.off && state.instead]);
    if (view.asked.trace !== trace) {
      view.asked.trace = trace;
      askTrace(keys);
      return;
    }
    if (view.trace) followUp();
  }

  let examplesOf = null; // a run

  async function openCheckpoint(checkpoint) {
    const run = runOf(checkpoint);
    if (examplesOf !== run) {
      examplesOf = run;
      try {
        const examples = await source.examples({ checkpoint });
        if (examplesOf === run) view.examples = examples;
      } catch (error) {
        if (examplesOf === run) examplesOf = null;
        throw error;
      }
    }
    useDefaults();
    draw();
    if (leftOut(view, checkpoint)) return;
    const heads = await source.heads({ checkpoint }).catch(({ message }) => ({ problem: message }));
    if (store.get().checkpoint === checkpoint) view.heads = heads;
    draw();
    if (source.isMeasured) panels.find(({ name }) => name === "knock").measure();
  }

  const open = (checkpoint) => waitedFor(openCheckpoint(checkpoint)).catch(fail);

  // Not that of a run that is away, and may come back.
  function isMissing(checkpoint) {
    const isAway = view.runs.find(({ name }) => name === runOf(checkpoint))?.problem;
    return Boolean(checkpoint && view.runs.length && !isAway && !isThere(view, checkpoint));
  }

  // What an address leaves unsaid, or asks for in vain: the best checkpoint, and a text to begin with.
  function useDefaults() {
    const { checkpoint, text } = store.get();
    const begun = view.runs.filter(({ checkpoints }) => checkpoints.length);
    const run = begun.find(({ name }) => name === runOf(checkpoint)) ?? begun[0];
    const best = run?.best ?? run?.checkpoints.at(-1).id;
    if (best && isMissing(checkpoint)) {
      const wasThere = checkpoint === view.trace?.checkpoint;
      store.set({ checkpoint: best });
      notFound = wasThere
        ? `Step ${thousands(stepOf(checkpoint))} of ${runOf(checkpoint)} was deleted while training. This is ${best}.`
        : `There is no checkpoint ${checkpoint} here. This is ${best}.`;
      noProblem();
    } else if (!checkpoint && best) store.set({ checkpoint: best });
    if (text === null && view.examples?.length) {
      store.set({ text: (view.examples.find(({ skill }) => skill === "recall") ?? view.examples[0]).text });
    } else if (text === null && view.examples) store.set({ text: "" });
  }

  let isGone = false;

  // The server is back, perhaps with other checkpoints: what was asked in vain is asked again.
  async function goOn() {
    isGone = false;
    await readRuns();
    noProblem();
    view.asked = {};
    const { checkpoint } = store.get();
    if (checkpoint && (examplesOf === null || view.heads?.problem)) await open(checkpoint);
    refresh();
    draw();
  }

  async function hear({ type, run, ...event }) {
    if (type === "gone") {
      isGone = true;
      view.live = {};
      draw();
      throw new Error(event.why);
    }
    if (type === "back") return isGone && goOn();
    const known = view.live[run];
    if (type === "sample") view.samples = { ...view.samples, [run]: event };
    else if (type === "state") view.live = { ...view.live, [run]: event };
    else if (type === "metrics") {
      const before = (view.metrics[run] ?? []).filter((row) => event.after !== null && row.step <= event.after);
      view.metrics = { ...view.metrics, [run]: [...before, ...event.rows] };
    }
    const isOther = type === "state" && (known?.is_there !== event.is_there || known.steps !== event.steps);
    if (type === "checkpoint" || isOther) {
      await readRuns(view.live[run]?.is_training && run);
      if (known?.is_there === false) noProblem();
    }
    draw();
  }

  // Of a run that trains, the newest checkpoint is shown if the one before was, which may be deleted by now.
  async function readRuns(training) {
    const known = (name) => view.runs.find((run) => run.name === name);
    const newestOf = (name) => known(name)?.checkpoints.at(-1)?.id;
    const { runs } = await source.run();
    const isFollowed = training && store.get().checkpoint === newestOf(training);
    view.runs = runs.map((run) =>
      run.problem ? { ...run, ...known(run.name), problem: run.problem, checkpoints: [] } : run,
    );
    if (isFollowed && newestOf(training)) store.set({ checkpoint: newestOf(training) });
    for (const { name, problem } of runs) if (!problem) view.metrics[name] = await source.metrics({ run: name });
    const run = view.runs[0];
    document.getElementById("run-name").textContent = view.runs.map(({ name }) => name).join(" | ");
    document.title = `${run.name}: Model Microscope`;
    useDefaults();
  }

  store.onChange((state, before) => {
    applySettings(state);
    if (state.theme !== before.theme || state.large !== before.large) {
      forgetColours();
      view.look = {};
    }
    if (state.checkpoint !== before.checkpoint) notFound = "";
    if (!state.checkpoint || isMissing(state.checkpoint)) return useDefaults();
    if (state.checkpoint !== before.checkpoint) open(state.checkpoint);
    if (state.text === null) return useDefaults();
    refresh();
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetColours();
    view.look = {};
    draw();
  });
  view.look = {};
  addEventListener("resize", () => {
    view.look = {};
    draw();
  });

  settings(document.getElementById("settings"), view);
  applySettings(store.get());
  linkEquations();
  partsOfPage();
  keys(view);

  try {
    await readRuns();
    if (store.get().checkpoint && examplesOf === null) await open(store.get().checkpoint);
    refresh();
    draw();
  } catch (error) {
    fail(error);
  }
  let heard = Promise.resolve(); // one event at a time: each looks at what the one before has left
  source.onEvent((event) => (heard = heard.then(() => hear(event)).catch(fail)));
}

// How long something took, until it was painted: `performance.getEntriesByType("measure")` lists it.
function measure(name, start) {
  if (start) requestAnimationFrame(() => setTimeout(() => performance.measure(name, { start })));
}

// The links at the top. They scroll, and leave the address to the state.
function partsOfPage() {
  const list = document.getElementById("parts");
  const links = new Map();
  for (const section of document.querySelectorAll("main > section")) {
    const heading = section.querySelector("h2");
    const [number, name] = [heading.querySelector("b").textContent, heading.lastChild.textContent.trim()];
    const button = h(
      "button",
      { type: "button", onclick: () => section.scrollIntoView({ behavior: "smooth" }) },
      h("b", {}, number),
      ` ${name}`,
    );
    links.set(section, button);
    list.append(h("li", {}, button));
  }
  const inSight = new Set(); // two, where one ends and the next begins
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) inSight[isIntersecting ? "add" : "delete"](target);
      const here = [...links.keys()].filter((section) => inSight.has(section)).at(-1);
      links.forEach((link, section) => link.classList.toggle("here", section === here));
      const link = links.get(here);
      if (link) list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2; // on a phone
    },
    { rootMargin: "-45% 0px -50% 0px" },
  );
  links.forEach((_, section) => observer.observe(section));
}
