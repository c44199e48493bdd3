// Lesson 0: the six guesses as a game. The reader bets on the next word, and pays its surprise; so do Ana and the truth.

import { figure, fill, h } from "pellucid/elements.js";
import { numberIn } from "./numbers.js";
import { GUESSES, N_WORDS } from "./six_guesses.js";

const PLAYERS = ["you", "ana", "truth"];
const NAMES = { you: "you", ana: "Ana", truth: "the truth" };

export function guess(place) {
  let bets; // what each of the three gave to the words that have come, in their order
  const beginning = h("p.text");
  const label = h("label", { for: "guess-bet" }, "One to three words, each with a probability:");
  const typed = h("input", {
    id: "guess-bet",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "fox 0.3, mouse 0.2",
    style: { width: "15em", "max-width": "100%" },
  });
  const form = h(
    "form.question",
    { onsubmit: bet },
    label,
    " ",
    typed,
    " ",
    h("button.main", { type: "submit" }, "Bet"),
  );
  const verdict = h("p.verdict", { role: "alert" });
  const said = h("p.said", { role: "status" });
  const table = h("table.counts");
  const again = h("button", { onclick: restart }, "Again");
  fill(
    place,
    h("p.title", "Guess and pay"),
    h("p.about", `What you leave over goes to all other words; there are ${N_WORDS.toLocaleString("en")}.`),
    beginning,
    form,
    verdict,
    said,
    table,
    h("div.buttons", again),
  );
  begin();

  function begin() {
    bets = [];
    fill(said, "");
    draw();
  }

  function restart() {
    begin();
    typed.focus();
  }

  function bet(event) {
    event.preventDefault();
    const { named, fault } = readBet(typed.value);
    fill(verdict, fault ?? "");
    if (fault) return;
    const now = GUESSES[bets.length];
    const given = { you: shareOf(named, now.came), ana: shareOf(bare(now.ana), now.came), truth: now.truth[now.came] };
    bets.push(given);
    fill(said, sentence(now, given));
    draw();
    if (bets.length === GUESSES.length) again.focus();
  }

  function draw() {
    const now = GUESSES[bets.length];
    form.hidden = !now;
    again.disabled = !bets.length;
    typed.value = "";
    fill(verdict, "");
    fill(beginning, now ? `… ${now.text} ___` : ending(bets));
    const head = PLAYERS.map((player) => h("th", { scope: "col" }, NAMES[player]));
    const cell = (player, i, nats) => h("td", figure(`${player}-${i}`, nats, written(nats)));
    const row = (name, i, nats) =>
      h(
        "tr",
        h("th", { scope: "row" }, name),
        PLAYERS.map((each) => cell(each, i, nats(each))),
      );
    const rows = bets.map((given, i) => row(GUESSES[i].came, i, (player) => surprise(given[player])));
    const all = bets.length > 0 && row("all", "all", (player) => total(bets, player));
    fill(table, h("thead", h("tr", h("th", { scope: "col" }, "nats paid"), head)), h("tbody", rows, all));
    table.hidden = !bets.length;
  }
}

const surprise = (p) => (p > 0 ? Math.abs(Math.log(p)) : Infinity);
const total = (bets, player) => bets.reduce((sum, given) => sum + surprise(given[player]), 0);
const written = (nats) => (Number.isFinite(nats) ? nats.toFixed(2) : "∞");
const simple = (word) => word.toLowerCase().replace(/[.,!?;:"]+$/, "");
const bare = (named) => Object.fromEntries(Object.entries(named).map(([word, p]) => [simple(word), p]));

// What a player gave to a word, named or not.
function shareOf(named, word) {
  const left = 1 - Object.values(named).reduce((sum, p) => sum + p, 0);
  return named[simple(word)] ?? Math.max(0, left) / (N_WORDS - Object.keys(named).length);
}

// "fox 0.3, mouse 20%" as words with their probabilities, or what is wrong with it.
function readBet(text) {
  const named = {};
  for (const part of text.split(/;|,(?!\d)/).filter((each) => each.trim())) {
    const [, word, number, percent] = /^\s*(.+?)[\s:=]+([\d.,/]+)\s*(%?)\s*$/.exec(part) ?? [];
    const p = word ? numberIn(number) / (percent ? 100 : 1) : NaN;
    if (Number.isNaN(p)) return { fault: `“${part.trim()}”: write a word and its probability, such as fox 0.3.` };
    if (Object.hasOwn(named, simple(word))) return { fault: `You named ${word} twice.` };
    named[simple(word)] = p;
  }
  const sum = Object.values(named).reduce((a, b) => a + b, 0);
  if (sum > 1 + 1e-9)
    return { fault: `Together these have ${Number(sum.toFixed(4))}, but all probabilities together are 1.` };
  return { named };
}

function sentence({ came, truth }, given) {
  const words = Object.keys(truth);
  const likeliest = words.reduce((best, word) => (truth[word] > truth[best] ? word : best));
  const possible =
    words.length === 1
      ? "nothing else was possible"
      : `${words.length} words were possible, ${likeliest} the likeliest`;
  const paid = `You gave it ${shown(given.you)} and pay ${written(surprise(given.you))} nats`;
  return `It was “${came}”. ${paid}; the truth gave it ${shown(given.truth)}: ${possible}.`;
}

const shown = (p) => String(Number(p.toPrecision(2)));

function ending(bets) {
  const you = total(bets, "you");
  const truth = total(bets, "truth");
  const over = Number.isFinite(you)
    ? `${written(truth)} of it was luck of the draw; ${written(you - truth)} could have been saved by somebody who knows the grammar and reads well.`
    : "You said “never” about a word that came. Whoever leaves nothing over must be right for ever.";
  return `You paid ${written(you)} nats. ${over}`;
}
