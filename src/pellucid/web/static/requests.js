// What the page asks its source for: `refresh` compares the view with the state and asks for what the view lacks. Each
// answer goes into the view, is drawn, and may leave something else to ask for.

import { headOf, headsThatLook, LOOKS, placeOf } from "./moves.js";
import { newest } from "./newest.js";
import { fail, noProblem } from "./status.js";
import { isThere, partsOff, runOf } from "./store.js";

const REST = 250; // milliseconds without a keystroke

export function makeRequests(view) {
  const { source } = view;
  const ask = newest(fail);
  const models = new Map(); // by run
  let asked = {}; // by name of a request, what it was made for last
  let typedAt = 0; // when the letter was typed that the trace is asked for; 0 if no letter was
  let resting = 0;
  return { refresh, forget: () => (asked = {}) };

  function refresh() {
    const { checkpoint, text, at, off, instead } = view.state;
    if (!checkpoint || text === null) return;
    const whole = { checkpoint, text, at: at < 0 ? undefined : at };
    const query = { ...whole, knockOut: partsOff(off), patchText: (off && instead) || undefined };
    const shown = JSON.stringify([checkpoint, text, off, query.patchText]);
    if (shown !== asked.trace) [typedAt, view.typedAt] = [view.typedAt, 0];
    const started = typedAt;
    request("trace", shown, () => Promise.all([source.trace(query), modelOf(checkpoint)]), ([trace, model]) => {
      noProblem(view);
      if (view.model !== model)
        Object.assign(view, { model, base: null, baseLogits: null, truth: null, deciding: null, inside: null });
      Object.assign(view, { trace, logits: logitsOf(trace), shown });
      if (!off) Object.assign(view, { base: trace, baseLogits: view.logits });
      measure("keystroke to redrawn", started);
    });
    if (view.shown === shown) followUp(whole, query); // the trace comes first: it is what one waits for
  }

  // Makes a request unless its key is that of the one before. Without a key, the view lacks nothing.
  function request(name, key, send, put) {
    const isNew = key && key !== asked[name];
    asked[name] = key;
    if (!isNew) return;
    ask(name, send, (answer) => {
      put(answer);
      view.draw();
      refresh();
    });
  }

  // What else the view lacks once the trace is there.
  function followUp(whole, query) {
    const { checkpoint, text } = whole;
    const { off, inside, other } = view.state;
    const [here, [layer]] = [placeOf(view), headOf(view)];
    const b = isThere(view, other) && { ...whole, checkpoint: other };
    if (!b) Object.assign(view, { other: null, otherLogits: null });
    askGrammar({ checkpoint, text });

    const logitsOfAll = () =>
      Promise.all([source.logits(query), off && source.logits(whole), b && source.logits(b)]);
    request("logits", view.logits.at !== here && `${view.shown} ${here}`, logitsOfAll, ([logits, base, otherLogits]) =>
      Object.assign(view, { logits, baseLogits: base || logits, otherLogits }),
    );
    request("base", off && `${checkpoint} ${text}`, () => source.trace(whole), (base) =>
      Object.assign(view, { base, baseLogits: logitsOf(base) }),
    );
    request("other", b && `${other} ${text}`, () => source.trace(b), (trace) =>
      Object.assign(view, { other: trace, otherLogits: logitsOf(trace) }),
    );
    request("inside", inside && `${view.shown} ${layer}`, () => source.inside({ ...query, layer }), (answer) => {
      view.inside = { ...answer, layer };
    });
  }

  // What the grammar of the language says: what may come next, and which words decide it. The second takes it longer
  // than a keystroke, so it is asked when nobody types.
  function askGrammar(query) {
    const run = runOf(query.checkpoint);
    const key = `${run} ${query.text}`;
    const started = typedAt;
    const askDeciding = () =>
      request("deciding", key, () => source.deciding(query), ({ places }) => {
        view.deciding = { text: query.text, places };
        const [[share, head] = [0]] = headsThatLook(view);
        if (share >= LOOKS && !view.state.head) view.opensOn[run] ??= head;
      });
    if (key !== asked.truth) {
      clearTimeout(resting);
      resting = setTimeout(askDeciding, started ? REST : 0);
    }
    request("truth", key, () => source.truth(query), (truth) => {
      view.truth = truth;
      measure("keystroke to truth", started);
    });
  }

  function modelOf(checkpoint) {
    const run = runOf(checkpoint);
    const forget = (error) => {
      models.delete(run);
      throw error;
    };
    if (!models.has(run)) models.set(run, source.model({ checkpoint }).catch(forget));
    return models.get(run);
  }
}

const logitsOf = ({ at, logits }) => ({ at, logits });

// How long something took, until it was painted: `performance.getEntriesByType("measure")` lists it.
function measure(name, start) {
  if (start) requestAnimationFrame(() => setTimeout(() => performance.measure(name, { start })));
}
