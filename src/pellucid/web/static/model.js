// The decoder in plain JavaScript: tokens in, a score for every possible next token out.
//
//     tokens ─► embedding (+ positions) ─► block 1 ─► … ─► block n ─► norm ─► unembedding ─► logits
//
// Read it beside src/pellucid/model/: what has the same name there computes the same there. There a tensor holds a
// batch of texts; here is one text, as a list of vectors: x_TD is T arrays of D numbers. What works on each position
// alone takes one vector, x_D. Sums are taken in float64, JavaScript's own numbers, and kept in float32.
//
// Every step hands what it computed to `see(name, x)`, which gives it back, or what shall stand in its place: so a
// trace listens, and a knock-out interferes.
//
// Shapes: T query positions, S key positions, D model, H heads, G key/value heads, K head width, F feed-forward,
// V vocabulary.

import { unpacked } from "./tensor.js";

const unseen = (name, x) => x;

// ---------------------------------------------------------------------------------------------------- decoder.py

export class Decoder {
  // config: the `model` section of the run's YAML. weights: {name: {shape, dtype, data}}, as in model.safetensors, with
  // data in base64.
  constructor(config, weights) {
    const tensor = (name) => (name in weights ? rowsOf(weights[name]) : null);
    this.config = config;
    this.contextLength = config.context_length;
    this.headWidth = config.head_width ?? config.d_model / config.n_heads;
    this.embedding_VD = tensor("embeddings.embedding_VD");
    this.unembedding_VD = tensor("embeddings.unembedding_VD") ?? this.embedding_VD; // tied: one matrix, used twice
    this.positions = buildPositions(config, tensor);
    const layers = Array.from({ length: config.n_layers }, (_, layer) => layer);
    this.blocks = layers.map((layer) => buildBlock(config, tensor, layer, this.positions));
    this.finalNorm = config.norm_placement === "post" ? (x_D) => x_D : buildNorm(config, tensor, "final_norm");
    this.softCap = buildSoftCap(config.logit_soft_cap);
  }

  // Logits (T, V): those at position t score token t + 1 and depend on tokens 0 ... t alone. With a state, the tokens
  // continue those it has seen, and are added to it.
  forward(tokens, state = this.newState(), see = unseen) {
    return this.hidden(tokens, state, see).map((x_D) => this.unembed(x_D));
  }

  // What the logits are read from: a vector for each token, after the final norm.
  hidden(tokens, state = this.newState(), see = unseen) {
    const start = state[0].length;
    this.checkLength(start + tokens.length);
    let x_TD = tokens.map((token, t) => this.positions.addToEmbedding(this.embedding_VD[token], start + t));
    x_TD = see("embedding", x_TD);
    this.blocks.forEach((block, layer) => {
      x_TD = block(x_TD, state[layer], within(layer, see));
    });
    return x_TD.map(this.finalNorm);
  }

  // From such a vector to the logits (V): a token's row times x is its score.
  unembed(x_D) {
    return this.softCap(matrixVector(this.unembedding_VD, x_D));
  }

  newState() {
    return this.blocks.map(() => new LayerCache(this.config.n_kv_heads ?? this.config.n_heads));
  }

  checkLength(length) {
    if (length > this.contextLength)
      throw new RangeError(`${length} tokens are more than the ${this.contextLength} that the model reads at once`);
  }
}

function buildSoftCap(cap = null) {
  if (cap === null) return (scores) => scores;
  return (scores) => scores.map((score) => cap * Math.tanh(score / cap));
}

// ------------------------------------------------------------------------------------------------------ block.py

// Attention, then feed-forward, each with its norm and residual connection (equation 10). In a parallel block
// feed-forward reads what attention has read (equation 54).
function buildBlock(config, tensor, layer, positions) {
  const name = `blocks.${layer}`;
  const { unrotated_last_layers = 0, unrotated_layers = [] } = config.position;
  const isRotated = layer < config.n_layers - unrotated_last_layers && !unrotated_layers.includes(layer);
  const window = windowIn(config, layer);
  const clocks = window < Infinity ? positions.inWindows : positions;
  const ownPositions = isRotated ? clocks : NO_POSITIONS;
  const attention = new MultiHeadAttention(config, tensor, `${name}.attention.sublayer`, ownPositions, window);
  const feedForward = buildFeedForward(config, tensor, `${name}.feed_forward.sublayer`);
  const kinds = { pre: preNorm, parallel: preNorm, post: postNorm, output: outputNorm, both: bothNorms };
  const residual = kinds[config.norm_placement];
  const isParallel = config.norm_placement === "parallel";
  const normsOf = (part) => ["norm", "output_norm"].map((norm) => buildNorm(config, tensor, `${name}.${part}.${norm}`));
  const [attentionNorms, feedForwardNorms] = ["attention", "feed_forward"].map(normsOf);

  const forward = (x_TD, cache, see) => {
    const [seeAttention, seeFeedForward] = ["attention", "feed_forward"].map((part) => within(part, see));
    const attend = (x_TD) => attention.forward(x_TD, cache, seeAttention);
    const attended_TD = residual(x_TD, attentionNorms, attend, seeAttention);
    const work = (x_TD) => feedForward(x_TD, seeFeedForward);
    return residual(attended_TD, feedForwardNorms, work, seeFeedForward, isParallel ? x_TD : attended_TD);
  };
  return Object.assign(forward, { W_O: attention.W_O });
}

const within = (part, see) => (name, x) => see(`${part}.${name}`, x);

// --------------------------------------------------------------------------------------------------- residual.py

// x + f(norm(x)); or of what else f reads
function preNorm(x_TD, [norm], sublayer, see, read_TD = x_TD) {
  see("x", x_TD);
  const y_TD = sublayer(see("norm(x)", read_TD.map(norm)));
  const sum_TD = x_TD.map((x_D, t) => add(x_D, y_TD[t]));
  return see("new x", sum_TD);
}

// norm(x + f(x))
function postNorm(x_TD, [norm], sublayer, see) {
  const y_TD = sublayer(see("x", x_TD));
  const sum_TD = x_TD.map((x_D, t) => add(x_D, y_TD[t]));
  return see("new x", sum_TD.map(norm));
}

// x + norm(f(x)) (equation 52)
function outputNorm(x_TD, [norm], sublayer, see) {
  const y_TD = sublayer(see("x", x_TD)).map(norm);
  const sum_TD = x_TD.map((x_D, t) => add(x_D, y_TD[t]));
  return see("new x", sum_TD);
}

// x + outputNorm(f(norm(x))) (equation 58)
function bothNorms(x_TD, [norm, outputNorm], sublayer, see) {
  const y_TD = sublayer(see("norm(x)", see("x", x_TD).map(norm))).map(outputNorm);
  const sum_TD = x_TD.map((x_D, t) => add(x_D, y_TD[t]));
  return see("new x", sum_TD);
}

// -------------------------------------------------------------------------------------------------- attention.py

// Several attentions side by side, each in its own K-wide projection of x (equation 9). With fewer key/value heads than
// query heads, each is shared by a group of query heads.
class MultiHeadAttention {
  constructor(config, tensor, name, positions, window) {
    this.headWidth = config.head_width ?? config.d_model / config.n_heads;
    this.nHeadsPerGroup = config.n_heads / (config.n_kv_heads ?? config.n_heads);
    this.window = window;
    this.softCap = buildSoftCap(config.attention_soft_cap);
    for (const W of ["W_Q", "W_K", "W_V", "W_O"]) this[W] = buildLinear(tensor, `${name}.${W}`);
    this.queryNorm = headNorm(config, tensor, `${name}.query_norm`);
    this.keyNorm = headNorm(config, tensor, `${name}.key_norm`);
    this.positions = positions;
  }

  forward(x_TD, cache, see) {
    const q_HTK = this.project(x_TD, this.W_Q, this.queryNorm);
    const k_GTK = this.project(x_TD, this.W_K, this.keyNorm);
    const v_GTK = this.project(x_TD, this.W_V);
    const heads_HTK = see("heads", this.gather(q_HTK, k_GTK, v_GTK, cache, see));
    const concatenated_TD = x_TD.map((_, t) => concatenate(heads_HTK.map((heads_TK) => heads_TK[t])));
    return see("output", concatenated_TD.map(this.W_O));
  }

  // W x, cut into heads, with the norm of all heads before and of each head after.
  project(x_TD, W, { ofAll, ofEach } = { ofAll: same, ofEach: same }) {
    const y_TD = x_TD.map((x_D) => ofAll(W(x_D)));
    const K = this.headWidth;
    const nHeads = y_TD[0].length / K;
    const part = (y_D, head) => ofEach(y_D.subarray(head * K, (head + 1) * K));
    return Array.from({ length: nHeads }, (_, head) => y_TD.map((y_D) => part(y_D, head)));
  }

  // For each query, a mix of the values at its position and before it.
  gather(q_HTK, k_GTK, v_GTK, cache, see) {
    const start = cache.length;
    const rotate = (x_TK) => x_TK.map((x_K, t) => this.positions.rotate(x_K, start + t));
    q_HTK = see("q", q_HTK.map(rotate));
    k_GTK = see("k", k_GTK.map(rotate));
    v_GTK = see("v", v_GTK);
    const [k_GSK, v_GSK] = cache.append(k_GTK, v_GTK);
    const group = (head) => Math.floor(head / this.nHeadsPerGroup);
    const mask = windowMask(q_HTK[0].length, k_GSK[0].length, this.window);
    let scores_HTS = q_HTK.map((q_TK, head) => scaledProducts(q_TK, k_GSK[group(head)], mask, this.softCap));
    scores_HTS = see("scores", scores_HTS);
    let weights_HTS = scores_HTS.map((scores_TS) => scores_TS.map(softmax));
    weights_HTS = see("weights", weights_HTS);
    return weights_HTS.map((weights_TS, head) => weights_TS.map((weights_S) => mix(weights_S, v_GSK[group(head)])));
  }
}

const same = (x) => x;

// How many tokens a position sees in this layer.
export const windowIn = ({ attention }, layer) =>
  attention.full_layers?.includes(layer) ? Infinity : (attention.window ?? Infinity);

// Norms of queries or keys: of those of all heads as one vector, and of each head's.
function headNorm(config, tensor, name) {
  return {
    ofAll: config.qk_norm === "all_heads" ? buildNorm(config, tensor, `${name}.norm`) : same,
    ofEach: config.qk_norm === true ? buildNorm(config, tensor, name) : same,
  };
}

// q k^T / sqrt(K) + mask: how much each query wants each key's value (equation 7), in some models capped (equation 57).
function scaledProducts(q_TK, k_SK, mask, softCap) {
  const root = Math.sqrt(q_TK[0].length);
  const scores = (q_K) => softCap(matrixVector(k_SK, q_K).map((product) => product / root));
  return q_TK.map((q_K, t) => scores(q_K).map((score, s) => score + mask(t, s)));
}

// 0 where the key is at or before the query and one of the last `window`, -infinity elsewhere: no look into the future
// (equations 8 and 39). The queries are the last of the positions: with a cache there are keys before the first.
function windowMask(nQueries, nKeys, window) {
  return (t, s) => {
    const distance = t + nKeys - nQueries - s;
    return distance >= 0 && distance < window ? 0 : -Infinity;
  };
}

// Scores as shares that sum to one. Without their largest, which changes nothing, no exponential is infinite.
function softmax(scores_S) {
  const largest = scores_S.reduce((a, b) => Math.max(a, b));
  const powers_S = scores_S.map((score) => Math.exp(score - largest));
  const total = sum(powers_S);
  return powers_S.map((power) => power / total);
}

// The sum over s of weight s times value s.
function mix(weights_S, v_SK) {
  const sum_K = new Float64Array(v_SK[0].length);
  weights_S.forEach((weight, s) => {
    if (weight !== 0) for (let i = 0; i < sum_K.length; i++) sum_K[i] += weight * v_SK[s][i];
  });
  return Float32Array.from(sum_K);
}

// --------------------------------------------------------------------------------------------------- kv_cache.py

// What attention has computed for the tokens so far, so that it need not again: with it, a new token costs the work of
// one position.
class LayerCache {
  constructor(nKvHeads) {
    this.keys_GSK = Array.from({ length: nKvHeads }, () => []);
    this.values_GSK = Array.from({ length: nKvHeads }, () => []);
  }

  get length() {
    return this.keys_GSK[0].length;
  }

  // Store the keys and values of the next positions; returns all so far.
  append(k_GTK, v_GTK) {
    k_GTK.forEach((k_TK, group) => this.keys_GSK[group].push(...k_TK));
    v_GTK.forEach((v_TK, group) => this.values_GSK[group].push(...v_TK));
    return [this.keys_GSK, this.values_GSK];
  }
}

// ----------------------------------------------------------------------------------------------- feed_forward.py

// At every position alone, widen, apply a non-linearity, and narrow again: W_2 activation(W_1 x) (equation 11), or
// SwiGLU or GeGLU, where one projection opens and shuts the other.
function buildFeedForward(config, tensor, name) {
  const [W_1, W_2] = [buildLinear(tensor, `${name}.W_1`), buildLinear(tensor, `${name}.W_2`)];
  const gate = GATES[config.activation];
  const W_gate = gate && buildLinear(tensor, `${name}.W_gate`);

  function widened(x_D) {
    if (!gate) return W_1(x_D).map(ACTIVATIONS[config.activation]);
    const gate_F = W_gate(x_D);
    return W_1(x_D).map((value, i) => gate(gate_F[i]) * value);
  }

  return (x_TD, see) => {
    const hidden_TF = see("hidden", x_TD.map(widened));
    return see("output", hidden_TF.map(W_2));
  };
}

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  relu_squared: (x) => Math.max(0, x) ** 2,
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  gelu_tanh: (x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
};

const GATES = { swiglu: (x) => x / (1 + Math.exp(-x)), geglu_tanh: ACTIVATIONS.gelu_tanh };

// The error function, to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26).
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
}

// ------------------------------------------------------------------------------------------------------ norms.py

function buildNorm(config, tensor, name) {
  const [gain, bias] = [tensor(`${name}.weight`), tensor(`${name}.bias`)];
  return config.norm === "rms_norm" ? rmsNorm(gain, config.norm_epsilon) : layerNorm(gain, bias, config.norm_epsilon);
}

// gain * (x - mean) / sqrt(variance + epsilon) + bias, over a token's coordinates.
function layerNorm(gain, bias, epsilon) {
  return (x_D) => {
    const mean = sum(x_D) / x_D.length;
    const variance = x_D.reduce((total, x) => total + (x - mean) ** 2, 0) / x_D.length;
    const scale = 1 / Math.sqrt(variance + epsilon);
    return x_D.map((x, i) => gain[i] * (x - mean) * scale + (bias ? bias[i] : 0));
  };
}

// gain * x / sqrt(mean(x^2) + epsilon).
function rmsNorm(gain, epsilon) {
  return (x_D) => {
    const scale = 1 / Math.sqrt(dot(x_D, x_D) / x_D.length + epsilon);
    return x_D.map((x, i) => gain[i] * x * scale);
  };
}

// -------------------------------------------------------------------------------------------------- positions.py

// No positions: only the causal mask, which hides the future, tells the order (equation 6).
const NO_POSITIONS = { addToEmbedding: (x_D) => x_D, rotate: (x_K) => x_K };

function buildPositions(config, tensor) {
  const { type, base, base_in_windows, rotated_fraction, stretch } = config.position;
  const rotatedWidth = Math.floor(rotated_fraction * (config.head_width ?? config.d_model / config.n_heads));
  const growth = stretch?.attention_factor ?? 1;
  const positions_TD = tensor("positions.positions_TD");
  const kinds = {
    learned: { addToEmbedding: (x_D, t) => add(x_D, positions_TD[t]) }, // one vector per position (equation 6)
    sinusoidal: { addToEmbedding: addWaves },
    rope: { rotate: (x_K, t) => rotatePairs(x_K, clockAngles(t, rotatedWidth, base, stretch), growth) },
  };
  const positions = { ...NO_POSITIONS, ...kinds[type] };
  if (!base_in_windows) return { ...positions, inWindows: positions };
  const rotate = (x_K, t) => rotatePairs(x_K, clockAngles(t, rotatedWidth, base_in_windows)); // equation 59
  return { ...positions, inWindows: { ...NO_POSITIONS, rotate } };
}

// Fixed waves: PE[t, 2i] = sin(t / 10000^(2i/D)) and PE[t, 2i+1] = cos(the same angle) (equation 4).
function addWaves(x_D, t) {
  const angles = clockAngles(t, x_D.length, 10_000);
  return x_D.map((x, i) => x + (i % 2 === 0 ? Math.sin : Math.cos)(angles[Math.floor(i / 2)]));
}

// RoPE: queries and keys turn with their position, the pair (i, i + I) by t * base^(-i/I) (equation 5). With fewer
// pairs I than K/2, the last coordinates stay. Pairs grow where a stretch says so.
function rotatePairs(x_K, angles, growth = 1) {
  const turned_K = x_K.slice();
  angles.forEach((angle, i) => {
    const [a, b] = [x_K[i], x_K[i + angles.length]];
    const [cos, sin] = [growth * Math.cos(angle), growth * Math.sin(angle)];
    turned_K[i] = a * cos - b * sin;
    turned_K[i + angles.length] = b * cos + a * sin;
  });
  return turned_K;
}

// Angle of each of the width/2 clocks at position t: t * base^(-2i/width), in radians, rounded as PyTorch does. With
// `stretch` those that make few turns in the context of training run slower (equations 49 and 55).
function clockAngles(t, width, base, stretch) {
  return Float32Array.from({ length: width / 2 }, (_, i) => {
    const speed = Math.fround(base ** ((-2 * i) / width));
    if (!stretch) return t * speed;
    const kept = stretch.linear_in === "clocks" ? keptByNumber(i, width, base, stretch) : keptByTurns(speed, stretch);
    return t * speed * (kept + (1 - kept) / stretch.factor);
  });
}

const clamped = (share) => Math.min(1, Math.max(0, share));

function keptByTurns(speed, { trained_length, slow_turns, fast_turns }) {
  const turns = (trained_length * speed) / (2 * Math.PI);
  return clamped((turns - slow_turns) / (fast_turns - slow_turns));
}

function keptByNumber(i, width, base, { trained_length, slow_turns, fast_turns }) {
  const number = (turns) => (width * Math.log(trained_length / (turns * 2 * Math.PI))) / (2 * Math.log(base));
  const first = Math.max(Math.floor(number(fast_turns)), 0);
  const last = Math.min(Math.ceil(number(slow_turns)), width - 1);
  return 1 - clamped((i - first) / (last - first || 0.001));
}

// ------------------------------------------------------------------------------------------------ inspection/trace.py

// What the model computes for a text, all of it, by the name under which it was seen: "1.attention.q". In order, in
// each layer (docs/equations.md):
//     attention.x .norm(x)                                 the stream (T, D), and as the sublayer reads it
//     attention.q .k .v .scores .weights .heads .output    by head: (H, T, K), (H, T, S); the output (T, D)
//     attention.new x                                      the stream after it
//     feed_forward.x .norm(x) .hidden .output .new x       (T, D), but hidden (T, F)
// residuals: the stream after the embedding and after each sublayer; `points` names these places.
//
// instead: [[place, rows], …]: at a place stand these T rows, not what the model computes. A place is ["head", layer,
// head], ["attention", layer] or ["feed_forward", layer]. With the rows of another text, this is activation patching.
//
// before: an earlier trace by the same model, with the same instead. What is computed at a token depends on no later
// token, so for the `nKept` tokens with which both texts begin, it is taken from there: nearly all, while one types.
export function trace(model, tokens, instead = [], before = null) {
  const nKept = before ? sameBeginning(before.tokens, tokens) : 0;
  const seen = {};
  model.hidden(tokens.slice(nKept), stateAfter(model, before, nKept), (name, x) => {
    x = replaced(instead, name, x, nKept);
    seen[name] = nKept ? withKept(name, before.seen[name], nKept, x) : x;
    return x;
  });
  const sublayers = model.blocks.flatMap((_, layer) => [`${layer}.attention`, `${layer}.feed_forward`]);
  return {
    tokens,
    nKept,
    seen,
    points: ["embedding", ...sublayers],
    residuals: [seen.embedding, ...sublayers.map((sublayer) => seen[`${sublayer}.new x`])],
    attention: model.blocks.map((_, layer) => seen[`${layer}.attention.weights`]),
  };
}

// What a place gave: K numbers of a head, D of a sublayer, at each position.
export function outputOf({ seen }, [kind, layer, head]) {
  return kind === "head" ? seen[`${layer}.attention.heads`][head] : seen[`${layer}.${kind}.output`];
}

// What stands at a place that is knocked out: zeros (Michel et al. 2019).
export function nothing(model, place, nTokens) {
  const width = place[0] === "head" ? model.headWidth : model.config.d_model;
  return Array.from({ length: nTokens }, () => new Float32Array(width));
}

function replaced(instead, name, x, start) {
  for (const [[kind, layer, head], rows] of instead) {
    if (kind === "head" && name === `${layer}.attention.heads`) x = x.with(head, rows.slice(start));
    if (kind !== "head" && name === `${layer}.${kind}.output`) x = rows.slice(start);
  }
  return x;
}

// With how many tokens both begin. The last is not counted: a model needs a token to read.
function sameBeginning(before, tokens) {
  let n = 0;
  while (n < tokens.length - 1 && before[n] === tokens[n]) n++;
  return n;
}

// The model's state after the first n tokens of a trace.
function stateAfter(model, before, n) {
  const state = model.newState();
  if (n === 0) return state;
  const first = (name) => before.seen[name].map((x_TK) => x_TK.slice(0, n));
  state.forEach((cache, layer) => cache.append(first(`${layer}.attention.k`), first(`${layer}.attention.v`)));
  return state;
}

// The first n rows of what was seen before, then the new ones; by head, where x has heads. Rows of scores and weights
// are as long as the text: they end with what the mask makes of the later tokens.
function withKept(name, before, n, x) {
  if (Array.isArray(x[0])) return x.map((x_T, head) => withKept(name, before[head], n, x_T));
  const width = x[0].length;
  if (width === before[0].length) return [...before.slice(0, n), ...x];
  const masked = name.endsWith(".scores") ? -Infinity : 0;
  const kept = before.slice(0, n).map((row) => {
    const fitted = new Float32Array(width).fill(masked);
    fitted.set(row.subarray(0, width));
    return fitted;
  });
  return [...kept, ...x];
}

// The logit lens (nostalgebraist 2020): logits (T, V), were the stream at this point the last.
export function lens(model, x_TD) {
  return x_TD.map((x_D) => model.unembed(model.finalNorm(x_D)));
}

// ------------------------------------------------------------------------------------------ inspection/logit_parts.py

// What adds up to the logits of these M tokens at position t: parts (N, M), heads (L, H, M) and bias (M).
export function logitParts(model, { residuals, seen }, t, ids) {
  const x_ND = residuals.map((x_TD) => x_TD[t]);
  const norm = held(model, x_ND.at(-1));
  const scores = (x_D) => ids.map((id) => dot(model.unembedding_VD[id], x_D));
  const bias = scores(norm(x_ND[0].map(() => 0)));
  const partOf = (x_D) => subtract(scores(norm(x_D)), bias);
  const parts = x_ND.map((x_D, n) => partOf(n ? subtract(x_D, x_ND[n - 1]) : x_D));
  const heads = model.blocks.map(({ W_O }, layer) => {
    const y_HK = seen[`${layer}.attention.heads`].map((y_TK) => y_TK[t]);
    const alone = (head) => W_O(concatenate(y_HK.map((y_K, i) => (i === head ? y_K : y_K.map(() => 0)))));
    const found = y_HK.map((_, head) => partOf(subtract(alone(head), alone(-1))));
    const missing = parts[1 + 2 * layer][0] - partOf(alone(-1))[0] - sum(found.map(([part]) => part));
    return Math.abs(missing) < 1e-3 ? found : found.map((part) => part.map(() => NaN)); // as in post-norm
  });
  return { parts, heads, bias };
}

// The last norm with its divisor as it is for x.
function held({ finalNorm, config }, x_D) {
  const bias_D = finalNorm(x_D.map(() => 0));
  const isCentred = config.norm === "layer_norm" && config.norm_placement !== "post";
  const centred = (y_D) => {
    const mean = isCentred ? sum(y_D) / y_D.length : 0;
    return y_D.map((y) => y - mean);
  };
  const centred_D = centred(x_D);
  const gain_D = subtract(finalNorm(x_D), bias_D).map((y, i) => y / centred_D[i] || 0);
  return (y_D) =>
    add(
      centred(y_D).map((y, i) => gain_D[i] * y),
      bias_D,
    );
}

// ---------------------------------------------------------------------------------------------- vectors and matrices

// A linear layer: W x + b.
function buildLinear(tensor, name) {
  const [weight, bias] = [tensor(`${name}.weight`), tensor(`${name}.bias`)];
  return (x) => (bias ? add(matrixVector(weight, x), bias) : matrixVector(weight, x));
}

function matrixVector(matrix, x) {
  const y = new Float32Array(matrix.length);
  for (let row = 0; row < y.length; row++) y[row] = dot(matrix[row], x);
  return y;
}

export function dot(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

const subtract = (a, b) => a.map((value, i) => value - b[i]);

const add = (a, b) => a.map((value, i) => value + b[i]);

const sum = (x) => x.reduce((a, b) => a + b, 0);

function concatenate(vectors) {
  return Float32Array.from(vectors.flatMap((vector) => Array.from(vector)));
}

// A tensor of the file as it is used here: a vector, or a matrix as a list of its rows.
function rowsOf(packed) {
  const tensor = unpacked(packed);
  if (tensor.shape.length === 1) return tensor.values;
  return Array.from({ length: tensor.shape[0] }, (_, row) => tensor.row(row).values);
}
