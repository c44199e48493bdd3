// The parts of a model, in the order in which a text passes them: from the `model` section of its config and the shapes
// of its weights. panel_machine.js draws them.
//
// A part: {kind, title, size: the shapes of what it computes with, read: how many tokens it reads, out: the width of what leaves it, says: what it does,
// weights: how many it has, door: the section of the page that shows more}. Input, layers and scores have `parts`. What leaves
// a part at a point of the residual stream has its number in the logit lens, `point`.

import { thousands } from "./elements.js";

export function partsOf(model) {
  const { type } = model.config;
  const kinds = { decoder, bigram, mlp };
  return [...(kinds[type] ?? recurrent)(model), NEXT];
}

const TEXT = {
  kind: "text",
  title: "Tokens",
  door: "text",
  says: "The text, cut into tokens. The model sees their numbers, not their letters.",
};
const NEXT = {
  kind: "next",
  title: "Next token",
  door: "next",
  says: "Softmax turns the scores, divided by the temperature, into probabilities. The line marks the truth, where it is known.",
};

const ACTIVATIONS = { relu: "ReLU", gelu: "GELU", gelu_tanh: "GELU", relu_squared: "ReLU²", swiglu: "SwiGLU" };
const ORDER = {
  rope: "The order of the tokens comes later, in attention: RoPE turns queries and keys by an angle for each position.",
  sinusoidal: "A vector of sines and cosines is added, which says where the token stands.",
  learned: "A learned vector is added, which says where the token stands.",
  none: "Nothing says where a token stands: only the causal mask tells the order.",
};

function decoder(model) {
  const { config } = model;
  const { d_model: D, n_layers } = config;
  const layers = Array.from({ length: n_layers }, (_, layer) => block(model, layer));
  const norm = {
    kind: "norm",
    title: config.norm === "rms_norm" ? "RMSNorm" : "LayerNorm",
    size: `${D}`,
    weights: counted(model, "final_norm."),
    door: "lens",
    says: "Brings every vector to the same scale before the scores are read from it.",
  };
  return [
    entrance({ ...embedding(model), point: 0, says: `${ROW} ${ORDER[config.position.type]}` }),
    ...layers,
    readout(...(config.norm_placement === "pre" ? [norm] : []), unembedding(model)),
  ];
}

function block(model, layer) {
  const parts = [attention(model, layer), feedForward(model, layer)];
  return { kind: "block", title: `Layer ${layer}`, layer, parts };
}

function attention(model, layer) {
  const { config } = model;
  const { d_model: D, n_heads: H } = config;
  const K = config.head_width ?? D / H;
  const kind = config.attention.type ?? config.attention;
  const reads = {
    linear: `Each head keeps a running sum of keys times values, a table of ${K} × ${K} numbers, whatever the length of the text.`,
    sliding_window: `Each head looks back at the last ${config.attention.window} tokens, and takes from each what it needs.`,
  };
  const shared = config.n_kv_heads && config.n_kv_heads < H ? ` ${config.n_kv_heads} share keys and values.` : "";
  return {
    kind: "attention",
    title:
      { linear: "Linear attention", sliding_window: `Attention, window ${config.attention.window}` }[kind] ??
      "Attention",
    layer,
    size: `${H} heads × ${K}`,
    weights: counted(model, `blocks.${layer}.attention.`),
    door: "attention",
    point: 1 + 2 * layer,
    says: `${reads[kind] ?? "Each head looks back at all tokens so far, and takes from each what it needs."}${shared} Beside each head stands the token it takes most from.`,
  };
}

function feedForward(model, layer) {
  const { config } = model;
  const { d_model: D, feed_forward: mixture } = config;
  const F = config.d_ff ?? 4 * D;
  const isMixture = mixture.type === "moe";
  const alone = "Works on each token alone: widens its vector, keeps what passes the activation, and narrows it again.";
  const router = `A router sends each token to ${mixture.top_k} of ${mixture.n_experts} feed-forward layers, and adds what they say.`;
  return {
    kind: "feed_forward",
    title: isMixture ? `Experts: ${mixture.top_k} of ${mixture.n_experts}` : "Feed-forward",
    layer,
    size: `${D} → ${thousands(F)} → ${D}, ${ACTIVATIONS[config.activation]}`,
    weights: counted(model, `blocks.${layer}.feed_forward.`),
    door: "inside",
    point: 2 + 2 * layer,
    says: isMixture ? router : alone,
  };
}

const ROW = "A table: each token has a row of numbers, its vector.";

function embedding(model) {
  const { config, vocab_size } = model;
  return {
    kind: "embedding",
    title: "Embedding",
    size: `${thousands(vocab_size)} × ${config.d_model}`,
    weights: counted(model, "embeddings.") + counted(model, "positions."),
    door: "text",
    says: ROW,
  };
}

function entrance(...parts) {
  return { kind: "entrance", title: "Input", parts: [TEXT, ...parts] };
}

function readout(...parts) {
  return { kind: "readout", title: "Scores", parts };
}

function unembedding(model) {
  const { config, vocab_size } = model;
  const table = config.tied_embeddings
    ? "the table of the embedding, used a second time, so it has no weights of its own"
    : "a table of its own, counted with the embedding";
  return {
    kind: "unembedding",
    title: "Unembedding",
    size: `${config.d_model} → ${thousands(vocab_size)}`,
    weights: 0,
    door: "next",
    says: `A score for every token: its row times the vector (${table}).`,
  };
}

function bigram(model) {
  const V = thousands(model.vocab_size);
  return [
    entrance(),
    {
      kind: "table",
      read: 1,
      title: "Table",
      size: `${V} × ${V}`,
      weights: counted(model, ""),
      door: "next",
      says: "A row of scores for each token that may come last. The model sees nothing before it.",
    },
  ];
}

function mlp(model) {
  const { config } = model;
  const [W, D] = [config.window, config.d_model];
  const F = config.d_ff ?? 4 * D;
  return [
    entrance(embedding(model)),
    {
      kind: "window",
      read: W,
      title: "Side by side",
      size: `${W} × ${D} = ${thousands(W * D)}`,
      weights: 0,
      says: `The vectors of the last ${W} tokens make one long vector. What came before is forgotten.`,
    },
    {
      kind: "feed_forward",
      title: "Hidden layer",
      size: `${thousands(W * D)} → ${thousands(F)} → ${D}, ${config.activation === "tanh" ? "tanh" : "ReLU"}`,
      weights: counted(model, "blocks."),
      says: "Widens the long vector, keeps what passes the activation, and narrows it to the width of one token.",
    },
    readout(unembedding(model)),
  ];
}

const CELLS = {
  rnn: "The new state is a mixture of the old one and the token's vector. It is all that the model remembers.",
  lstm: "Gates decide what the cell forgets, what it takes in, and what of it the state shows. State and cell are all that the model remembers.",
  gru: "Gates decide how much of the old state stays and how much the token replaces. It is all that the model remembers.",
};

function recurrent(model) {
  const { config } = model;
  const D = config.d_model;
  const layers = Array.from({ length: config.n_layers }, (_, layer) => ({
    kind: "recurrent",
    title: `${config.type.toUpperCase()} layer ${layer}`,
    layer,
    size: config.type === "lstm" ? `state ${D}, cell ${D}` : `state ${D}`,
    weights: Object.entries(model.weights)
      .filter(([name]) => name.startsWith("layers.") && name.endsWith(`_l${layer}`))
      .reduce((total, [, shape]) => total + sizeOf(shape), 0),
    says: CELLS[config.type],
  }));
  const norm = {
    kind: "norm",
    title: "LayerNorm",
    size: `${D}`,
    weights: counted(model, "final_norm."),
    says: "Brings the state to the same scale before the scores are read from it.",
  };
  return [entrance(embedding(model)), ...layers, readout(norm, unembedding(model))];
}

const sizeOf = (shape) => shape.reduce((product, length) => product * length, 1);

function counted({ weights }, beginning) {
  const own = Object.entries(weights).filter(([name]) => name.startsWith(beginning));
  return own.reduce((total, [, shape]) => total + sizeOf(shape), 0);
}
