// Where the numbers of an exported page come from: the file itself. web/export.py records what the server would answer
// for one text, and adds the weights of the latest checkpoint, which model.js runs on any text.
//
// The methods are those of source_server.js, which says what they return.

import { Decoder, lens, nothing, trace } from "./model.js";
import { divergence, logSoftmax } from "./sampling.js";
import { SourceError, withTensors } from "./source_server.js";
import { Tensor } from "./tensor.js";
import { Tokenizer } from "./tokenizer.js";

const NO_TRUTH = "This file knows the truth of the examples alone: the grammar that it is computed from is not in it. "
  + "The server, `pellucid serve`, knows it for any text.";

export function offlineSource(recorded) {
  const live = recorded.browser && liveAnswers(recorded);
  const answers = (checkpoint) =>
    live && checkpoint === recorded.latest ? live : recordedAnswers(recorded, checkpoint, live);

  return {
    canType: live !== null,
    run: async () => recorded.run,
    metrics: async () => recorded.metrics,
    model: async () => recorded.model,
    examples: async () => recorded.examples.filter(({ text }) => live || text === recorded.text),
    fable: async ({ number }) => documentOf(recorded, number),
    trace: async (asked) => answers(asked.checkpoint).trace(asked),
    logits: async (asked) => answers(asked.checkpoint).logits(asked),
    inside: async (asked) => answers(asked.checkpoint).inside(asked),
    truth: async ({ text }) => recorded.truths[text] ?? { known: false, why: NO_TRUTH },
    heads: async ({ checkpoint }) => recorded.heads[checkpoint],
    knockOutTable: async ({ checkpoint }) => knockOutOf(recorded, checkpoint),
    onEvent: () => () => {},
  };
}

function knockOutOf({ knock_out, latest }, checkpoint) {
  if (!knock_out) throw new SourceError("What each part is for can be measured only where a grammar tells the skills.");
  if (checkpoint !== latest) throw new SourceError(`In this file, it is measured what the parts of ${latest} are for.`);
  return knock_out;
}

function documentOf({ documents }, number) {
  if (!documents.length) throw new SourceError("No held-out text is in this file.");
  return { number, text: documents[(number - 1) % documents.length] };
}

// The latest checkpoint answers for any text: its model runs here.
function liveAnswers(recorded) {
  const { config, weights, tokenizer: description, steps } = recorded.browser;
  const model = new Decoder(config, weights);
  const tokenizer = new Tokenizer(description);
  const kept = new Map(); // the last traces: a click on a token asks for the logits of the one before

  function traced({ text, knockOut = [] }) {
    const shown = beginningThatFits(tokenizer, text, model.contextLength - 1);
    const key = JSON.stringify([shown, knockOut]);
    if (!kept.has(key)) {
      const ids = [recorded.model.end_of_text, ...tokenizer.encode(shown)];
      const off = knockOut.map((place) => [place, nothing(model, place, ids.length)]);
      const found = trace(model, ids, off);
      kept.set(key, { ...found, ids, shown, logits: found.residuals.map((x_TD) => lens(model, x_TD)) });
      if (kept.size > 4) kept.delete(kept.keys().next().value);
    }
    return kept.get(key);
  }

  function logitsAt({ logits, ids }, at = ids.length - 1) {
    const place = Math.min(at, ids.length - 1);
    return { at: place, logits: tensorOf(logits.map((logits_TV) => logits_TV[place])) };
  }

  return {
    trace(asked) {
      const found = traced(asked);
      const logQ_NTV = found.logits.map((logits_TV) => logits_TV.map(logSoftmax));
      const end_TV = logQ_NTV.at(-1);
      const best_NT = logQ_NTV.map((logQ_TV) => logQ_TV.map((logQ_V) => logQ_V.indexOf(largest(logQ_V))));
      const each = (use) => tensorOf(logQ_NTV.map((logQ_TV, n) => logQ_TV.map((logQ_V, t) => use(logQ_V, n, t))));
      return {
        checkpoint: recorded.latest,
        text: found.shown,
        is_cut: found.shown !== asked.text,
        ids: found.ids,
        points: found.points,
        attention: tensorOf(found.attention),
        surprise: tensorOf(found.ids.slice(1).map((id, t) => -end_TV[t][id])),
        lens: {
          ids: tensorOf(best_NT),
          probabilities: each((logQ_V, n, t) => Math.exp(logQ_V[best_NT[n][t]])),
          kl: each((logQ_V, n, t) => divergence(end_TV[t], logQ_V)),
        },
        ...logitsAt(found, asked.at),
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

// Any other checkpoint answers for the recorded text, with all its parts.
function recordedAnswers(recorded, checkpoint, live) {
  function found({ text, knockOut = [] }) {
    const cure = live ? ` Choose ${recorded.latest}, which runs in your browser.` : "";
    const start = recorded.text.slice(0, 40);
    if (text !== recorded.text)
      throw new SourceError(`Of ${checkpoint}, this file knows what it makes of one text: “${start}…”.${cure}`);
    if (knockOut.length) throw new SourceError(`Of ${checkpoint}, this file knows only the whole model.${cure}`);
    return recorded.answers[checkpoint];
  }

  return {
    trace: (asked) => ({ ...withTensors(found(asked).trace), ...logitsAt(withTensors(found(asked).logits), asked.at) }),
    logits: (asked) => logitsAt(withTensors(found(asked).logits), asked.at),
    inside: (asked) => withTensors(found(asked).inside[asked.layer]),
  };

  // Logits (N, V) at a place. All tokens that were not recorded share one logit, so that what is left of the
  // probability is spread evenly.
  function logitsAt({ counts, ids, values, rest }, at) {
    const [nPoints, nPlaces] = counts.shape;
    const place = Math.min(at ?? nPlaces - 1, nPlaces - 1);
    let start = 0;
    const logits_NV = [];
    counts.values.forEach((count, cell) => {
      if (cell % nPlaces === place) {
        const logits_V = new Float32Array(recorded.model.vocab_size).fill(rest.values[cell]);
        for (let i = start; i < start + count; i++) logits_V[ids.values[i]] = values.values[i];
        logits_NV.push(logits_V);
      }
      start += count;
    });
    return { at: place, logits: tensorOf(logits_NV) };
  }
}

// As many whole words as fit into these tokens.
function beginningThatFits(tokenizer, text, nTokens) {
  for (const { 0: word, index } of text.matchAll(/\p{White_Space}*\P{White_Space}+|\p{White_Space}+/gu)) {
    nTokens -= tokenizer.encode(word).length;
    if (nTokens < 0) return text.slice(0, index);
  }
  return text;
}

const largest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);

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
