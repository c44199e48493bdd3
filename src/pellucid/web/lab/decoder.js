// The decoder of plain.py once more, for a browser: the same equations, names and order, with jax-js in the place of
// PyTorch. Queries and keys are normalised too (`model.qk_norm`), as in the recipes of the small languages.
//
// The last letters of an array's name are its axes: B rows, T positions (S for keys), D numbers per position, H heads of
// K = D/H numbers each, V tokens, O x I the shape of a weight. A function of jax-js frees the arrays that it is given;
// `.ref` keeps one for another use.

import { nn, numpy as np } from "./jax.js";

const linear = (x, weight_OI) => np.matmul(x, weight_OI.transpose());

// Centre the numbers of the last axis, divide by their standard deviation, and multiply by a gain (equation 6).
function layerNorm(x, gain) {
  const centred = x.ref.sub(np.mean(x, -1, { keepdims: true }));
  const variance = np.mean(np.square(centred.ref), -1, { keepdims: true });
  return centred.div(np.sqrt(variance.add(1e-5))).mul(gain);
}

// Turn queries or keys by their position: RoPE (equation 5).
function rotate(x_BHTK) {
  const [, , T, K] = x_BHTK.shape;
  const angle = (t, i) => t * 10_000 ** ((-2 * i) / K);
  const table = (wave) => {
    const values_TK = Float32Array.from({ length: (T * K) / 2 }, (_, at) =>
      wave(angle(Math.floor(at / (K / 2)), at % (K / 2))),
    );
    return np.array(values_TK).reshape([T, K / 2]);
  };
  const [cos, sin] = [table(Math.cos), table(Math.sin)];
  const [a, b] = np.split(x_BHTK, 2, -1);
  const turned = [a.ref.mul(cos.ref).sub(b.ref.mul(sin.ref)), b.mul(cos).add(a.mul(sin))];
  return np.concatenate(turned, -1);
}

// Each position gathers what it needs from itself and the positions before it (equations 7, 8 and 9). Its weights are
// added to `maps`, if that is given.
function attention({ W_Q, W_K, W_V, W_O, query_norm, key_norm }, x_BTD, nHeads, maps) {
  const [B, T, D] = x_BTD.shape;
  const K = D / nHeads;
  const heads = (x, weight) => linear(x, weight).reshape([B, T, nHeads, K]).transpose([0, 2, 1, 3]);
  const q_BHTK = rotate(layerNorm(heads(x_BTD.ref, W_Q), query_norm));
  const k_BHSK = rotate(layerNorm(heads(x_BTD.ref, W_K), key_norm));
  const v_BHSK = heads(x_BTD, W_V);
  const scores_BHTS = np.matmul(q_BHTK, k_BHSK.transpose([0, 1, 3, 2])).mul(1 / Math.sqrt(K));
  const weights_BHTS = nn.softmax(np.where(np.tri(T).greater(0.5), scores_BHTS, -1e30), -1);
  maps?.push(weights_BHTS.ref);
  const heads_BHTK = np.matmul(weights_BHTS, v_BHSK);
  return linear(heads_BHTK.transpose([0, 2, 1, 3]).reshape([B, T, D]), W_O);
}

// At every position alone: widen, max(0, u)^2, narrow again (equation 11, without biases).
const feedForward = ({ W_1, W_2 }, x_BTD) => linear(np.square(nn.relu(linear(x_BTD, W_1))), W_2);

// Tokens in, logits out; those at position t depend on tokens 0 ... t alone.
export function decoder({ embedding_VD, blocks, final_norm }, tokens_BT, nHeads, maps = null) {
  let x_BTD = embedding_VD.ref.slice(tokens_BT);
  for (const block of blocks) {
    x_BTD = x_BTD.ref.add(attention(block, layerNorm(x_BTD, block.attention_norm), nHeads, maps));
    x_BTD = x_BTD.ref.add(feedForward(block, layerNorm(x_BTD, block.feed_forward_norm)));
  }
  return linear(layerNorm(x_BTD, final_norm), embedding_VD); // tied: the embedding, once more (equation 3)
}

// -ln p(true next token) at each place, in nats (equation 2).
export function surprises(model, inputs_BT, targets_BT, nHeads) {
  const [B, T] = targets_BT.shape;
  const isTarget_BTV = np.equal(targets_BT.reshape([B, T, 1]), np.arange(model.embedding_VD.shape[0]));
  const log_p_BTV = nn.logSoftmax(decoder(model, inputs_BT, nHeads), -1);
  return np.sum(np.where(isTarget_BTV, log_p_BTV, 0), -1).mul(-1);
}

// The mean over the places that count: 1 for a token of a document, 0 for what fills its row.
export function loss(model, inputs_BT, targets_BT, counts_BT, nHeads) {
  const total = np.sum(surprises(model, inputs_BT, targets_BT, nHeads).mul(counts_BT.ref));
  return total.div(np.sum(counts_BT));
}
