// Trains in the background, so that the page can be scrolled meanwhile, and answers what the page asks.
//
// The page sends {type: "begin", language, seed, life}, then "train", "pause", "step", "look" and "weights". A language
// is what web/lab.py wrote: rows of token ids, each a document and its end, filled up to T + 1 tokens. Each answer has
// the `life` of the model that it is about: what crosses with the next "begin" comes too late.

import { blockUntilReady, defaultDevice, init, jit, nn, numpy as np, tree } from "./jax.js";
import { decoder, surprises } from "./decoder.js";
import { compiledUpdate, firstWeights, freshState, learningRate, modelOf, randomFrom, weightsOf } from "./training.js";

const EVALUATIONS = [5, 10, 20, 30, 40, 50]; // and then every 25 updates
const MEASURED_SECONDS = 1;
const WRITING_SHARE = 0.1; // of the time, at most: to draw a text takes as long as some updates
const asleep = (perUpdate) => 5 + 20 * perUpdate; // seconds that no update takes, unless the computer sleeps

let run = null; // the model in training
let compiled = null; // what a run computes, kept for the next one of its size
let turn = null; // of "train", the last one asked for; null: of none
let newest = 0; // the life of the newest "begin", which may still wait
const post = (message) => postMessage({ ...message, life: run?.life ?? newest });
const secondsSince = (moment) => (performance.now() - moment) / 1000;

// jax-js makes an instance of a kernel whenever it is called; to keep them saves a seventh of an update.
const { WebAssembly } = globalThis;
const [Instance, kept] = [WebAssembly.Instance, new WeakMap()];
WebAssembly.Instance = function (module, imports) {
  if (!kept.has(module)) kept.set(module, new Instance(module, imports));
  return kept.get(module);
};

async function begin({ language, seed, life }) {
  forget();
  await init("wasm");
  defaultDevice("wasm");
  const config = { ...language.config.model, vocab_size: language.vocab_size };
  const weights = firstWeights(config, seed);
  run = {
    life,
    language,
    config,
    names: Object.keys(weights),
    state: freshState(modelOf(weights)),
    step: 0,
    seconds: 0,
    tokens: 0,
    writing: { began: -Infinity, took: 0 },
    random: randomFrom(seed + 1000),
  };
  compile(config, language.config);
  post({ type: "begun", parameters: run.names.reduce((n, name) => n + weights[name].values.length, 0) });
  await evaluate();
  compiled.perUpdate ??= await measured(freshState(modelOf(weights)));
  post({ type: "measured", seconds: (1 + WRITING_SHARE) * compiled.perUpdate * language.config.train.steps });
}

function compile(model, { optimizer, train }) {
  const key = JSON.stringify([model, optimizer, train]);
  if (compiled?.key === key) return;
  for (const part of ["update", "surprises", "look"]) compiled?.[part].dispose();
  const nHeads = model.n_heads;
  compiled = {
    key,
    update: compiledUpdate(nHeads, optimizer, train.max_gradient_norm),
    surprises: jit((model, inputs_BT, targets_BT) => surprises(model, inputs_BT, targets_BT, nHeads)),
    look: jit((model, inputs_BT) => {
      const maps = [];
      const p_BTV = nn.softmax(decoder(model, inputs_BT, nHeads, maps), -1);
      return [p_BTV, ...maps];
    }),
  };
}

// Seconds of an update, of which the first is compiled. What they do to the model is thrown away.
async function measured(state) {
  const began = performance.now();
  const times = [];
  for (let n = 0; n < 3 || (secondsSince(began) < MEASURED_SECONDS && n < 20); n++) {
    if (run.life !== newest) break;
    const started = performance.now();
    [state] = await updated(state, 0);
    if (n) times.push(secondsSince(started));
  }
  tree.dispose(state);
  return times.sort((a, b) => a - b)[Math.floor((times.length - 1) / 2)];
}

function forget() {
  if (!run) return;
  tree.dispose(run.state);
  run = null;
}

// Rows of ids as inputs and targets. counts: 1 where a token belongs to a document, its end included.
function batchOf(rows, first, n) {
  const T = rows.length_of_row - 1;
  const [inputs, targets, counts] = [new Int32Array(n * T), new Int32Array(n * T), new Float32Array(n * T)];
  for (let b = 0; b < n; b++) {
    const row = ((first + b) % rows.lengths.length) * (T + 1);
    for (let t = 0; t < T; t++) {
      inputs[b * T + t] = rows.ids[row + t];
      targets[b * T + t] = rows.ids[row + t + 1];
      counts[b * T + t] = t + 1 < rows.lengths[(first + b) % rows.lengths.length] ? 1 : 0;
    }
  }
  return [inputs, targets, counts].map((values) => np.array(values).reshape([n, T]));
}

// The state after update `step`, its loss, and the tokens that it has read.
async function updated(state, step) {
  const { train, schedule } = run.language.config;
  const [inputs, targets, counts] = batchOf(run.language.train, step * train.batch_size, train.batch_size);
  const nTokens = np.sum(counts.ref).js();
  const rate = learningRate(step, { ...schedule, steps: train.steps });
  const [next, nats] = compiled.update(state, inputs, targets, counts, np.array(rate), np.array(step + 1));
  await blockUntilReady(tree.ref(next)).then(tree.dispose);
  return [next, (await nats.data())[0], nTokens];
}

async function update() {
  const { steps } = run.language.config.train;
  if (run.step >= steps) return;
  const started = performance.now();
  const [state, loss, nTokens] = await updated(run.state, run.step);
  run.state = state;
  run.step += 1;
  run.tokens += nTokens;
  post({ type: "updated", step: run.step, loss, seconds: run.seconds });
  if (!Number.isFinite(loss))
    throw new Error(`the loss became ${loss} at update ${run.step}; train again with another seed`);
  if (EVALUATIONS.includes(run.step) || run.step % 25 === 0 || run.step === steps) await evaluate();
  run.seconds += Math.min(secondsSince(started), asleep(compiled.perUpdate));
}

// The loss on held-out documents, all together and by skill: sums of surprise, in nats.
async function evaluate() {
  const { language, state } = run;
  const held = language.held_out;
  const n = held.lengths.length;
  const [inputs, targets, counts] = batchOf(held, 0, n);
  const [surprise_BT, counts_BT] = [compiled.surprises(tree.ref(state.model), inputs, targets), counts];
  const [nats, isToken] = [await surprise_BT.data(), await counts_BT.data()];
  const bySkill = language.skills.map(() => ({ nats: 0, floor: 0, tokens: 0 }));
  const all = { nats: 0, floor: 0, tokens: 0 };
  nats.forEach((surprise, at) => {
    if (!isToken[at]) return;
    for (const sum of [all, bySkill[held.skill_of[at]]]) {
      sum.nats += surprise;
      sum.floor += held.nats[at];
      sum.tokens += 1;
    }
  });
  post({
    type: "evaluated",
    step: run.step,
    loss: all.nats / all.tokens,
    floor: all.floor / all.tokens,
    bySkill,
  });
  const { writing, step } = run;
  const isDue = secondsSince(writing.began) * WRITING_SHARE >= writing.took;
  if (!isDue && step && step < language.config.train.steps) return;
  writing.began = performance.now();
  post({ type: "wrote", step, ids: await write() });
  writing.took = secondsSince(writing.began);
}

// A document, token by token, each drawn from the model's own probabilities.
async function write() {
  const { language, state, random } = run;
  const T = language.train.length_of_row - 1;
  const ids = new Int32Array(T);
  ids[0] = language.end_of_text;
  let n = 1;
  for (; n < T; n++) {
    const [p_BTV, ...maps] = compiled.look(tree.ref(state.model), np.array(ids).reshape([1, T]));
    tree.dispose(maps);
    const p = (await p_BTV.data()).subarray((n - 1) * language.vocab_size, n * language.vocab_size);
    let point = random();
    const drawn = p.findIndex((each) => (point -= each) < 0);
    if (drawn === language.end_of_text || drawn < 0) break;
    ids[n] = drawn;
  }
  return [...ids.subarray(1, n)];
}

// What the model says in a held-out document: p(next token) at each place, and where each head looks.
async function look({ document }) {
  const { language, state, config } = run;
  const T = language.train.length_of_row - 1;
  const [inputs, targets, counts] = batchOf(language.held_out, document, 1);
  tree.dispose([targets, counts]);
  const [p_BTV, ...maps] = compiled.look(tree.ref(state.model), inputs);
  const attention = [];
  for (const weights_BHTS of maps) attention.push(await weights_BHTS.data());
  post({ type: "looked", document, p: await p_BTV.data(), attention, T, heads: config.n_heads, step: run.step });
}

// One update, and then the next, unless the page has asked for a pause.
async function train(mine) {
  if (turn === mine && run.step < run.language.config.train.steps) {
    await update();
    await new Promise((resolve) => setTimeout(resolve)); // messages of the page are heard
    soon(() => train(mine));
  } else if (turn === mine || turn === null) {
    turn = null;
    post({ type: "stopped" });
  }
}

const answers = {
  begin,
  train: () => train((turn = {})),
  step: update,
  look,
  weights: async () => {
    const { step, tokens } = run;
    post({ type: "weights", weights: await weightsOf(run.state.model, run.names), step, tokens });
  },
};

// One after the other: an update frees the weights that a look at the model would still read.
let last = Promise.resolve();
function soon(job) {
  last = last.then(job).catch((error) => {
    turn = null;
    const isMemory = error instanceof RangeError; // of WebAssembly.Memory, and of arrays
    post({ type: "failed", why: isMemory ? "no memory is left for it; take a smaller one" : String(error.message) });
  });
}

addEventListener("message", ({ data }) => {
  if (data.type === "begin") newest = data.life;
  if (data.type === "pause") turn = null;
  else soon(() => data.life === newest && answers[data.type](data));
});
