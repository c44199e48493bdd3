// The parts of a model, in the order in which a text passes them: from the `model` section of its config and the shapes
// of its weights. panel_machine.js draws them.
//
// A part: {kind, title, size: the shapes of what it computes with, read: how many tokens it reads, out: the width of what leaves it, says: what it does,
// weights: how many it has, door: the section of the page that shows more}. Input, layers and scores have `parts`. What leaves
// a part at a point of the residual stream has its number in the logit lens, `point`.

import { thousands } from "./elements.js";
import { windowIn } from "./model.js";

export function partsOf(model) {
  const { type } = model.config;
  const kinds = { decoder, bigram, mlp };
  return [...(kinds[type] ?? recurrent)(model), NEXT];
}

const part = (kind, title, says, more) => ({ kind, title, says, ...more });
const entrance = (...parts) => ({ kind: "entrance", title: "Input", parts: [TEXT, ...parts] });
const readout = (...parts) => ({ kind: "readout", title: "Scores", parts });

const TEXT_SAYS = "The text, cut into tokens. The model sees their numbers, not their letters.";
const TEXT = part("text", "Tokens", TEXT_SAYS, { door: "text" });
const NEXT_SAYS = "Softmax turns the scores, divided by the temperature, into probabilities.";
const NEXT = part("next", "Next token", NEXT_SAYS, { door: "next" });

const ACTIVATIONS = {
  relu: "ReLU",
  gelu: "GELU",
  gelu_tanh: "GELU",
  relu_squared: "ReLU²",
  swiglu: "SwiGLU",
  geglu_tanh: "GeGLU",
};
const ROW = "A table: each token has a row of numbers, its vector.";
const ORDER = {
  rope: "The order of the tokens comes later, in attention: RoPE turns queries and keys by an angle for each position.",
  sinusoidal: "A vector of sines and cosines is added, which says where the token stands.",
  learned: "A learned vector is added, which says where the token stands.",
  none: "Nothing says where a token stands: only the causal mask tells the order.",
};

function decoder(model) {
  const { config } = model;
  const layers = Array.from({ length: config.n_layers }, (_, layer) => {
    const parts = [attention(model, layer), feedForward(model, layer)];
    return { kind: "block", title: `Layer ${layer}`, layer, parts };
  });
  const last = config.norm_placement === "post" ? [] : [norm(model, "vector")];
  const rows = { ...embedding(model), point: 0, says: `${ROW} ${ORDER[config.position.type]}` };
  return [entrance(rows), ...layers, readout(...last, unembedding(model))];
}

function norm({ config, weights }, what) {
  const title = config.norm === "rms_norm" ? "RMSNorm" : "LayerNorm";
  const says = `Brings every ${what} to the same scale before the scores are read from it.`;
  const door = config.type === "decoder" ? "lens" : undefined;
  return part("norm", title, says, { size: `${config.d_model}`, weights: counted({ weights }, "final_norm."), door });
}

function attention(model, layer) {
  const { d_model: D, n_heads: H, n_kv_heads: G, head_width, attention } = model.config;
  const K = head_width ?? D / H;
  const window = windowIn(model.config, layer);
  const kind = window < Infinity ? "sliding_window" : attention;
  const title = { linear: "Linear attention", sliding_window: `Attention, window ${window}` }[kind] ?? "Attention";
  const reads = {
    linear: `Each head keeps a running sum of keys times values, a table of ${K} × ${K} numbers, whatever the length of the text.`,
    sliding_window: `Each head looks back at the last ${window} tokens, and takes from each what it needs.`,
  };
  const read = reads[kind] ?? "Each head looks back at all tokens so far, and takes from each what it needs.";
  const shared = G && G < H ? ` ${G} share keys and values.` : "";
  const says = `${read}${shared} Beside each head stands the token it takes most from.`;
  const weights = counted(model, `blocks.${layer}.attention.`);
  const more = { layer, size: `${H} heads × ${K}`, weights, door: "attention", point: 1 + 2 * layer };
  return part("attention", title, says, more);
}

function feedForward(model, layer) {
  const { d_model: D, d_ff: F, activation, feed_forward: mixture, norm_placement } = model.config;
  const weights = counted(model, `blocks.${layer}.feed_forward.`);
  const size = `${D} → ${thousands(F ?? 4 * D)} → ${D}, ${ACTIVATIONS[activation]}`;
  const more = { layer, size, weights, door: "inside", point: 2 + 2 * layer };
  const reads = norm_placement === "parallel" ? " It reads what attention reads, beside it." : "";
  const alone = "Works on each token alone: widens its vector, keeps what passes the activation, and narrows it again.";
  if (mixture.type !== "moe") return part("feed_forward", "Feed-forward", alone + reads, more);
  const { top_k, n_experts } = mixture;
  const router = `A router sends each token to ${top_k} of ${n_experts} feed-forward layers, and adds what they say.`;
  return part("feed_forward", `Experts: ${top_k} of ${n_experts}`, router + reads, more);
}

function embedding(model) {
  const size = `${thousands(model.vocab_size)} × ${model.config.d_model}`;
  const weights = counted(model, "embeddings.") + counted(model, "positions.");
  return part("embedding", "Embedding", ROW, { size, weights, door: "text" });
}

function unembedding({ config, vocab_size }) {
  const table = config.tied_embeddings
    ? "the table of the embedding, used a second time, so it has no weights of its own"
    : "a table of its own, counted with the embedding";
  const size = `${config.d_model} → ${thousands(vocab_size)}`;
  const says = `A score for every token: its row times the vector (${table}).`;
  return part("unembedding", "Unembedding", says, { size, weights: 0, door: "next" });
}

function bigram(model) {
  const V = thousands(model.vocab_size);
  const says = "A row of scores for each token that may come last. The model sees nothing before it.";
  const more = { read: 1, size: `${V} × ${V}`, weights: counted(model, ""), door: "next" };
  return [entrance(), part("table", "Table", says, more)];
}

function mlp(model) {
  const { window: W, d_model: D, d_ff, activation } = model.config;
  const [F, wide] = [thousands(d_ff ?? 4 * D), thousands(W * D)];
  const side = `The vectors of the last ${W} tokens make one long vector. What came before is forgotten.`;
  const says = "Widens the long vector, keeps what passes the activation, and narrows it to the width of one token.";
  const size = `${wide} → ${F} → ${D}, ${activation === "tanh" ? "tanh" : "ReLU"}`;
  return [
    entrance(embedding(model)),
    part("window", "Side by side", side, { read: W, size: `${W} × ${D} = ${wide}`, weights: 0 }),
    part("feed_forward", "Hidden layer", says, { size, weights: counted(model, "blocks.") }),
    readout(unembedding(model)),
  ];
}

const CELLS = {
  rnn: "The new state is a mixture of the old one and the token's vector. It is all that the model remembers.",
  lstm: "Gates decide what the cell forgets, what it takes in, and what of it the state shows. State and cell are all that the model remembers.",
  gru: "Gates decide how much of the old state stays and how much the token replaces. It is all that the model remembers.",
};

function recurrent(model) {
  const { type, d_model: D, n_layers } = model.config;
  const size = type === "lstm" ? `state ${D}, cell ${D}` : `state ${D}`;
  const layers = Array.from({ length: n_layers }, (_, layer) => {
    const weights = counted(model, "layers.", `_l${layer}`);
    return part("recurrent", `${type.toUpperCase()} layer ${layer}`, CELLS[type], { layer, size, weights });
  });
  return [entrance(embedding(model)), ...layers, readout(norm(model, "state"), unembedding(model))];
}

function counted({ weights }, beginning, end = "") {
  const own = Object.keys(weights).filter((name) => name.startsWith(beginning) && name.endsWith(end));
  return own.reduce((total, name) => total + weights[name].reduce((product, length) => product * length, 1), 0);
}
