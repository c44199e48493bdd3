// The tree of texts in lesson 13, and the rounds of a beam search in it.

// What may follow a text. A dot ends it, and so does the fourth token.
const AFTER = {
  "": { A: 0.5, B: 0.25, C: 0.17, ".": 0.08 },
  A: { A: 0.1, B: 0.4, C: 0.3, ".": 0.2 },
  AB: { A: 0.2, B: 0.2, C: 0.4, ".": 0.2 },
  AC: { A: 0.1, B: 0.6, C: 0.2, ".": 0.1 },
  ABC: { A: 0.1, B: 0.2, C: 0.1, ".": 0.6 },
  ACB: { A: 0.1, B: 0.2, C: 0.1, ".": 0.6 },
};
const ELSEWHERE = { A: 0.3, B: 0.3, C: 0.2, ".": 0.2 };

export const isComplete = (text) => text.length === 4 || text.endsWith(".");

// All rounds with so many beams. In each, the beams that it begins with, their continuations (a complete text is its
// own), and those that are kept, likeliest first. A text has its probability p, that of its last token, and its parent.
export function roundsOf(nBeams) {
  const rounds = [];
  let beams = [{ text: "", p: 1 }];
  while (!beams.every(({ text }) => isComplete(text))) {
    const candidates = beams.flatMap((beam) => (isComplete(beam.text) ? [beam] : childrenOf(beam)));
    const kept = candidates.toSorted((a, b) => b.p - a.p).slice(0, nBeams);
    rounds.push({ beams, candidates, kept });
    beams = kept;
  }
  return rounds;
}

function childrenOf(parent) {
  return Object.entries(AFTER[parent.text] ?? ELSEWHERE).map(([token, share]) => ({
    text: parent.text + token,
    p: parent.p * share,
    share,
    parent,
  }));
}
