// Where the page's numbers come from: here, the server that `pellucid serve` starts.
//
// A source has these methods. Each returns a promise of what docs/microscope.md describes, with tensors unpacked; the
// exported page has another source with the same methods (`source_offline.js`).
//
//   run()                                     {runs: [{name, loss_unit, most_reward, steps, knows_truth, writes, has_beliefs, has_chat, context_length, evaluation_tokens,
//                                               best, checkpoints: [{id, step, val_loss}], left_out: null, or {parts, why}:
//                                               the parts of the page that do not apply to it; problem: where it
//                                               cannot be shown, why}]}
//   model({checkpoint})                       {n_parameters, n_layers, vocab_size, context_length, end_of_text, stop_ids, has_chat,
//                                               texts: [V], bytes: [V] in hex, merges: [[rank, id, left id, right id]]}
//   examples({checkpoint})                    [{skill, text}]
//   fable({checkpoint, number})               {number, text}
//   trace({checkpoint, text, at, knockOut})   {text, is_cut, ids: [T], points: [N], attention (L,H,T,S), surprise (T-1),
//                                               lens: {ids (N,T), probabilities (N,T), kl (N,T)}, at, logits (N,V)}
//   logits({checkpoint, text, at, knockOut})  {at, logits (N,V)}
//   inside({checkpoint, text, layer, knockOut})  {steps: [{sublayer, name, axes, equations, values}]}
//   truth({checkpoint, text})                 {known: false}, or {known, ids: [T], positions: [T] of {ids, p} or null, floor: [T-1],
//                                               entropy: [T], possible_length, is_possible, is_whole, next_characters,
//                                               skills: [T-1] of [name], or null}
//   deciding({checkpoint, text})              {places: [T] of the places whose words decide the next token, [] if unknown;
//                                               swap: {from, to, text}: the text with another hero, or null}
//   beliefs({checkpoint, text, knockOut})     {known: false}, or {known, truth (T,S), read (N,T,S), explained: [N]}: the
//                                               belief in each hidden state, exactly and as each point has it, with its R²
//   heads({checkpoint})                       {heads: [{layer, head, name, scores: {name: share}}]}
//   knockOutTable({checkpoint, n})            {fables, floor and intact: {skill: nats},
//                                               knocked_out: [{places, nats_per_fable: {skill: {mean, half_width}}}],
//                                               attribution: {evenly: {skill}, done_by: {skill: [layer, head] or null},
//                                               heads: [{layer, head, looks: {skill: {mean, half_width}}}]}}
//   tours()                                   {tours: [{name, title, minutes, about}]}: those that these runs can play
//   tour({name})                              the same and stops: [{title, say, question, choices, answer, because, show and
//                                               then: the state of the page before the answer and after it, part and
//                                               then_part: where to look; measured: {name: figure}, misses: [where
//                                               a figure is out of the bounds that the tour claims]}]
//   news(seen)                                {runs: {name: {is_there, is_training, config, checkpoints: [step], goes_on, rows: those of
//                                               metrics.jsonl that are new or, unless it goes on, all; samples: [{step,
//                                               texts}], if they are new; seen: what to ask with next time}}};
//                                               seen: by run. isLive: whether there will be any
//
// knockOut: places that give nothing; with patchText, what they gave for that text. canType, canPatch: whether it can
// read texts that it has not seen, and patch. isMeasured: whether knockOutTable is known without waiting. A refused
// request throws a SourceError with the server's own words.

import { unpacked } from "./tensor.js";

export class SourceError extends Error {}

export function serverSource() {
  return {
    canType: true,
    canPatch: true,
    isMeasured: false,
    isLive: true,
    run: () => get("api/run"),
    model: ({ checkpoint }) => get("api/model", { checkpoint }),
    examples: ({ checkpoint }) => get("api/examples", { checkpoint }),
    fable: ({ checkpoint, number }) => get("api/fable", { checkpoint, number }),
    trace: async (asked) => withTensors(await post("api/trace", asked)),
    logits: async (asked) => withTensors(await post("api/logits", asked)),
    inside: async (asked) => withTensors(await post("api/inside", asked)),
    truth: (asked) => post("api/truth", asked),
    deciding: (asked) => post("api/deciding", asked),
    beliefs: (asked) => post("api/beliefs", asked),
    heads: ({ checkpoint }) => get("api/heads", { checkpoint }),
    knockOutTable: (asked) => post("api/knock_out", asked),
    tours: () => get("api/tours"),
    tour: ({ name }) => get("api/tour", { name }),
    news: (seen) => get("api/news", seen),
  };
}

function get(route, parameters = {}) {
  return answer(fetch(`${route}?${new URLSearchParams(parameters)}`));
}

function post(route, { knockOut, patchText, ...rest }) {
  const body = JSON.stringify({ ...rest, knock_out: knockOut, patch_text: patchText });
  return answer(fetch(route, { method: "POST", headers: { "Content-Type": "application/json" }, body }));
}

const GONE = "The server does not answer. Start `pellucid serve` again at the same port, and this page goes on.";

async function answer(response) {
  const received = await response.catch((error) => {
    throw error instanceof TypeError ? new SourceError(GONE) : error; // so fetch says that nobody was there
  });
  if (received.ok) return received.json();
  const { error } = await received.json().catch(() => ({}));
  const refused = new SourceError(error?.message ?? `the server answered ${received.status}`);
  throw Object.assign(refused, { isRefused: received.status === 400 });
}

// The same object with each packed tensor in it unpacked.
export function withTensors(value) {
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map(withTensors) : value;
  if (value === null || typeof value !== "object") return value;
  if ("dtype" in value && "data" in value) return unpacked(value);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, withTensors(each)]));
}
