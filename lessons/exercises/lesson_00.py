"""Lesson 0: guess the next word. Write what is missing, then run `pellucid learn 0`.

Logarithms are natural here (`math.log`), so surprises are in nats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pellucid.data.truth import first_word_length
from pellucid.languages.fables import Fables
from pellucid.languages.grammar.notation import read_rules
from pellucid.languages.language import NextWord

# A rule is a list of options. An option has a weight and parts: a part that is a rule's name stands for one of that
# rule's options, drawn anew each time; any other part is a word.
Rules = Mapping[str, Sequence[tuple[float, Sequence[str]]]]


# ---- Given: what the grammar of the fables knows ----


def first_words(story: str, n_words: int) -> str:
    """The beginning of a text, up to the end of its n-th word."""
    end = 0
    for _ in range(n_words):
        end += first_word_length(story[end:]) or len(story) - end
    return story[:end]


def next_words(fables: Fables, beginning: str) -> dict[str, float]:
    """The words that may follow these complete words, each with its exact probability, the likeliest first."""
    words: dict[str, float] = {}
    for word, p in fables.words_on(beginning, first_word_length).items():
        words[word.text.strip()] = words.get(word.text.strip(), 0.0) + p
    return dict(sorted(words.items(), key=lambda item: -item[1]))


def words_with_probabilities(fables: Fables, story: str) -> list[tuple[str, float]]:
    """Each word of a fable, with its exact probability after the words before it."""
    pairs = []
    end = 0
    for word, words in fables.words_of(story, first_word_length):
        end += len(word)
        pairs.append((word.strip(), words[NextWord(word, ends_document=end == len(story))]))
    return pairs


def notation(rules: Rules) -> str:
    """Rules as the files of the real grammar write them."""
    lines = []
    for name, options in rules.items():
        lines.append(name)
        lines += [
            f"    {w} {' '.join(f'[{part}]' if part in rules else part for part in parts)}" for w, parts in options
        ]
    return "\n".join(lines)


def as_fables(rules: Rules) -> Fables:
    """Pellucid's own distribution for a few rules; its entropy comes from the code that knows the real floor."""
    return Fables(2, read_rules(notation(rules)))


THREE_RULES = {
    "fable": [(3, ["the", "animal", "deed"]), (1, ["nothing", "happened"])],
    "animal": [(2, ["fox"]), (1, ["owl"]), (1, ["hare"])],
    "deed": [(1, ["slept"]), (1, ["sang"])],
}


# ---- Surprise ----


def surprise(p: float) -> float:
    """The surprise, in nats, at an event of probability p. At an impossible one (p = 0) it is math.inf."""
    # solution:
    return math.log(1 / p) if p > 0 else math.inf
    # end


def surprise_of_guess(guess: Mapping[str, float], word: str, n_words: int) -> float:
    """The surprise at `word` for somebody who named some words, each with a probability.

    There are n_words possible words. What the named words leave over is shared equally among all the others.
    """
    # solution:
    if word in guess:
        return surprise(guess[word])
    return surprise((1 - sum(guess.values())) / (n_words - len(guess)))
    # end


def mean_surprise(probabilities: Sequence[float]) -> float:
    """The mean surprise, in nats per word, at words that had these probabilities: the loss."""
    # solution:
    return sum(surprise(p) for p in probabilities) / len(probabilities)
    # end


# ---- What surprise to expect ----


def entropy(probabilities: Sequence[float]) -> float:
    """The expected surprise, in nats, at one draw from this list of probabilities. Some of them may be 0."""
    # solution:
    return sum(p * surprise(p) for p in probabilities if p > 0)
    # end


def cost_of_wrong_guesses(truth: Sequence[float], guess: Sequence[float]) -> float:
    """How many nats more than necessary a guesser pays per draw, on average: the KL divergence.

    Outcome i is drawn with probability truth[i]; the guesser gave it guess[i]. Either may be 0.
    """
    # solution:
    return sum(p * (surprise(q) - surprise(p)) for p, q in zip(truth, guess, strict=True) if p > 0)
    # end


# ---- The floor of a few rules ----


def probabilities_of_texts(rules: Rules, name: str = "fable") -> dict[str, float]:
    """Every text that the rule `name` can write, with its probability. Words are joined by one space."""
    # solution:
    total = sum(weight for weight, _ in rules[name])
    texts: dict[str, float] = {}
    for weight, parts in rules[name]:
        written = {"": weight / total}
        for part in parts:
            following = probabilities_of_texts(rules, part) if part in rules else {part: 1.0}
            longer: dict[str, float] = {}
            for beginning, p in written.items():
                for continuation, q in following.items():
                    text = f"{beginning} {continuation}".strip()
                    longer[text] = longer.get(text, 0.0) + p * q
            written = longer
        for text, p in written.items():
            texts[text] = texts.get(text, 0.0) + p
    return texts
    # end


def floor_of_rules(rules: Rules, name: str = "fable") -> float:
    """The entropy, in nats, of all choices that the rule `name` leads to. The texts are not listed.

    It is the entropy of the texts too, if no text can be written in two ways.
    """
    # solution:
    total = sum(weight for weight, _ in rules[name])
    floor = 0.0
    for weight, parts in rules[name]:
        p = weight / total
        floor += p * (surprise(p) + sum(floor_of_rules(rules, part) for part in parts if part in rules))
    return floor
    # end


# ---- From a sample to the truth ----


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean of independent draws, and its standard error: the standard deviation of such means.

    A single draw's variance is estimated by the sum of squared deviations from the mean, divided by n - 1.
    """
    # solution:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
    # end
