"""Lesson 13: writing. Write what is missing, then run `pellucid learn 13`.

Probabilities are arrays with a number for each token of the vocabulary, in the order of the token ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch

from pellucid.api import Run
from pellucid.data.truth import next_token_distributions
from pellucid.languages.fables import Fables

Array = np.ndarray
Text = tuple  # the tokens of a text so far
Following = Callable[[Text], Mapping]  # from a text to its next tokens, each with its probability


def softmax(logits: Array) -> Array:
    """Logits as probabilities: positive, and their sum is 1."""
    raised = np.exp(logits - logits.max())
    return raised / raised.sum()


# ---- One token ----


def at_temperature(logits: Array, temperature: float) -> Array:
    """The probabilities at this temperature: p_i is proportional to exp(logit_i / temperature).

    At temperature 0 the largest logit has probability 1 (there is only one that is largest).
    """
    # solution:
    if temperature == 0:
        return np.where(np.arange(len(logits)) == logits.argmax(), 1.0, 0.0)
    return softmax(logits / temperature)
    # end


def draw(probabilities: Array, uniform: float) -> int:
    """The token that a random number in [0, 1) chooses.

    The tokens lie on a line, in the order of their ids, each as long as its probability; token 0 begins at 0. Whose
    piece holds the number? A piece holds its beginning, but not its end.
    """
    # solution:
    ends = np.cumsum(probabilities)
    return int(np.searchsorted(ends, uniform * ends[-1], side="right"))  # the last end need not be exactly 1
    # end


# ---- Cutting the tail off ----


def top_k(probabilities: Array, k: int) -> Array:
    """The distribution over the k likeliest tokens: the others have probability 0, and the sum is 1 again.

    Exactly k tokens stay, or all if there are fewer. If several are equally likely, it does not matter which of them.
    """
    # solution:
    kept = np.zeros_like(probabilities)
    likeliest = np.argsort(-probabilities)[:k]
    kept[likeliest] = probabilities[likeliest]
    return kept / kept.sum()
    # end


def top_p(probabilities: Array, mass: float) -> Array:
    """The distribution over the smallest set of tokens with a probability of at least `mass` > 0 together.

    The likeliest tokens are in the set. The others have probability 0, and the sum is 1 again.
    """
    # solution:
    order = np.argsort(-probabilities)
    mass_before = np.cumsum(probabilities[order]) - probabilities[order]
    stays = order[mass_before < mass]
    kept = np.zeros_like(probabilities)
    kept[stays] = probabilities[stays]
    return kept / kept.sum()
    # end


# ---- Less work ----


def positions_computed(n_prompt: int, n_new: int, has_cache: bool) -> int:
    """How many positions a decoder computes, all in all, to write n_new tokens (at least 1) after n_prompt tokens.

    Without a cache it reads the whole text so far for each new token. With a cache it reads each token once. The last
    token is written, but never read.
    """
    # solution:
    if has_cache:
        return n_prompt + n_new - 1
    return sum(n_prompt + n_written for n_written in range(n_new))
    # end


# ---- Searching ----


def beam_search(following: Following, n_beams: int) -> list[tuple[Text, float]]:
    """A beam search: it finds at most n_beams complete texts, likeliest first, as pairs (text, its ln p).

    A text is a tuple of tokens, and () is the beginning. `following(text)` is a dictionary: each token that may come
    next, and its probability; it is empty for a text that is complete. In each round, all continuations of a beam take
    its place, unless it is complete. Of all these texts, complete or not, the n_beams likeliest are the new beams. The
    search ends when all beams are complete. No probability is 0.
    """
    # solution:
    beams = [((), 0.0)]
    while any(following(text) for text, _ in beams):
        candidates = []
        for text, log_p in beams:
            if tokens := following(text):
                candidates += [((*text, token), log_p + math.log(p)) for token, p in tokens.items()]
            else:
                candidates.append((text, log_p))
        beams = sorted(candidates, key=lambda candidate: -candidate[1])[:n_beams]
    return beams
    # end


def length_normalised(log_p: Array, n_prompt: int, penalty: float) -> float:
    """The score of an answer: the sum of ln p over its tokens, divided by (their number) ** penalty.

    `log_p` has the ln p of each token of the prompt, which are the first n_prompt, and of the answer.
    """
    # solution:
    answer = log_p[n_prompt:]
    return float(np.sum(answer)) / len(answer) ** penalty
    # end


# ---- From both sides ----


def fill_gap(texts_NT: Array, p_N: Array, text_T: Array, place: int, n_words: int) -> Array:
    """The probability of each word (n_words,) at a place of a text, given all other words of it.

    texts: every text of the language, a row of numbers of words each; p: how likely each is. The word that stands at
    the place is not to be looked at.
    """
    # solution:
    others_NT = np.delete(texts_NT == text_T, place, axis=1)
    agrees_N = others_NT.all(axis=1)
    masses = np.bincount(texts_NT[agrees_N, place], weights=p_N[agrees_N], minlength=n_words)
    return masses / masses.sum()
    # end


# ---- Given: two trees to search ----


def small_tree(text: Text) -> dict[str, float]:
    """The tree of lecture notes N2, filled in: what may follow a text. "." ends it, and so does the fourth token."""
    if len(text) == 4 or text[-1:] == (".",):
        return {}
    after = {
        (): {"A": 0.5, "B": 0.25, "C": 0.17, ".": 0.08},
        ("A",): {"A": 0.1, "B": 0.4, "C": 0.3, ".": 0.2},
        ("A", "B"): {"A": 0.2, "B": 0.2, "C": 0.4, ".": 0.2},
        ("A", "C"): {"A": 0.1, "B": 0.6, "C": 0.2, ".": 0.1},
        ("A", "B", "C"): {"A": 0.1, "B": 0.2, "C": 0.1, ".": 0.6},
        ("A", "C", "B"): {"A": 0.1, "B": 0.2, "C": 0.1, ".": 0.6},
    }
    return after.get(text, {"A": 0.3, "B": 0.3, "C": 0.2, ".": 0.2})


class TreeOfFables:
    """The tree of all fables, as `following` of a beam search. A token is the number of an option of the grammar."""

    def __init__(self, fables: Fables) -> None:
        self._at = {(): ("", fables.grammar.begin())}  # what is written so far, and the next choice

    def __call__(self, choices: Text) -> dict[int, float]:
        fork = self._reach(choices)[1]
        return {} if fork is None else {option: fork.probability(option) for option in fork.allowed()}

    def text(self, choices: Text) -> str:
        """What these choices write."""
        return self._reach(choices)[0]

    def _reach(self, choices: Text):
        if choices not in self._at:
            written, fork = self._reach(choices[:-1])
            more, next_fork = fork.write(choices[-1])
            self._at[choices] = written + more, next_fork
        return self._at[choices]


# ---- Given: what the demo says of a fable, and what is true ----


def logits_and_truth(run: Run, fables: Fables, fable: str) -> tuple[Array, Array]:
    """Two tables with a row for each token of a fable and for its end, and a column for each token of the vocabulary.

    The logits of the model before this token, and the exact probabilities of what may come.
    """
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode(fable)]
    with torch.inference_mode():
        logits = run.model(torch.tensor([ids]))[0].double().numpy()
    truth = np.zeros_like(logits)
    for row, p in zip(truth, next_token_distributions(fables, run.tokenizer, fable), strict=True):
        row[list(p)] = list(p.values())
    return logits, truth
