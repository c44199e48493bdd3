// Trains in the background, so that the page can be scrolled meanwhile, and answers what the page asks.
//
// The page sends {type: "begin", language, sizes, seed}, then "train", "pause", "step", "look" and "weights". A language
// is what web/lab.py wrote: rows of token ids, each a document and its end, filled up to T + 1 tokens.

import { blockUntilReady, defaultDevice, init, jit, nn, numpy as np, tree } from "./jax.js";
import { decoder, surprises } from "./decoder.js";
import { compiledUpdate, firstWeights, freshState, learningRate, modelOf, randomFrom, weightsOf } from "./training.js";

const EVALUATIONS = [5, 10, 20, 30, 40, 50]; // and then every 25 updates

let run = null; // the model in training
let isTraining = false;

async function begin({ language, sizes, seed, device }) {
  forget();
  await init(device);
  defaultDevice(device);
  const config = { ...language.config.model, ...sizes, vocab_size: language.vocab_size };
  const weights = firstWeights(config, seed);
  const nHeads = config.n_heads;
  run = {
    language,
    config,
    names: Object.keys(weights),
    state: freshState(modelOf(weights)),
    step: 0,
    seconds: 0,
    tokens: 0,
    random: randomFrom(seed + 1000),
    update: compiledUpdate(nHeads, language.config.optimizer, language.config.train.max_gradient_norm),
    surprises: jit((model, inputs_BT, targets_BT) => surprises(model, inputs_BT, targets_BT, nHeads)),
    look: jit((model, inputs_BT) => {
      const maps = [];
      const p_BTV = nn.softmax(decoder(model, inputs_BT, nHeads, maps), -1);
      return [p_BTV, ...maps];
    }),
  };
  postMessage({ type: "begun", parameters: run.names.reduce((n, name) => n + weights[name].values.length, 0) });
  await evaluate();
}

function forget() {
  if (!run) return;
  tree.dispose(run.state);
  for (const compiled of [run.update, run.surprises, run.look]) compiled.dispose();
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

async function update() {
  const { language, state, step } = run;
  const { train, schedule } = language.config;
  const started = performance.now();
  const [inputs, targets, counts] = batchOf(language.train, step * train.batch_size, train.batch_size);
  const nTokens = np.sum(counts.ref).js();
  const rate = learningRate(step, { ...schedule, steps: train.steps });
  const [next, nats] = run.update(state, inputs, targets, counts, np.array(rate), np.array(step + 1));
  run.state = next;
  await blockUntilReady(tree.ref(next)).then(tree.dispose);
  const loss = (await nats.data())[0];
  run.step += 1;
  run.tokens += nTokens;
  if (step) run.seconds += (performance.now() - started) / 1000; // the first update is compiled, too
  postMessage({ type: "updated", step: run.step, loss, seconds: run.seconds });
  if (!Number.isFinite(loss)) {
    isTraining = false;
    postMessage({
      type: "failed",
      why: `the loss became ${loss} at update ${run.step}; train again with another seed`,
    });
  } else if (EVALUATIONS.includes(run.step) || run.step % 25 === 0 || run.step === train.steps) await evaluate();
}

// The loss on held-out documents, all together and by skill: sums of surprise, in nats.
async function evaluate() {
  const { language, state } = run;
  const held = language.held_out;
  const n = held.lengths.length;
  const [inputs, targets, counts] = batchOf(held, 0, n);
  const [surprise_BT, counts_BT] = [run.surprises(tree.ref(state.model), inputs, targets), counts];
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
  postMessage({
    type: "evaluated",
    step: run.step,
    loss: all.nats / all.tokens,
    floor: all.floor / all.tokens,
    bySkill,
  });
  postMessage({ type: "wrote", step: run.step, ids: await write() });
}

// A document, token by token, each drawn from the model's own probabilities.
async function write() {
  const { language, state, random } = run;
  const T = language.train.length_of_row - 1;
  const ids = new Int32Array(T);
  ids[0] = language.end_of_text;
  let n = 1;
  for (; n < T; n++) {
    const [p_BTV, ...maps] = run.look(tree.ref(state.model), np.array(ids).reshape([1, T]));
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
  const [p_BTV, ...maps] = run.look(tree.ref(state.model), inputs);
  const attention = [];
  for (const weights_BHTS of maps) attention.push(await weights_BHTS.data());
  postMessage({ type: "looked", document, p: await p_BTV.data(), attention, T, heads: config.n_heads, step: run.step });
}

// One update, and then the next, unless the page has asked for a pause.
async function train() {
  if (isTraining && run.step < run.language.config.train.steps) {
    await update();
    await new Promise((resolve) => setTimeout(resolve)); // messages of the page are heard
    soon(train);
  } else {
    isTraining = false;
    postMessage({ type: "stopped" });
  }
}

const answers = {
  begin,
  train: () => ((isTraining = true), train()),
  step: update,
  look,
  weights: async () => {
    const { step, tokens } = run;
    postMessage({ type: "weights", weights: await weightsOf(run.state.model, run.names), step, tokens });
  },
};

// One after the other: an update frees the weights that a look at the model would still read.
let last = Promise.resolve();
function soon(job, asked) {
  const failed = (error) => {
    isTraining = false;
    postMessage({ type: "failed", why: String(error.message ?? error) });
  };
  last = last.then(() => job(asked)).catch(failed);
}

addEventListener("message", ({ data }) => {
  if (data.type === "pause") isTraining = false;
  else soon(answers[data.type], data);
});
