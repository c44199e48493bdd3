// Part 5: what may come next, by the model and in truth; and drawing it.

import { changed, figure, fill, fixed, h, percent, setFigure, thousands, visible, withCode } from "./elements.js";
import { moveToken, placeOf } from "./moves.js";
import { candidates, divergenceFromTruth, draw as drawToken, likeliest, logSoftmax } from "./sampling.js";
import { keepScore, keptScore, NO_SCORE } from "./score.js";
import { matching } from "./truth.js";

const N_SHOWN = 9;
const LEAST_SHOWN = 5e-4; // of what is less likely by both, only a few are shown
const FEWEST = 5;
const MOST_BEFORE = 200; // characters of the text that are shown again, above its next token
const N_CHOICES = 6;
const PAUSE = 120; // milliseconds between two tokens while it writes, so that one can follow

const SLIDERS = [
  {
    key: "temperature",
    name: "Temperature",
    min: 0,
    max: 2,
    step: 0.05,
    says: (v) => (v === 0 ? "0: always the likeliest" : v === 1 ? "1: unchanged" : fixed(v)),
  },
  {
    key: "top_k",
    name: "Top-k",
    min: 0,
    max: 50,
    step: 1,
    says: (v) => (v === 0 ? "all tokens" : `the ${v} likeliest`),
  },
  {
    key: "top_p",
    name: "Top-p",
    min: 0.05,
    max: 1,
    step: 0.05,
    says: (v) => (v >= 1 ? "all of the probability" : `the first ${fixed(100 * v, 0)}%`),
  },
];

export function nextPanel(root, view) {
  const [memory, verdicts] = [{}, {}];
  const title = h("h3");
  const bars = h("div.bars", { role: "list", "aria-label": "Candidates" });
  const key = h("p.key");
  const written = h("p.written");
  const sums = h("dl.facts");
  const [kl, entropy, left] = [figure("kl", null), figure("entropy", null), figure("left", null)];
  sums.append(
    h("div", h("dt", "tokens that can be drawn"), h("dd", left)),
    h("div.if-truth", h("dt", "entropy of the truth: how open it is"), h("dd", entropy, h("small", " nats"))),
    h("div.if-truth", h("dt", "KL to the truth: how far off the model is"), h("dd", kl, h("small", " nats"))),
  );
  const verdict = h("p.verdict", { "aria-live": "polite" });
  const said = h("p.said", { role: "status" });
  const guessing = h("div.guessing", { hidden: true });
  const sliders = SLIDERS.map(slider);
  const sample = h("button.main", { id: "sample", onclick: () => step() }, "Sample a token");
  const write = h("button", { id: "write", onclick: () => (writing ? stop() : start()) }, "Write on");
  const rewind = h("button", { id: "rewind", onclick: back }, "Rewind");
  let score = keptScore();
  let writing = null;
  let revealed = null; // the place and trace of which the answer has been shown
  root.classList.add("next");
  root.append(
    h("div.expected", written, title, guessing, key, bars),
    h(
      "div.controls",
      sliders.map((each) => each.element),
      h("div.buttons", sample, write, rewind),
      said,
      verdict,
      sums,
    ),
  );
  return { draw };

  function slider({ key, name, min, max, step, says }) {
    const shown = h("output", { for: `slider-${key}` });
    const input = h("input", {
      type: "range",
      id: `slider-${key}`,
      min,
      max,
      step,
      oninput: () => view.store.set({ [key]: Number(input.value) }),
    });
    const show = (value) => {
      if (Number(input.value) !== value) input.value = value;
      shown.textContent = says(value);
      input.setAttribute("aria-valuetext", says(value));
    };
    return {
      element: h("div.slider", h("label", { for: `slider-${key}` }, name), input, shown),
      key,
      show,
    };
  }

  function draw() {
    const { trace, model, state, logits, baseLogits, truth } = view;
    sliders.forEach(({ key, show }) => show(state[key]));
    if (!trace || !model || !logits) return;
    const here = placeOf(view);
    if (logits.at !== here) return; // those of the new place are on their way
    const fits = matching(truth, trace);
    if (!state.guess) revealed = null;
    if (
      changed(
        memory,
        logits,
        baseLogits,
        fits,
        model,
        state.temperature,
        state.top_k,
        state.top_p,
        state.guess,
        revealed,
        score,
        state.off,
      )
    )
      redraw(here, fits);
    if (changed(verdicts, truth, trace)) showVerdict(truth, trace);
    const isLast = here === trace.ids.length - 1;
    sample.textContent = isLast ? "Sample a token" : "Sample from here";
    rewind.disabled = trace.ids.length < 2;
    for (const button of [sample, write]) button.disabled = !view.source.canType;
  }

  function hiddenNow(here) {
    return view.state.guess && !(revealed && revealed.trace === view.trace && revealed.here === here);
  }

  function redraw(here, truth) {
    const { trace, model, state, logits, baseLogits } = view;
    const raw = logits.logits.row(trace.points.length - 1).values;
    const logQ = logSoftmax(raw);
    const without =
      state.off && baseLogits?.at === here ? logSoftmax(baseLogits.logits.row(trace.points.length - 1).values) : null;
    const kept = candidates(raw, state);
    const drawn = new Map([...kept.ids].map((id, i) => [id, kept.p[i]]));
    const p = truth?.positions?.[here];
    const truthOf = p ? new Map(p.ids.map((id, i) => [id, p.p[i]])) : null;
    root.classList.toggle("no-truth", !truth?.known);
    fill(
      title,
      "After ",
      h("b.mono", here ? visible(model.texts[trace.ids[here]]) : "start"),
      h("span.muted", ` (token ${here})`),
    );
    const before = textOf(trace.ids.slice(1, Math.max(1, here)));
    fill(
      written,
      before.length > MOST_BEFORE ? `… ${before.slice(-MOST_BEFORE).replace(/^\S*\s/, "")}` : before,
      here > 0 && h("b", textOf([trace.ids[here]])),
    );
    setFigure(left, kept.ids.length, thousands(kept.ids.length));
    setFigure(entropy, truth?.entropy?.[here] ?? null);
    setFigure(kl, p ? divergenceFromTruth(p, logQ) : null);
    const sample = (name, words) => h("span", h(`span.bar.${name}`), words);
    fill(
      key,
      sample("model", "model, after the sliders"),
      sample("raw", "before the sliders"),
      without && sample("base", state.instead ? "as it was" : "with all its parts"),
      truth?.known && sample("truth", p ? "truth" : "truth: not known here"),
    );
    const best = likeliest(logQ, N_SHOWN);
    const true_ = truthOf ? [...truthOf.keys()].sort((a, b) => truthOf.get(b) - truthOf.get(a)).slice(0, N_SHOWN) : [];
    const ids = [...new Set([...best, ...true_])]
      .sort((a, b) => Math.max(q(b), truthOf?.get(b) ?? 0) - Math.max(q(a), truthOf?.get(a) ?? 0))
      .slice(0, N_SHOWN + 2)
      .filter((id, i) => i < FEWEST || Math.max(q(id), truthOf?.get(id) ?? 0) > LEAST_SHOWN);
    const isHidden = hiddenNow(here);
    guessing.hidden = !state.guess;
    root.classList.toggle("hidden-bars", isHidden);
    bars.hidden = key.hidden = isHidden;
    if (state.guess) showGuess(here, isHidden, logQ, truthOf, ids);
    if (isHidden) return fill(bars);
    const follows = trace.ids[here + 1];
    fill(
      bars,
      ...ids.map((id) => {
        const chance = drawn.get(id) ?? 0;
        const isCut = !drawn.has(id);
        return h(
          "div",
          {
            role: "listitem",
            class: ["candidate", isCut && "cut", id === follows && "follows", id === revealed?.guess && "guessed"]
              .filter(Boolean)
              .join(" "),
            "data-id": id,
          },
          h(
            "span.mono.name",
            { title: id === follows ? "what the text goes on with" : "" },
            id < 0 ? "⟨unwritable⟩" : visible(model.texts[id]),
          ),
          h(
            "span.pair",
            h(
              "span.track",
              h("span.bar.raw", { style: { width: width(q(id)) } }),
              h("span.bar.model", { style: { width: width(chance) } }),
            ),
            without && h("span.track.thin", h("span.bar.base", { style: { width: width(Math.exp(without[id])) } })),
            truthOf && h("span.track", h("span.bar.truth", { style: { width: width(truthOf.get(id) ?? 0) } })),
          ),
          h(
            "span.numbers",
            h(
              "span",
              { "data-name": "model", "data-value": chance.toPrecision(7), "data-raw": q(id).toPrecision(7) },
              isCut ? "cut off" : percent(chance),
            ),
            without &&
              h(
                "span",
                { "data-name": "base", "data-value": Math.exp(without[id]).toPrecision(7) },
                percent(Math.exp(without[id])),
              ),
            truthOf &&
              h(
                "span",
                { "data-name": "truth", "data-value": (truthOf.get(id) ?? 0).toPrecision(7) },
                truthOf.get(id) ? percent(truthOf.get(id)) : "never",
              ),
          ),
        );
      }),
    );

    function q(id) {
      return id < 0 ? 0 : Math.exp(logQ[id]);
    }
    function width(share) {
      return `${100 * share}%`;
    }
  }

  // Drawing

  function step(point = Math.random()) {
    const { trace, model, logits, state } = view;
    if (!logits || logits.at !== placeOf(view)) return false;
    const id = drawToken(candidates(logits.logits.row(trace.points.length - 1).values, state), point);
    if (model.stop_ids.includes(id)) {
      said.textContent = "The model ends the text here.";
      stop();
      return false;
    }
    const here = placeOf(view);
    if (here + 1 >= model.context_length) {
      said.textContent = `The model reads ${model.context_length} tokens at most.`;
      stop();
      return false;
    }
    const text = textOf([...trace.ids.slice(1, here + 1), id]);
    if (text.endsWith("\ufffd")) {
      said.textContent = "It drew a part of a character, which a text cannot end with. Sample again.";
      return false;
    }
    fill(said, "It drew ", h("b.mono", visible(model.texts[id])), ".");
    view.store.set({ text, at: -1 });
    return true;
  }

  // A character may be spread over several tokens, so it is their bytes that are joined. Of the marks in a conversation,
  // which have none, it is their names, as they can be typed.
  function textOf(ids) {
    const { bytes: hex, texts, has_chat } = view.model;
    const named = (id) => (has_chat ? [...new TextEncoder().encode(texts[id])] : []);
    const bytes = ids.flatMap((id) => (hex[id] ? hex[id].split(" ").map((byte) => parseInt(byte, 16)) : named(id)));
    return new TextDecoder().decode(Uint8Array.from(bytes));
  }

  function back() {
    stop();
    const last = view.trace.ids.length - 1;
    if (last < 1) return;
    fill(said, "Took back ", h("b.mono", visible(view.model.texts[view.trace.ids[last]])), ".");
    view.store.set({ text: textOf(view.trace.ids.slice(1, last)), at: -1 });
  }

  function start() {
    write.textContent = "Stop";
    let traceBefore = null;
    writing = setInterval(() => {
      const { trace, state } = view;
      if (trace === traceBefore || (trace.text !== state.text && !trace.is_cut)) return; // not drawn yet
      if (step()) traceBefore = trace; // or else the next try draws another
    }, PAUSE);
  }

  function stop() {
    clearInterval(writing);
    writing = null;
    write.textContent = "Write on";
  }

  // The grammar's word on what is written

  function showVerdict(truth, trace) {
    verdict.className = "verdict";
    if (!truth) return;
    if (!truth.known) {
      const nobody = "The truth about this text is not known here, so only the model is shown.";
      return fill(verdict, h("span.muted", withCode(truth.why ?? nobody)));
    }
    if (truth.ids.length !== trace.ids.length || !truth.ids.every((id, t) => id === trace.ids[t])) return;
    verdict.dataset.value = truth.is_possible ? trace.text.length : truth.possible_length;
    if (!trace.text) return fill(verdict, "An empty page: any fable may begin here.");
    if (truth.is_whole) fill(verdict, sign("✓"), "The grammar's verdict: a whole fable, and nothing can follow.");
    else if (truth.is_possible)
      fill(
        verdict,
        sign("✓"),
        "The grammar's verdict: a fable can begin like this.",
        truth.positions.at(-1) ? "" : " The text stops inside a word, so the next token has no exact truth.",
      );
    else {
      verdict.classList.add("impossible");
      const wrong = trace.text.slice(truth.possible_length);
      fill(
        verdict,
        sign("✗"),
        "The grammar's verdict: no fable goes on like this, from ",
        h("mark.mono", visible(wrong.slice(0, 24)) + (wrong.length > 24 ? "…" : "")),
        " on.",
      );
    }
  }

  // Guess first: the answer is hidden until a choice is made

  function showGuess(here, isHidden, logQ, truthOf, ids) {
    const { trace, model } = view;
    const follows = trace.ids[here + 1];
    const answer = follows ?? best(truthOf) ?? likeliest(logQ, 1)[0];
    const tally = h(
      "p.tally",
      "You: ",
      figure("right", score.right, String(score.right)),
      " of ",
      figure("guesses", score.guesses, String(score.guesses)),
      " · the model: ",
      figure("model_right", score.model, String(score.model)),
      ` of ${score.guesses} `,
      score.guesses > 0 && h("button.chip", { id: "score-reset", onclick: () => setScore(NO_SCORE) }, "Reset"),
    );
    if (!isHidden) {
      const name = (id) => h("b.mono", visible(model.texts[id]));
      fill(
        guessing,
        h(
          "p",
          revealed.guess === answer ? "Right: " : "Not this time: ",
          name(answer),
          follows === undefined ? " is the likeliest. " : " comes next. ",
          "You guessed ",
          name(revealed.guess),
          ": the model gives it ",
          percent(Math.exp(logQ[revealed.guess])),
          truthOf
            ? `, the truth ${truthOf.has(revealed.guess) ? percent(truthOf.get(revealed.guess)) : "nothing"}`
            : "",
          ".",
        ),
        h("p", guessOn(here, answer)),
        tally,
      );
      return;
    }
    const choices = [...new Set([answer, ...ids])].filter((id) => id >= 0).slice(0, N_CHOICES);
    choices.sort((a, b) => model.texts[a].localeCompare(model.texts[b]) || a - b); // so that order tells nothing
    fill(
      guessing,
      h(
        "p",
        follows === undefined
          ? "Which token is the likeliest to come next? Click your guess."
          : "Which token comes next? Click your guess.",
      ),
      h(
        "div.chips",
        choices.map((id) =>
          h("button.chip.mono.guess", { "data-id": id, onclick: () => guess(id) }, visible(model.texts[id])),
        ),
      ),
      tally,
    );

    function guess(id) {
      const place = trace.ids.slice(0, here + 1).join(" ");
      revealed = { trace, here, guess: id };
      if (score.places.includes(place)) return view.draw();
      setScore({
        guesses: score.guesses + 1,
        right: score.right + (id === answer),
        model: score.model + (likeliest(logQ, 1)[0] === answer),
        places: [...score.places, place],
      });
    }
  }

  function setScore(now) {
    score = now;
    keepScore(score);
    view.draw();
  }

  // To the next place; behind the last one, the answer is written first.
  function guessOn(here, answer) {
    const { trace, model } = view;
    const isInside = here < trace.ids.length - 1;
    const ends = model.stop_ids.includes(answer) || trace.ids.length >= model.context_length || !view.source.canType;
    if (!isInside && ends) return null;
    const go = () => {
      revealed = null;
      if (isInside) moveToken(view, 1);
      else view.store.set({ text: textOf([...trace.ids.slice(1), answer]), at: -1 });
    };
    return h("button", { id: "guess-on", onclick: go }, isInside ? "Next guess" : "Write it and guess again");
  }

  function best(truthOf) {
    if (!truthOf) return undefined;
    return [...truthOf.keys()].reduce((most, id) => (truthOf.get(id) > truthOf.get(most) ? id : most));
  }
}

function sign(mark) {
  return h("span.sign", { "aria-hidden": "true" }, mark);
}
