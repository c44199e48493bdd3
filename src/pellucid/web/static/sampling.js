// From logits to the next token, as src/pellucid/generation/sampling.py does it, in the same order: top-k, temperature,
// top-p, draw.

export function softmax(logits) {
  return logSoftmax(logits).map(Math.exp);
}

// In loops, because a keystroke does this several times for the whole vocabulary, and callbacks take several times as long.
export function logSoftmax(logits) {
  const logSum = logSumExp(logits);
  const logP = new Float64Array(logits.length);
  for (let i = 0; i < logits.length; i++) logP[i] = logits[i] - logSum;
  return logP;
}

// log of the sum of e^logit: a logit without it is a log-probability.
export function logSumExp(logits) {
  let largest = -Infinity;
  for (let i = 0; i < logits.length; i++) largest = Math.max(largest, logits[i]);
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - largest);
  return largest + Math.log(sum);
}

// What may be drawn: {ids, p}, the likeliest first. top_k 0 keeps all; temperature 0 is greedy.
export function candidates(logits, { temperature, top_k, top_p }) {
  const order = new Uint32Array(logits.length).map((_, id) => id).sort((a, b) => logits[b] - logits[a] || a - b);
  if (temperature === 0 || top_k === 1) return { ids: order.slice(0, 1), p: Float64Array.of(1) };
  const ids = top_k > 0 ? order.slice(0, top_k) : order;
  const p = softmax(new Float64Array(ids.length).map((_, i) => logits[ids[i]] / temperature));
  if (top_p >= 1) return { ids, p };
  let before = 0;
  let kept = 0;
  while (kept < p.length && before < top_p) before += p[kept++];
  return { ids: ids.slice(0, kept), p: p.slice(0, kept).map((each) => each / before) };
}

// The tokens lie side by side on a line, each as long as its probability; a point on it, 0 ≤ point < 1, hits one.
export function draw({ ids, p }, point) {
  let end = 0;
  for (let i = 0; i < ids.length; i++) {
    end += p[i];
    if (point < end) return ids[i];
  }
  return ids[ids.length - 1];
}

// Σ p (log p − log q) in nats over all tokens.
export function divergence(logP, logQ) {
  let sum = 0;
  for (let i = 0; i < logP.length; i++) sum += Math.exp(logP[i]) * (logP[i] - logQ[i]);
  return Math.max(0, sum);
}

// The same from the truth, {ids, p}, to the model. Infinite where something may come that the model cannot write.
export function divergenceFromTruth(truth, logQ) {
  let sum = 0;
  truth.ids.forEach((id, i) => {
    if (truth.p[i] > 0) sum += truth.p[i] * (Math.log(truth.p[i]) - (id < 0 ? -Infinity : logQ[id]));
  });
  return Math.max(0, sum);
}

// The n likeliest ids.
export function likeliest(p, n) {
  const best = [];
  for (let id = 0; id < p.length; id++) {
    if (best.length === n && p[id] <= p[best[n - 1]]) continue;
    let place = best.length;
    while (place > 0 && p[best[place - 1]] < p[id]) place--;
    best.splice(place, 0, id);
    if (best.length > n) best.pop();
  }
  return best;
}
