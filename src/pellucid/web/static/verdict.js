// What the rules of the language say of what is written.

import { fill, h, withCode } from "./elements.js";
import { visible } from "./tokens.js";

const UNKNOWN = "The truth about this text is not known here, so only the model is shown.";

export function drawVerdict(verdict, truth, trace, writes, examples) {
  verdict.className = "verdict";
  if (!truth) return;
  if (!truth.known) return fill(verdict, h("span.muted", withCode(truth.why ?? UNKNOWN)));
  if (String(truth.ids) !== String(trace.ids)) return; // that of this text is on its way
  verdict.dataset.value = truth.is_possible ? trace.text.length : truth.possible_length;
  verdict.classList.toggle("impossible", !truth.is_possible);
  if (!trace.text) return fill(verdict, `An empty page: any ${writes} may begin here.`);
  const sign = h("span.sign", { "aria-hidden": "true" }, truth.is_possible ? "✓" : "✗");
  const said = [inWords(truth, trace, writes), blankFirst(truth, trace.text, examples)];
  fill(verdict, sign, "The language's rules say: ", said);
}

// In a language of symbols each has a blank before it, which is easily forgotten before the first.
function blankFirst({ possible_length }, text, examples) {
  const isForgotten = possible_length === 0 && text[0] !== " " && examples?.[0]?.text[0] === " ";
  return isForgotten ? " Here a text begins with a blank." : "";
}

function inWords({ is_answer, is_whole, is_possible, positions, possible_length }, { text, fills_gaps }, writes) {
  const a = is_answer ? "an answer" : `a ${writes}`;
  if (is_whole && is_possible) return is_answer ? "a whole answer." : `a whole ${writes}, and nothing can follow.`;
  const insideWord = fills_gaps
    ? `What fits a gap is known exactly only in a whole ${writes}.`
    : "The text stops inside a word, so the next token has no exact truth.";
  if (is_possible) return [`${a} can begin like this.`, positions.at(-1) ? "" : ` ${insideWord}`];
  const wrong = text.slice(possible_length);
  const shown = visible(wrong.slice(0, 24)) + (wrong.length > 24 ? "…" : "");
  return [`no ${a.split(" ")[1]} goes on like this, from `, h("mark.mono", shown), " on."];
}
