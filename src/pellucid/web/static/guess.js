// Guess first: the bars of part 5 are hidden until the reader has chosen a token. The tab keeps the score over a reload;
// a link does not carry it.

import { figure, fill, h, percent } from "./elements.js";
import { moveToken } from "./moves.js";
import { isUpToDate } from "./requests.js";
import { remember, remembered } from "./session.js";
import { textOf, visible } from "./tokens.js";

const KEY = "microscope score";
const N_CHOICES = 6;
// guesses; how many of them were right, and how many of the model's; places: those guessed, as each counts once.
const NO_SCORE = { guesses: 0, right: 0, model: 0, places: [] };

export function guessFirst(view) {
  const element = h("div.guessing", { hidden: true });
  const tally = h("p.tally");
  let score = { ...NO_SCORE, ...remembered(KEY) };
  showScore();
  let guessed = null; // the id, with the place and trace of which it revealed the answer
  return { element, draw, isHidden, guessedId: () => guessed?.id };

  function isHidden(here) {
    if (!view.state.guess) guessed = null;
    return view.state.guess && !(guessed?.trace === view.trace && guessed.here === here);
  }

  // modelP and trueP (if known): the probability of an id. ids: the candidates that are shown, the likeliest first.
  function draw(here, modelP, trueP, ids) {
    element.hidden = !view.state.guess;
    if (element.hidden) return;
    const likeliestBy = (p) => ids.reduce((best, id) => (p(id) > p(best) ? id : best));
    const follows = view.trace.ids[here + 1];
    const answer = follows ?? likeliestBy(trueP ?? modelP);
    const isEnd = follows === undefined;
    if (isHidden(here)) fill(element, ...question(isEnd, [answer, ...ids], choose), tally);
    else fill(element, verdict(isEnd, answer, modelP, trueP), h("p", buttonOn(here, answer)), tally);

    function choose(id) {
      const place = view.trace.ids.slice(0, here + 1).join(" ");
      guessed = { id, here, trace: view.trace };
      if (!score.places.includes(place))
        setScore({
          guesses: score.guesses + 1,
          right: score.right + (id === answer),
          model: score.model + (likeliestBy(modelP) === answer),
          places: [...score.places, place],
        });
      view.draw();
    }
  }

  function question(isEnd, candidates, choose) {
    const { texts } = view.model;
    const choices = [...new Set(candidates)].filter((id) => id >= 0).slice(0, N_CHOICES);
    choices.sort((a, b) => texts[a].localeCompare(texts[b]) || a - b); // so that order tells nothing
    const button = (id) =>
      h("button.chip.mono.guess", { "data-id": id, onclick: () => choose(id) }, visible(texts[id]));
    const asked = isEnd ? "Which token is the likeliest to come next?" : "Which token comes next?";
    return [h("p", `${asked} Click your guess.`), h("div.chips", choices.map(button))];
  }

  function verdict(isEnd, answer, modelP, trueP) {
    const { id } = guessed;
    const name = (each) => h("b.mono", visible(view.model.texts[each]));
    const truth = trueP ? `, the truth ${trueP(id) ? percent(trueP(id)) : "nothing"}` : "";
    const right = [id === answer ? "Right: " : "Not this time: ", name(answer)];
    right.push(isEnd ? " is the likeliest. " : " comes next. ");
    return h("p", right, "You guessed ", name(id), `: the model gives it ${percent(modelP(id))}${truth}.`);
  }

  function showScore() {
    const { guesses, right, model } = score;
    const count = (name, value) => figure(name, value, String(value));
    const reset = guesses > 0 && h("button.chip", { id: "score-reset", onclick: () => setScore(NO_SCORE) }, "Reset");
    const you = ["You: ", count("right", right), " of ", count("guesses", guesses)];
    fill(tally, you, " · the model: ", count("model_right", model), ` of ${guesses} `, reset);
  }

  // To the next place; behind the last one, the answer is written first.
  function buttonOn(here, answer) {
    const { trace, model, source, store } = view;
    const isInside = here < trace.ids.length - 1;
    const ends =
      model.stop_ids.includes(answer) || trace.ids.length >= model.context_length || trace.is_cut || !source.canType;
    if (!isInside && ends) return null;
    const go = () => {
      if (!isUpToDate(view)) return; // the question is about to be another one
      guessed = null;
      if (isInside) moveToken(view, 1);
      else store.set({ text: textOf(model, [...trace.ids.slice(1), answer]), at: -1 });
    };
    return h("button", { id: "guess-on", onclick: go }, isInside ? "Next guess" : "Write it and guess again");
  }

  function setScore(now) {
    score = now;
    remember(KEY, score);
    showScore();
  }
}
