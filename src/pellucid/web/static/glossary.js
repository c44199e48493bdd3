// The words that the page needs, explained where one points at them: `term("floor")` in a panel, or an element with
// `data-term` in index.html.

import { h } from "./elements.js";

const GLOSSARY = {
  token: "A piece of text that has a number: a word, a part of one, or a sign.",
  loss: "The mean surprise per token, in nats, on text that the model has not learned from.",
  surprise:
    "−ln p of the token that came, where p is the probability that the model gave to it: 0 if the model was certain of it.",
  nats: "The unit of surprise. One of two equally likely tokens surprises by ln 2 = 0.69 nats, one of 2,048 by 7.6.",
  floor: "The surprise of someone who knows the exact probabilities of the text. On average, no model can do better.",
  excess: "Loss minus floor: what is left to learn. On a short text it may be negative, by luck.",
  head: "One of several attentions side by side in a layer. Each has its own queries, keys and values.",
  logits: "A score for every token. Softmax makes them probabilities.",
  stream:
    "The vector of a token on its way through the layers. Each part adds to it and replaces nothing (residual stream).",
  "logit lens": "The scores that come out if the rest of the layers is left out.",
  entropy:
    "The mean surprise of a draw from a distribution: 0 if one token is certain, ln n for n equally likely ones.",
  KL: "KL divergence: how many nats the model loses at this token because its probabilities are not the true ones. 0 if they are. The sliders do not change it.",
  "previous token": "The share of its attention that this head gives to the token just before.",
  induction: "The share that it gives to what came after this token the last time.",
  "same token": "The share that it gives to this token where it came before.",
  "first token": "The share that it gives to the start of the text.",
  temperature:
    "Logits are divided by it before the softmax: below 1 likely tokens become likelier, above 1 less likely.",
};

export function term(name, text = name) {
  return h("dfn.term", { tabindex: 0, "data-says": GLOSSARY[name] }, text);
}

// Gives each element with `data-term` its explanation.
export function linkTerms(root = document) {
  for (const element of root.querySelectorAll("[data-term]"))
    element.replaceWith(term(element.dataset.term, element.textContent));
}
