// The score of "Guess first". The tab keeps it over a reload; a link does not carry it.

const KEY = "microscope score";

// guesses; how many of them were right, and how many of the model's; places: those guessed, as each counts once.
export const NO_SCORE = { guesses: 0, right: 0, model: 0, places: [] };

export function keptScore() {
  try {
    return { ...NO_SCORE, ...JSON.parse(sessionStorage.getItem(KEY)) };
  } catch {
    return NO_SCORE; // a browser may forbid a page to keep anything
  }
}

export function keepScore(score) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(score));
  } catch {
    // then it is kept until the page is closed
  }
}
