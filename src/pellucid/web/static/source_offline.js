// Where the numbers of an exported page come from: the file itself. web/export.py records what the server would answer
// for one text, and adds the weights of the latest checkpoint, which model.js runs on any text.
//
// The methods are those of source_server.js, which says what they return.

import { Decoder, dot, lens, logitParts, nothing, outputOf, trace } from "./model.js";
import { likeliest, logSumExp } from "./sampling.js";
import { SourceError, withTensors } from "./source_server.js";
import { runOf } from "./store.js";
import { Tensor } from "./tensor.js";
import { Tokenizer } from "./tokenizer.js";

const NO_TRUTH =
  "This file knows the truth only for its examples, because the grammar is not in it. " +
  "`pellucid serve` knows it for any text.";

const N_EXPLAINED = 5; // of the likeliest tokens, as in web/microscope.py

export function offlineSource(recorded) {
  const live = recorded.browser && liveAnswers(recorded);
  const answers = (checkpoint) =>
    live && checkpoint === recorded.latest ? live : recordedAnswers(recorded, checkpoint, live);
  const computed = (what) => async (asked) => {
    await null; // what the page draws now comes first
    return answers(asked.checkpoint)[what](asked);
  };

  return {
    canType: live !== null,
    canPatch: live !== null,
    isMeasured: recorded.knock_out !== null,
    isLive: false,
    run: async () => recorded.run,
    model: async ({ checkpoint }) => modelOf(recorded, checkpoint),
    examples: async ({ checkpoint }) =>
      recorded.examples[runOf(checkpoint)].filter(({ text }) => live || text === recorded.text),
    fable: async ({ checkpoint, number }) => documentOf(recorded.documents[runOf(checkpoint)], number),
    trace: computed("trace"),
    logits: computed("logits"),
    inside: computed("inside"),
    truth: async ({ text }) => recorded.truths[text] ?? { known: false, why: NO_TRUTH },
    deciding: async ({ text }) => recorded.deciding[text] ?? { places: [], swap: null },
    beliefs: async ({ checkpoint, text, knockOut }) =>
      (checkpoint === recorded.latest && !knockOut?.length && recorded.beliefs[text]) || { known: false },
    heads: async ({ checkpoint }) => recorded.heads[checkpoint],
    knockOutTable: async ({ checkpoint }) => knockOutOf(recorded, checkpoint),
    tours: async () => ({ tours: recorded.tours }),
    tour: async ({ name }) => recorded.tours.find((tour) => tour.name === name),
    news: async () => ({ runs: recorded.news }),
  };
}

function knockOutOf({ knock_out, latest }, checkpoint) {
  if (!knock_out)
    throw new SourceError("What each part is for can be measured only where a grammar labels the skills.");
  if (checkpoint !== latest) throw new SourceError(`This file has measured only the parts of ${latest}.`);
  return knock_out;
}

function modelOf({ model }, checkpoint) {
  return model[runOf(checkpoint)];
}

function documentOf(documents, number) {
  if (!documents.length) throw new SourceError("No held-out text is in this file.");
  return { number, text: documents[(number - 1) % documents.length] };
}

// The latest checkpoint answers for any text: its model runs here.
function liveAnswers(recorded) {
  const { config, weights, tokenizer: description, steps } = recorded.browser;
  const model = new Decoder(config, weights);
  const tokenizer = new Tokenizer(description);
  const kept = new Map(); // the last trace with these changes

  function traced({ text, knockOut = [], patchText }) {
    const { has_chat, end_of_text } = modelOf(recorded, recorded.latest);
    const shown = has_chat ? text : beginningThatFits(tokenizer, text, model.contextLength - 1);
    const key = JSON.stringify([knockOut, patchText]);
    const before = kept.get(key);
    if (before?.shown === shown) return before;
    const marked = has_chat ? tokenizer.encodeMarked(shown) : tokenizer.encode(shown);
    const ids = [end_of_text, ...marked].slice(0, model.contextLength);
    const isCut = marked.length >= model.contextLength;
    const found = trace(model, ids, changes(ids.length, knockOut, patchText), before);
    const residualsAt = (t) => found.residuals.map((x_TD) => x_TD[t]);
    const columns_T = ids.map((_, t) =>
      t < found.nKept ? before.columns_T[t] : columnOf(lens(model, residualsAt(t))),
    );
    if (kept.size > 8) kept.clear();
    kept.set(key, { ...found, shown, isCut, columns_T });
    return kept.get(key);
  }

  const textOf = (ids) => ids.map((id) => modelOf(recorded, recorded.latest).texts[id]).join("");

  // What is to stand at these places: nothing or, with a patchText, what they gave for that text.
  function changes(nTokens, knockOut, patchText) {
    if (patchText === undefined) return knockOut.map((place) => [place, nothing(model, place, nTokens)]);
    const other = traced({ text: patchText });
    const { length } = other.tokens;
    if (length !== nTokens)
      throw new SourceError(`The other text has ${length} tokens, this one ${nTokens}: choose one of as many.`);
    return knockOut.map((place) => [place, outputOf(other, place)]);
  }

  function logitsAt(traced, at = Infinity) {
    const place = Math.min(at, traced.tokens.length - 1);
    const { logits_NV } = traced.columns_T[place];
    const ids = likeliest(logits_NV.at(-1), N_EXPLAINED);
    const { parts, heads, bias } = logitParts(model, traced, place, ids);
    const added = { at: place, ids, parts: tensorOf(parts), heads: tensorOf(heads), bias: tensorOf(bias) };
    return { at: place, logits: tensorOf(logits_NV), added };
  }

  return {
    trace(asked) {
      const { tokens: ids, shown, isCut, points, attention, columns_T } = traced(asked);
      const cells = (name) => tensorOf(points.map((_, n) => columns_T.map((column) => column[name][n])));
      const surprise = (id, t) => columns_T[t].logSum - columns_T[t].logits_NV.at(-1)[id];
      return {
        checkpoint: recorded.latest,
        text: isCut ? textOf(ids.slice(1)) : shown,
        is_cut: isCut || shown !== asked.text,
        ids,
        points,
        attention: tensorOf(attention),
        surprise: tensorOf(ids.slice(1).map(surprise)),
        lens: { ids: cells("ids_N"), probabilities: cells("probabilities_N"), kl: cells("kl_N") },
        ...logitsAt(traced(asked), asked.at),
      };
    },
    logits: (asked) => logitsAt(traced(asked), asked.at),
    inside(asked) {
      const { seen } = traced(asked);
      const values = ({ sublayer, name }) => tensorOf(seen[`${asked.layer}.${sublayer}.${name}`]);
      return { steps: steps[asked.layer].map((step) => ({ ...step, values: values(step) })) };
    },
  };
}

// At one place, after each point: the logits, the likeliest token, its probability, and the KL from the last point.
function columnOf(logits_NV) {
  const sums_N = logits_NV.map(logSumExp);
  const logSum = sums_N.at(-1);
  const p_V = logits_NV.at(-1).map((logit) => Math.exp(logit - logSum));
  const meanLog_N = logits_NV.map((logits_V, n) => dot(p_V, logits_V) - sums_N[n]); // sum of p log q
  const ids_N = logits_NV.map((logits_V) => likeliest(logits_V, 1)[0]);
  return {
    logits_NV,
    logSum,
    ids_N,
    probabilities_N: ids_N.map((id, n) => Math.exp(logits_NV[n][id] - sums_N[n])),
    kl_N: meanLog_N.map((meanLog) => Math.max(0, meanLog_N.at(-1) - meanLog)),
  };
}

// Any other checkpoint answers for the recorded text, with all its parts.
function recordedAnswers(recorded, checkpoint, live) {
  function found({ text, knockOut = [] }) {
    const cure = live ? ` Choose ${recorded.latest}, which runs in your browser.` : "";
    const answers = recorded.answers[checkpoint];
    const beginnings = Object.keys(answers).map((each) => `“${each.slice(0, 40)}…”`);
    if (!(text in answers))
      throw new SourceError(
        `For ${checkpoint}, this file holds only ${beginnings.length > 1 ? "these texts" : "one text"}: ${beginnings.join(", ")}.${cure}`,
      );
    if (knockOut.length) throw new SourceError(`For ${checkpoint}, this file holds only the whole model.${cure}`);
    return answers[text];
  }

  return {
    trace: (asked) => ({ ...withTensors(found(asked).trace), ...logitsAt(withTensors(found(asked).logits), asked.at) }),
    logits: (asked) => logitsAt(withTensors(found(asked).logits), asked.at),
    inside: (asked) => withTensors(found(asked).inside[asked.layer]),
  };

  // Logits (N, V) at a place. All tokens that were not recorded share one logit, so that what is left of the
  // probability is spread evenly.
  function logitsAt({ counts, ids, values, rest }, at) {
    const [, nPlaces] = counts.shape;
    const place = Math.min(at ?? nPlaces - 1, nPlaces - 1);
    let start = 0;
    const logits_NV = [];
    counts.values.forEach((count, cell) => {
      if (cell % nPlaces === place) {
        const logits_V = new Float32Array(modelOf(recorded, checkpoint).vocab_size).fill(rest.values[cell]);
        for (let i = start; i < start + count; i++) logits_V[ids.values[i]] = values.values[i];
        logits_NV.push(logits_V);
      }
      start += count;
    });
    return { at: place, logits: tensorOf(logits_NV) };
  }
}

// As many whole words as fit into these tokens; of a first word that does not, as many characters.
function beginningThatFits(tokenizer, text, nTokens) {
  let nLeft = nTokens;
  for (const { 0: word, index } of text.matchAll(/\p{White_Space}*\P{White_Space}+|\p{White_Space}+/gu)) {
    nLeft -= tokenizer.encode(word).length;
    if (nLeft < 0) return text.slice(0, index) || charactersThatFit(tokenizer, [...word], nTokens);
  }
  return text;
}

function charactersThatFit(tokenizer, word, nTokens) {
  const n = tokenizer.encode(word.join("")).length;
  if (n <= nTokens) return word.join("");
  return charactersThatFit(tokenizer, word.slice(0, Math.floor((word.length * nTokens) / n)), nTokens);
}

// Lists of lists of numbers as one tensor.
function tensorOf(lists) {
  const shape = [];
  for (let part = lists; part?.length !== undefined; part = part[0]) shape.push(part.length);
  const rows = shape.length > 1 ? lists.flat(shape.length - 2) : [lists];
  const width = shape.at(-1);
  const values = new Float32Array(rows.length * width);
  rows.forEach((row, i) => values.set(row, i * width));
  return new Tensor(shape, values);
}
