// Which runs and checkpoints there are, what the page opens with, and the news from a run that trains.

import { thousands } from "./elements.js";
import { waitedFor } from "./newest.js";
import { fail, noProblem } from "./status.js";
import { isThere, leftOut, runOf, stepOf } from "./store.js";

const SECOND = 1000; // milliseconds

// Of a run that trains, the newest checkpoint is shown if the one before was, which may be deleted by now.
export async function readRuns(view, training) {
  const known = (name) => view.runs.find((run) => run.name === name);
  const newestOf = (name) => known(name)?.checkpoints.at(-1)?.id;
  const { runs, has_class } = await view.source.run();
  view.hasClass = has_class; // can guess on phones
  const isFollowed = training && view.state.checkpoint === newestOf(training);
  view.runs = runs.map((run) =>
    run.problem ? { ...run, ...known(run.name), problem: run.problem, checkpoints: [] } : run,
  );
  if (isFollowed && newestOf(training)) view.store.set({ checkpoint: newestOf(training) });
  document.getElementById("run-name").textContent = runs.map(({ name }) => name).join(" | ");
  document.title = `${runs[0].name}: Model Microscope`;
  useDefaults(view);
}

// What an address leaves unsaid, or asks for in vain: the best checkpoint, and a text to begin with.
export function useDefaults(view) {
  const { checkpoint, text } = view.state;
  const begun = view.runs.filter(({ checkpoints }) => checkpoints.length);
  const run = begun.find(({ name }) => name === runOf(checkpoint)) ?? begun[0];
  const best = run?.best ?? run?.checkpoints.at(-1).id;
  if (best && isMissing(view, checkpoint)) {
    const wasThere = checkpoint === view.trace?.checkpoint;
    view.store.set({ checkpoint: best });
    view.notFound = wasThere
      ? `Step ${thousands(stepOf(checkpoint))} of ${runOf(checkpoint)} was deleted while training. This is ${best}.`
      : `There is no checkpoint ${checkpoint} here. This is ${best}.`;
    noProblem(view);
  } else if (!checkpoint && best) view.store.set({ checkpoint: best });
  if (text !== null || !view.examples) return;
  view.store.set({ text: view.examples[0]?.text ?? "" });
}

// Not a checkpoint of a run that is away, and may come back.
export function isMissing(view, checkpoint) {
  const isAway = view.runs.find(({ name }) => name === runOf(checkpoint))?.problem;
  return Boolean(checkpoint && view.runs.length && !isAway && !isThere(view, checkpoint));
}

// Asks for what belongs to a checkpoint, whatever the text: the examples of its run, and the names of its heads.
export const openCheckpoint = (view, checkpoint) => waitedFor(open(view, checkpoint)).catch(fail);

async function open(view, checkpoint) {
  const run = runOf(checkpoint);
  if (view.examplesOf !== run) {
    view.examplesOf = run;
    try {
      const examples = await view.source.examples({ checkpoint });
      if (view.examplesOf === run) view.examples = examples;
    } catch (error) {
      if (view.examplesOf === run) view.examplesOf = null;
      throw error;
    }
  }
  useDefaults(view);
  view.draw();
  const lacks = leftOut(view, checkpoint);
  if (lacks) {
    if (view.state.checkpoint === checkpoint) view.heads = { problem: `${lacks.why}.` };
    return view.draw();
  }
  const heads = await view.source.heads({ checkpoint }).catch(({ message }) => ({ problem: message }));
  if (view.state.checkpoint === checkpoint) view.heads = heads;
  view.draw();
}

// Asks for news once a second. `goOn` is called when the server is back, perhaps with other checkpoints.
export async function followRuns(view, goOn) {
  const seen = {}; // by run, up to where it is known
  let isGone = false;
  do {
    await ask().catch(fail);
    await new Promise((resolve) => setTimeout(resolve, SECOND));
  } while (view.source.isLive);

  async function ask() {
    const { runs } = await view.source.news(seen).catch(lose);
    if (isGone) await goOn();
    isGone = false;
    for (const [run, news] of Object.entries(runs)) {
      seen[run] = news.seen;
      await hear(view, run, news);
    }
  }

  function lose(error) {
    if (!isGone) {
      isGone = true;
      view.live = {};
      view.draw();
    }
    throw error;
  }
}

async function hear(view, run, news) {
  const { goes_on, rows, samples, is_training } = news;
  const known = view.live[run];
  view.live[run] = news;
  if (samples) view.samples[run] = samples;
  if (rows.length || !goes_on) view.metrics[run] = [...(goes_on ? view.metrics[run] : []), ...rows];
  const isOther =
    !known || ["is_there", "config", "checkpoints"].some((key) => String(known[key]) !== String(news[key]));
  if (isOther) {
    await readRuns(view, is_training && run);
    if (known?.is_there === false) noProblem(view);
  }
  if (isOther || rows.length || samples || known.is_training !== is_training) view.draw();
}
