// First weights, and one update: Muon on the matrices of the blocks, AdamW on all else, as in the recipes of the small
// languages. training/muon.py and plain.py have the same steps, and a test holds both to the same losses.

import { jit, numpy as np, tree, valueAndGrad } from "./jax.js";
import { loss } from "./decoder.js";

const MATRICES = ["W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"];
const [A, B, C] = [3.4445, -4.775, 2.0315]; // of Newton and Schulz, as in training/muon.py
const NEWTON_SCHULZ_STEPS = 5;

// Numbers between 0 and 1 that depend on the seed alone (mulberry32).
export function randomFrom(seed) {
  let state = (seed + 1) * 0x9e3779b1;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function normal(random, n, deviation) {
  const draw = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Float32Array.from({ length: n }, () => deviation * draw());
}

// n orthogonal vectors of length 1, row by row (Gram and Schmidt).
function orthogonal(random, n) {
  const rows = [];
  while (rows.length < n) {
    const row = normal(random, n, 1);
    for (const other of rows) {
      const along = row.reduce((sum, x, i) => sum + x * other[i], 0);
      row.forEach((_, i) => (row[i] -= along * other[i]));
    }
    const length = Math.hypot(...row);
    rows.push(row.map((x) => x / length));
  }
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

// The first weights, {name: {shape, values}}, with the names of Pellucid's checkpoints (model/initialization.py).
export function firstWeights({ vocab_size: V, d_model: D, n_layers, n_heads, embedding_std, copying_init }, seed) {
  const random = randomFrom(seed);
  const deviation = Math.sqrt(2 / (5 * D));
  const ones = (n) => ({ shape: [n], values: new Float32Array(n).fill(1) });
  const matrix = (rows, columns) => ({ shape: [rows, columns], values: normal(random, rows * columns, deviation) });
  const zeros = (rows, columns) => ({ shape: [rows, columns], values: new Float32Array(rows * columns) });
  const weights = {
    "embeddings.embedding_VD": { shape: [V, D], values: normal(random, V * D, embedding_std ?? 0.02) },
    "final_norm.weight": ones(D),
  };
  for (let layer = 0; layer < n_layers; layer++) {
    const [inAttention, inFeedForward] = ["attention", "feed_forward"].map((part) => `blocks.${layer}.${part}`);
    for (const name of ["W_Q", "W_K", "W_V"]) weights[`${inAttention}.sublayer.${name}.weight`] = matrix(D, D);
    weights[`${inAttention}.sublayer.W_O.weight`] = zeros(D, D);
    for (const name of ["query_norm", "key_norm"])
      weights[`${inAttention}.sublayer.${name}.weight`] = ones(D / n_heads);
    weights[`${inFeedForward}.sublayer.W_1.weight`] = matrix(4 * D, D);
    weights[`${inFeedForward}.sublayer.W_2.weight`] = zeros(D, 4 * D);
    for (const part of [inAttention, inFeedForward]) weights[`${part}.norm.weight`] = ones(D);
  }
  if (copying_init) {
    const last = `blocks.${n_layers - 1}.attention.sublayer`;
    const values = orthogonal(random, D);
    weights[`${last}.W_V.weight`].values = values;
    weights[`${last}.W_O.weight`].values = values.map((_, at) => values[(at % D) * D + Math.floor(at / D)] / 2);
  }
  return weights;
}

// blocks.0.attention.sublayer.W_Q.weight <-> model.blocks[0].W_Q, and the norm of a sublayer alike.
export function modelOf(weights) {
  const model = { blocks: [] };
  for (const [name, { shape, values }] of Object.entries(weights)) {
    const array = np.array(Float32Array.from(values)).reshape(shape);
    const [, layer, key] = placeOf(name);
    if (layer === null) model[key] = array;
    else (model.blocks[layer] ??= {})[key] = array;
  }
  return model;
}

export async function weightsOf(model, names) {
  const weights = {};
  for (const [name, layer, key] of names.map(placeOf)) {
    const array = layer === null ? model[key] : model.blocks[layer][key];
    weights[name] = { shape: array.shape, values: await array.ref.data() };
  }
  return weights;
}

function placeOf(name) {
  const parts = name.replace(/\.weight$/, "").split(".");
  if (parts[0] !== "blocks") return [name, null, parts.at(-1)];
  return [name, Number(parts[1]), parts.at(-1) === "norm" ? `${parts[2]}_norm` : parts.at(-1)];
}

// The running means of the optimizers, all zero at first.
export function freshState(model) {
  const zeros = () => tree.map((array) => np.zeros(array.shape), model);
  return { model, means: zeros(), squares: zeros() };
}

// An update, compiled once for a shape: (state, inputs, targets, counts, rates and corrections) -> [state, loss].
export function compiledUpdate(nHeads, optimizer, maxNorm) {
  return jit((state, inputs_BT, targets_BT, counts_BT, rate, step) => {
    const objective = (model) => loss(model, inputs_BT, targets_BT, counts_BT, nHeads);
    const [nats, gradient] = valueAndGrad(objective)(tree.ref(state.model));
    return [updated(state, clipped(gradient, maxNorm), rate, step, optimizer), nats];
  });
}

// The gradients, scaled so that as one long vector they are no longer than maxNorm (equation 27).
function clipped(gradient, maxNorm) {
  const squares = tree.leaves(gradient).map((g) => np.sum(np.square(g.ref)));
  const norm = np.sqrt(squares.reduce((a, b) => a.add(b)));
  const factor = np.minimum(1, np.array(maxNorm).div(norm.add(1e-6)));
  const scaled = tree.map((g) => g.mul(factor.ref), gradient);
  factor.dispose();
  return scaled;
}

function updated({ model, means, squares }, gradient, rate, step, optimizer) {
  const next = { model: { blocks: [] }, means: { blocks: [] }, squares: { blocks: [] } };
  const adam = ({ model, means, squares }, place, key, from) => {
    const [p, mean, square] = adamStep(model[key], means[key], squares[key], from[key], rate, step, optimizer);
    [place.model[key], place.means[key], place.squares[key]] = [p, mean, square];
  };
  const all = { model, means, squares };
  for (const key of ["embedding_VD", "final_norm"]) adam(all, next, key, gradient);
  model.blocks.forEach((_, layer) => {
    const within = (whole) => ({
      model: whole.model.blocks[layer],
      means: whole.means.blocks[layer],
      squares: whole.squares.blocks[layer],
    });
    for (const part of Object.values(next)) part.blocks.push({});
    const [from, to, slopes] = [within(all), within(next), gradient.blocks[layer]];
    for (const key of Object.keys(from.model).filter((each) => !MATRICES.includes(each))) adam(from, to, key, slopes);
    for (const key of MATRICES) {
      [to.model[key], to.means[key]] = muonStep(from.model[key], from.means[key], slopes[key], rate, optimizer);
      to.squares[key] = from.squares[key]; // Muon has no use for them
    }
  });
  rate.dispose();
  step.dispose();
  return next;
}

// Steps of about the same size for every parameter, however large its gradient (equations 15 and 28).
function adamStep(p, mean, square, gradient, rate, step, { adamw_lr, adamw_betas: [beta1, beta2], adamw_eps }) {
  mean = mean.ref.add(gradient.ref.sub(mean).mul(1 - beta1));
  square = square.ref.add(
    np
      .square(gradient)
      .sub(square)
      .mul(1 - beta2),
  );
  const corrected = (running, beta) => running.div(np.array(1).sub(np.power(beta, step.ref)));
  const divisor = np.sqrt(corrected(square.ref, beta2)).add(adamw_eps);
  return [p.sub(corrected(mean.ref, beta1).div(divisor).mul(rate.ref).mul(adamw_lr)), mean, square];
}

// A step along the nearest orthogonal matrix: equally far in every direction of the gradient (equation 31).
function muonStep(matrix, mean, gradient, rate, { lr, momentum }) {
  const [rows, columns] = matrix.shape;
  mean = mean.ref.add(gradient.ref.sub(mean).mul(1 - momentum));
  const ahead = gradient.ref.add(mean.ref.sub(gradient).mul(momentum));
  const direction = rows > columns ? newtonSchulz(ahead.transpose()).transpose() : newtonSchulz(ahead);
  return [matrix.sub(direction.mul(rate.ref).mul(lr * Math.sqrt(Math.max(1, rows / columns)))), mean];
}

function newtonSchulz(x_RC) {
  const norm = np.sqrt(np.sum(np.square(x_RC.ref)));
  x_RC = x_RC.div(np.maximum(norm, 1e-7));
  for (let i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
    const gram_RR = np.matmul(x_RC.ref, x_RC.ref.transpose());
    const cubicAndQuintic_RR = gram_RR.ref.mul(B).add(np.matmul(gram_RR.ref, gram_RR).mul(C));
    x_RC = x_RC.ref.mul(A).add(np.matmul(cubicAndQuintic_RR, x_RC));
  }
  return x_RC;
}

// Warmup, then 1, then a straight line down to 0 (training/schedules.py). For update `step` of `steps`, from 0.
export function learningRate(step, { steps, warmup_steps, decay_fraction }) {
  const decaySteps = Math.max(1, Math.round(decay_fraction * steps));
  const left = Math.min(1, (steps - 1 - step) / decaySteps);
  return Math.min(1, (step + 1) / (warmup_steps + 1)) * Math.max(0, left);
}
