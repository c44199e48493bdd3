// Moving what is looked at: one token, head or checkpoint further.

import { runOf } from "./store.js";

export function moveToken(view, by) {
  if (!view.trace) return;
  const last = view.trace.ids.length - 1;
  selectToken(view, Math.max(0, Math.min(last, placeOf(view) + by)));
}

// The last token is −1, so that it stays the last while one types.
export function selectToken(view, place) {
  view.store.set({ at: place === view.trace.ids.length - 1 ? -1 : place });
}

// The token that is looked from.
export function placeOf(view) {
  const { at } = view.state;
  const { ids, fills_gaps } = view.trace;
  const last = ids.length - 1;
  return at < 0 ? last : Math.min(Math.max(at, fills_gaps ? 1 : 0), last); // what begins a text is never hidden
}

// Heads are counted through all layers.
export const nameOfHead = (i, n_heads) => `${Math.floor(i / n_heads)}.${i % n_heads}`;

export function moveHead(view, by) {
  if (!view.trace) return;
  const [n_layers, n_heads] = view.trace.attention.shape;
  if (!n_heads) return;
  const [layer, head] = headOf(view);
  const place = (layer * n_heads + head + by + n_layers * n_heads) % (n_layers * n_heads);
  view.store.set({ head: nameOfHead(place, n_heads) });
}

// The head that is looked at; the last one of a model that has fewer.
export function headOf(view) {
  const [n_layers, n_heads] = view.trace.attention.shape;
  const { head: chosen, checkpoint } = view.state;
  const [layer, head] = (chosen || view.opensOn[runOf(checkpoint)] || "0.0").split(".").map(Number);
  const within = (number, n) => Math.max(0, Math.min(number || 0, n - 1));
  return [within(layer, n_layers), within(head, n_heads)];
}

// The places whose words decide the next token, by the grammar; none where it is not known.
export function decidingHere(view) {
  const { trace, state, deciding } = view;
  const isOfThis = deciding?.text === state.text && deciding.places.length === trace.ids.length;
  return isOfThis ? deciding.places[placeOf(view)] : [];
}

// How much each head takes from there: [[share, "layer.head"]], most first; none where nothing decides.
export function headsThatLook(view, { attention } = view.trace) {
  const [places, here, [n_layers, n_heads]] = [decidingHere(view), placeOf(view), attention.shape];
  const shares = Array.from({ length: places.length ? n_layers * n_heads : 0 }, (_, i) => {
    const weights = attention.row(Math.floor(i / n_heads), i % n_heads, here).values;
    return [places.reduce((sum, s) => sum + weights[s], 0), nameOfHead(i, n_heads)];
  });
  return shares.sort(([a], [b]) => b - a);
}

export const LOOKS = 0.4; // of a head's attention: as much as a score needs to give it a name

export function moveCheckpoint(view, by) {
  const { checkpoint } = view.state;
  const run = view.runs.find(({ checkpoints }) => checkpoints.some(({ id }) => id === checkpoint));
  const place = run?.checkpoints.findIndex(({ id }) => id === checkpoint) + by;
  if (run?.checkpoints[place]) view.store.set({ checkpoint: run.checkpoints[place].id });
}

// Arrow keys inside a group of which only one element can be reached by Tab.
export function rove(event, elements, columns, choose) {
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  if (event.key === "Home" || event.key === "End") moves[event.key] = event.key === "Home" ? -Infinity : Infinity;
  if (!(event.key in moves)) return;
  const here = elements.indexOf(event.target.closest("[tabindex]"));
  if (here < 0) return;
  event.preventDefault();
  const there = Math.max(0, Math.min(elements.length - 1, here + moves[event.key]));
  choose(there);
  elements[there].focus();
}
