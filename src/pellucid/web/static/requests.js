// What the page asks its source for: `refresh` compares the view with the state and asks for what the view lacks. Each
// answer goes into the view, is drawn, and may leave something else to ask for.

import { headOf, headsThatLook, LOOKS, placeOf } from "./moves.js";
import { newest, REST } from "./newest.js";
import { fail, noProblem } from "./status.js";
import { rivalOf, rivalReading } from "./rival.js";
import { isThere, partsOff, runHere, runOf } from "./store.js";

// What a trace is asked for, as a key.
function askedOf({ checkpoint, text, off, instead }) {
  return JSON.stringify([checkpoint, text, off, (off && instead) || undefined]);
}

// Whether the trace and the logits at hand are those of the state, and not of a text before it.
export function isUpToDate({ state, shown, trace, logits }) {
  return Boolean(trace) && shown === askedOf(state) && logits.at === placeOf({ state, trace });
}

export function makeRequests(view) {
  const { source } = view;
  const askNewest = newest(fail);
  const models = new Map(); // by run
  let asked = {}; // by name of a request, what it was made for last
  let typedAt = 0; // when the letter was typed that the trace is asked for; 0 if it was no letter that changed
  const resting = {}; // by name of a request, {key, timer} of the one that waits until nobody types
  return { refresh, forget };

  function forget() {
    asked = {};
    Object.values(resting).forEach((each) => (each.key = null));
  }

  function refresh() {
    const { checkpoint, text, at, off, instead } = view.state;
    if (!checkpoint || text === null) return;
    const whole = { checkpoint, text, at: at < 0 ? undefined : at };
    const query = { ...whole, knockOut: partsOff(off), patchText: (off && instead) || undefined };
    const shown = askedOf(view.state);
    if (shown !== asked.trace) [typedAt, view.typedAt] = [view.typedAt, 0];
    request("trace", shown, async () => {
      const [trace, model] = await Promise.all([source.trace(query).catch(withAllParts), modelOf(checkpoint)]);
      const logits = logitsOf(trace);
      const ofOtherRun = { base: null, baseLogits: null, truth: null, deciding: null, beliefs: null, inside: null };
      const base = off ? {} : { base: trace, baseLogits: logits };
      return { ...(model !== view.model && ofOtherRun), model, trace, logits, shown, ...base };
    });
    if (view.shown === shown) followUp(whole, query); // the trace comes first: it is what one waits for
  }

  // A link may switch off what this model does not have: it opens without that, and says so.
  function withAllParts(error) {
    if (error.isRefused && view.state.off && !view.trace) {
      view.notFound = error.message;
      view.store.set({ off: "", instead: "" });
    }
    throw error;
  }

  // Makes a request unless its key is that of the one before. Without a key, nothing is needed. `ask` promises what to
  // put into the view.
  function request(name, key, ask) {
    const isNew = key && key !== asked[name];
    const started = typedAt;
    asked[name] = key;
    if (!isNew) return;
    askNewest(name, ask, (answer) => {
      Object.assign(view, answer);
      if (name === "trace") {
        view.isTyping = started > 0;
        noProblem(view);
      }
      refresh(); // so that the source works while the page draws
      view.draw();
      measure(`keystroke to ${name}`, started);
    });
  }

  // The same for what takes longer than a keystroke: while somebody types, it waits until they rest.
  function requestAtRest(name, key, ask) {
    const waiting = (resting[name] ??= {});
    if (key === waiting.key) return;
    clearTimeout(waiting.timer);
    Object.assign(waiting, { key, timer: setTimeout(() => request(name, key, ask), typedAt ? REST : 0) });
  }

  // What else the view lacks once the trace is there.
  function followUp(whole, query) {
    const { checkpoint, text } = whole;
    const { off, inside } = view.state;
    const [here, [layer]] = [placeOf(view), headOf(view)];
    askGrammar({ checkpoint, text });
    request("logits", view.logits.at !== here && `${view.shown} ${here}`, async () => {
      const logits = await source.logits(query);
      const baseLogits = off ? await source.logits(whole) : logits;
      return { logits, baseLogits };
    });
    request("base", off && `${checkpoint} ${text}`, async () => {
      const base = await source.trace(whole);
      return { base, baseLogits: logitsOf(base) };
    });
    const hasBeliefs = runHere(view).has_beliefs;
    request("beliefs", hasBeliefs && view.shown, async () => ({ beliefs: await source.beliefs(query) }));
    askRival(whole, here);
    request("inside", inside && `${view.shown} ${layer}`, async () => {
      return { inside: { ...(await source.inside({ ...query, layer })), layer } };
    });
  }

  // What the grammar of the language says: what may come next, and which words decide it.
  function askGrammar(query) {
    const key = `${runOf(query.checkpoint)} ${query.text}`;
    requestAtRest("deciding", key, async () => {
      const deciding = { text: query.text, ...(await source.deciding(query)) };
      return { deciding, opensOn: headsToOpenOn({ ...view, deciding }) };
    });
    request("truth", key, async () => ({ truth: await source.truth(query) }));
  }

  // What B of part 8 makes of the same text. Where it cannot read it, that part says why.
  function askRival(whole, here) {
    const checkpoint = rivalOf(view);
    const key = isThere(view, checkpoint) && `${checkpoint} ${whole.text}`;
    const ofB = { ...whole, checkpoint };
    requestAtRest("other", key, async () => {
      try {
        const other = await source.trace(ofB);
        return { other, otherLogits: logitsOf(other), otherProblem: null };
      } catch ({ message }) {
        return { other: null, otherLogits: null, otherProblem: message };
      }
    });
    const isElsewhere = rivalReading(view) && view.otherLogits.at !== here;
    request("otherLogits", isElsewhere && `${key} ${here}`, async () => ({ otherLogits: await source.logits(ofB) }));
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

const logitsOf = ({ at, logits, added }) => ({ at, logits, added });

// By run, the head that part 3 shows until one is chosen: the first that was found to look at what decides the next token.
function headsToOpenOn(view) {
  const { head: chosen, checkpoint } = view.state;
  const [[share, head] = [0]] = headsThatLook(view);
  return share >= LOOKS && !chosen ? { [runOf(checkpoint)]: head, ...view.opensOn } : view.opensOn;
}

// How long something took, until it was painted: `performance.getEntriesByType("measure")` lists it.
function measure(name, start) {
  if (start) requestAnimationFrame(() => setTimeout(() => performance.measure(name, { start })));
}
