// What a run measures while it learns, from the rows of its metrics: each measure is a curve of part 1.
//
// A measure: {name, unit; heldOut, training: the keys of its rows; isOfText, isOfPairs: what it is measured on, else
// instructions; says: what it is; level: what it is to be compared with, as {name, key: that of its rows, or at: its
// value for a run}; isAbove: of the values, what lies above that level; beside: further figures, as [key, name]}.

const MEASURES = [
  {
    name: "reward",
    heldOut: "val_reward",
    training: "reward",
    unit: "mean reward of an answer",
    says: "The model answers, and a judge gives each answer a reward. What was rewarded becomes likelier.",
    level: { name: "the most there is", at: (run) => run.most_reward },
    beside: [
      ["whole", "whole fables"],
      ["obeys", "as asked"],
      ["right", "right answers"],
      ["thought", "symbols of a thought"],
    ],
  },
  {
    name: "accuracy",
    heldOut: "val_accuracy",
    training: "accuracy",
    unit: "share of pairs",
    says: "Of two answers, the better one should get the higher reward from the model. This is how often it does.",
    isOfPairs: true,
    level: { name: "guessing", at: () => 0.5 },
  },
  {
    name: "margin",
    heldOut: "val_margin",
    training: "margin",
    unit: "difference in reward",
    isOfPairs: true,
    says: "By how much the model's reward for the better of two answers is higher than for the other.",
  },
  {
    name: "KL",
    heldOut: "val_kl",
    training: "kl",
    unit: "nats per answer",
    says: "How far the model has moved from the one it started from, as the KL divergence of whole answers.",
  },
  { name: "loss", heldOut: "val_loss", training: "train_loss" },
];

// By the unit of a run's loss.
const LOSSES = {
  "nats per token": { unit: "nats per token", isOfText: true, level: { name: "floor", key: "val_floor" } },
  "nats per pair": {
    unit: "nats per pair",
    isOfPairs: true,
    says: "How much it surprises the model which of two answers is the better one.",
    level: { name: "guessing", at: () => Math.LN2 },
  },
  "= -(reward - beta KL)": {
    unit: "loss = −(reward − β KL)",
    says: "How good held-out answers are, less what their distance from the first model costs. In training it is another loss, which rewarded answers make smaller.",
  },
};

// Of a loss whose floor is known. Its last nine tenths look like the floor itself, unless they are drawn from there.
const EXCESS = {
  name: "excess",
  isAbove: true,
  unit: "nats per token above the floor",
  says: "The loss without its floor: what the model could still learn. Less than 0.0001 nats is drawn as 0.0001.",
};
const LEAST_EXCESS = 1e-4;

// The measures of a run, the most telling first.
export function measuresOf(run, rows) {
  const isMeasured = ({ heldOut, training }) => pointsOf(rows, heldOut).length || pointsOf(rows, training).length;
  const named = (measure) => (measure.name === "loss" ? { ...measure, ...LOSSES[run.loss_unit] } : measure);
  const withExcess = (measure) =>
    measure.level?.key && pointsOf(rows, measure.level.key).length ? [{ ...measure, ...EXCESS }, measure] : measure;
  return MEASURES.filter(isMeasured).map(named).flatMap(withExcess);
}

// The curves of a measure, as `drawCurve` wants them. The excess of a single batch of training text is mostly its luck,
// so it is shown only until held-out text is measured.
export function curvesOf(run, rows, measure) {
  const [held, training] = [pointsOf(rows, measure.heldOut), pointsOf(rows, measure.training)];
  if (!measure.isAbove) return { held, training, level: levelAt(run, rows, measure) };
  const above = ([step, value]) => [step, Math.max(LEAST_EXCESS, value - levelAt(run, rows, measure, step))];
  return { held: held.map(above), training: training.filter(([step]) => step <= held[0][0]).map(above), level: null };
}

// The values of a key, as [[step, value]].
export function pointsOf(rows, key) {
  return rows.filter((row) => Number.isFinite(row[key])).map((row) => [row.step, row[key]]);
}

// The value of a key where it was measured next to a step; null if it never was.
export function valueNear(rows, key, step) {
  const distance = ([at]) => Math.abs(at - step);
  return (
    pointsOf(rows, key).reduce((best, each) => (best && distance(best) <= distance(each) ? best : each), null)?.[1] ??
    null
  );
}

// The value of a measure at a step: on held-out data if it was measured there, else on training data nearby.
export function valueAt(rows, { heldOut, training }, step) {
  const held = pointsOf(rows, heldOut).find(([at]) => at === step);
  return held ? { value: held[1], isHeldOut: true } : { value: valueNear(rows, training, step), isHeldOut: false };
}

// What a measure is to be compared with at a step; null if that is not known.
export function levelAt(run, rows, { level }, step) {
  return (level?.key ? valueNear(rows, level.key, step) : level?.at(run)) ?? null;
}
