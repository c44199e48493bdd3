// Which checkpoint part 8 sets beside the one above, its B.

import { runHere } from "./store.js";

export const NONE = "none";

// The chosen one; "" if none is wanted. Until one is chosen: the best of another run that cuts text into the same tokens
// or, where there is no such run, a checkpoint of this one that had learned about half of it.
export function rivalOf(view) {
  const { other, checkpoint } = view.state;
  const here = runHere(view);
  if (!here || here.left_out?.fills_gaps) return "";
  if (other) return other === NONE ? "" : other;
  const isRival = (run) =>
    run !== here && run.checkpoints.length && run.vocabulary === here.vocabulary && !run.left_out?.fills_gaps;
  const rival = view.runs.find(isRival);
  if (rival) return bestOf(rival);
  const early = halfway(here.checkpoints);
  return early === checkpoint ? (bestOf(here) === checkpoint ? "" : bestOf(here)) : early;
}

const bestOf = ({ best, checkpoints }) => best ?? checkpoints.at(-1).id;

// Losses fall by factors, over steps that grow by factors: half the way of 10,000 steps is step 100.
function halfway(checkpoints) {
  const half = Math.sqrt(checkpoints.at(-1).step);
  const distance = ({ step }) => Math.abs(Math.log(Math.max(step, 0.5) / half));
  return checkpoints.reduce((best, each) => (distance(each) < distance(best) ? each : best)).id;
}

// B's reading of the text that A has read: null until it is there.
export function rivalReading(view) {
  const { base, other } = view;
  if (!base || !other || other.checkpoint !== rivalOf(view)) return null;
  const isBeginning = (short, long) => short.is_cut && long.text.startsWith(short.text); // a shorter context
  return base.text === other.text || isBeginning(base, other) || isBeginning(other, base) ? other : null;
}
