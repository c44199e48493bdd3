"""Checks of lesson 0: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from pellucid.course.checks import Wrong, expect

BITS = 1 / math.log(2)  # bits in a nat: 1.443


def ln(p: float) -> float:
    return math.log(p) if p > 0 else -math.inf


def total(numbers: Any) -> float:
    """A sum in which 0 · infinity is 0."""
    return math.fsum(numbers)


def answered(function: Callable[..., Any], *arguments: Any, instead_of_an_error: str) -> Any:
    """What a function answers; for Python's complaint about ln 0, a division by 0 or a missing key, a sentence."""
    try:
        return function(*arguments)
    except (ValueError, ZeroDivisionError, KeyError) as error:
        if not any(word in str(error) for word in ("math domain", "positive input", "zero", "'hare'")):
            raise
        raise Wrong(instead_of_an_error) from None


def with_an_end(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function that calls itself answers; if it never comes to an end, a sentence."""
    try:
        return function(*arguments)
    except RecursionError:
        raise Wrong(
            "your function calls itself without an end: for a part that is a rule, it has to begin with that rule"
        ) from None


def in_bits(what: str, nats: float) -> tuple[float, str]:
    return nats * BITS, (
        f"{what}: you have {nats * BITS:.4g}, not {nats:.4g}: that is in bits; 1 nat = 1.443 bits, so in nats it is "
        f"smaller by this ratio"
    )


def surprise(lesson: ModuleType) -> None:
    what, p = "the surprise at a word of probability 0.2", 0.2
    right = -ln(p)
    expect(
        lesson.surprise(p),
        right,
        what,
        [
            in_bits(what, right),
            (-ln(1 - p), f"{what}: you have 0.2231, not 1.609: that is the surprise if the word does *not* come; a "
                         "rarer word has to surprise more"),
            (1 - p, f"{what}: you have 0.8, not 1.609: 1 - p never exceeds 1, and for two words in a row such "
                    "surprises do not add up; those of a logarithm do"),
            (-right, f"{what}: you have -1.609: the logarithm of a number below 1 is negative, a surprise is not"),
            (-math.log10(p), f"{what}: you have 0.699, which is to the base 10; nats take the natural logarithm"),
        ],
    )  # fmt: skip
    expect(lesson.surprise(1.0), 0.0, "the surprise at a word that was certain")
    never = "the surprise at an impossible word (p = 0)"
    no_number = f"{never}: it is math.inf, but Python has no logarithm of 0; take this case by itself"
    answer = answered(lesson.surprise, 0.0, instead_of_an_error=no_number)
    if answer is not None and math.isfinite(answer):
        raise Wrong(
            f"{never}: you have {answer:.4g}, but no finite number of nats makes up for it: whoever said \"never\" and "
            "was wrong gave the whole text the probability 0"
        )  # fmt: skip
    expect(answer, math.inf, never)


def surprise_of_guess(lesson: ModuleType) -> None:
    guess = {"fox": 0.5, "owl": 0.2}
    expect(
        lesson.surprise_of_guess(guess, "owl", 24),
        -ln(0.2),
        "a guess of 0.2 for the owl, and it is an owl",
        [
            (-ln(0.2 / 0.7), "a guess of 0.2 for the owl, and it is an owl: you made the named words add up to 1, as "
                             "if no other could come; the owl has the 0.2 that was said, and 0.3 are left for others"),
        ],
    )  # fmt: skip
    what = "fox 0.5 and owl 0.2 of 24 animals, and it is a hare"
    why_inf = (
        f"{what}: to you, a word that was not named is impossible; but 0.3 were left over, and the other 22 animals "
        "have it"
    )
    answer = answered(lesson.surprise_of_guess, guess, "hare", 24, instead_of_an_error=why_inf)
    expect(
        answer,
        -ln(0.3 / 22),
        what,
        [
            (math.inf, why_inf),
            (-ln(0.3), f"{what}: you gave all of the 0.3 to the hare, and so to each of the 22 others: together they "
                       "would have a probability of 6.6"),
            (-ln(0.3 / 24), f"{what}: you shared 0.3 among all 24, but two of these have their probability already: "
                            "yours add up to 0.975"),
            (-ln(1 / 24), f"{what}: you gave the hare 1/24, as if nothing had been guessed: with 0.7 for fox and owl, "
                          "the probabilities add up to 1.617"),
            (-ln(0.7 / 22), f"{what}: you shared out the 0.7 that fox and owl have; what is left over is 0.3"),
        ],
    )  # fmt: skip


def mean_surprise(lesson: ModuleType) -> None:
    p = [0.5, 0.1, 0.9, 1.0]
    right = -total(map(ln, p)) / 4
    what = "four words of probability 0.5, 0.1, 0.9 and 1"
    expect(
        lesson.mean_surprise(p),
        right,
        what,
        [
            in_bits(what, right),
            (-ln(sum(p) / 4), f"{what}: you have 0.47, not 0.7753: that is the surprise at the mean probability; take "
                              "the logarithm first, then the mean, because a text's probability is a product"),
            (math.exp(right), f"{what}: you have 2.171, not 0.7753: that is the perplexity, e to the mean surprise"),
            (right * 4, f"{what}: you have 3.101, not 0.7753: that is the surprise of the whole text; a mean per word "
                        "divides it by the number of words"),
            (right * 4 / 3, f"{what}: you have 1.034, not 0.7753: you left out the word that was certain; it adds no "
                            "surprise, but it is one of the words"),
            (sum(p) / 4, f"{what}: you have 0.625, the mean probability; the mean of the surprises is asked for"),
        ],
    )  # fmt: skip


def entropy(lesson: ModuleType) -> None:
    p = [0.6, 0.3, 0.1]
    right = -total(x * ln(x) for x in p)
    unweighted = -total(map(ln, p))
    what = "the entropy of 0.6, 0.3, 0.1"
    expect(
        lesson.entropy(p),
        right,
        what,
        [
            in_bits(what, right),
            (unweighted, f"{what}: you have {unweighted:.4g}, not {right:.4g}: you added the surprises as they are, "
                         "but a rare outcome is a rare surprise: it counts with its probability"),
            (unweighted / 3, f"{what}: you have {unweighted / 3:.4g}, not {right:.4g}: in your mean each outcome "
                             "counts a third, but the first one comes in six draws of ten"),
            (right / 3, f"{what}: you have {right / 3:.4g}, not {right:.4g}: you divided by the number of outcomes, "
                        "but the probabilities are the weights of a mean already: they add up to 1"),
            (-right, f"{what}: you have {-right:.4g}: an expected surprise is not negative"),
        ],
    )  # fmt: skip
    what = "the entropy of 0.5, 0, 0.5"
    never = (
        f"{what}: an outcome of probability 0 never comes, so it adds nothing; 0 · ln 0 counts as 0 here, but Python "
        "does not know that"
    )
    answer = answered(lesson.entropy, [0.5, 0.0, 0.5], instead_of_an_error=never)
    if answer is not None and math.isnan(answer):
        raise Wrong(never)
    expect(answer, math.log(2), what)
    expect(lesson.entropy([1.0]), 0.0, "the entropy of a certain outcome")


def cost_of_wrong_guesses(lesson: ModuleType) -> None:
    truth, guess = [0.7, 0.2, 0.1], [0.2, 0.3, 0.5]
    pays = -total(p * ln(q) for p, q in zip(truth, guess, strict=True))
    floor = -total(p * ln(p) for p in truth)
    swapped = total(q * (ln(q) - ln(p)) for p, q in zip(truth, guess, strict=True))
    unweighted = total(ln(p / q) for p, q in zip(truth, guess, strict=True))
    under_guess = -total(q * ln(q) for q in guess)
    what = "truth 0.7, 0.2, 0.1 and guess 0.2, 0.3, 0.5"
    expect(
        lesson.cost_of_wrong_guesses(truth, guess),
        pays - floor,
        what,
        [
            in_bits(what, pays - floor),
            (swapped, f"{what}: you have {swapped:.4g}, not {pays - floor:.4g}: you have swapped truth and guess; the "
                      "words are drawn by the truth, so the truth holds the weights"),
            (-swapped, f"{what}: you have {-swapped:.4g}, not {pays - floor:.4g}: your differences are right, but you "
                       "weight them with the guess; how often a word comes is up to the truth"),
            (unweighted, f"{what}: you have {unweighted:.4g}, not {pays - floor:.4g}: each outcome counts in full; "
                         "it counts with the probability that it comes"),
            (floor - pays, f"{what}: you have {floor - pays:.4g}: negative, as if a wrong guess paid less than the "
                           "truth; subtract the other way round"),
            (pays, f"{what}: you have {pays:.4g}, not {pays - floor:.4g}: that is all that the guesser pays; the truth "
                   f"pays {floor:.4g} of it too, so only the rest is the cost of being wrong"),
            (pays - under_guess, f"{what}: you subtracted the entropy of the guess; whoever knows the truth pays the "
                                 "entropy of the truth"),
        ],
    )  # fmt: skip
    what = "truth 0.5, 0.5, 0, 0 and guess 0.4, 0.4, 0.2, 0"
    never = f"{what}: the last two outcomes never come, so they cost nothing, whatever was guessed"
    truth, guess = [0.5, 0.5, 0.0, 0.0], [0.4, 0.4, 0.2, 0.0]
    answer = answered(lesson.cost_of_wrong_guesses, truth, guess, instead_of_an_error=never)
    if answer is not None and math.isnan(answer):
        raise Wrong(never)
    expect(answer, ln(1.25), what)
    what = "truth 0.5, 0.5 and guess 1, 0"
    never = (
        f"{what}: the second outcome does come, in half of the draws, and the guesser had said \"never\": that costs "
        "infinitely much"
    )  # fmt: skip
    answer = answered(lesson.cost_of_wrong_guesses, [0.5, 0.5], [1.0, 0.0], instead_of_an_error=never)
    if answer is not None and not math.isinf(answer):
        raise Wrong(never)
    expect(answer, math.inf, what)


RULES = {
    "fable": [(3, ["the", "animal", "deed"]), (1, ["nothing", "happened"])],
    "animal": [(2, ["fox"]), (1, ["owl"]), (1, ["hare"])],
    "deed": [(2, ["slept"]), (1, ["sang", "to", "the", "animal"])],
}
# "the red fox slept" can be written in two ways.
TWO_WAYS = {
    "fable": [(2, ["the", "look", "fox", "slept"]), (3, ["the", "red", "animal", "slept"])],
    "look": [(1, ["red"]), (3, ["old"])],
    "animal": [(1, ["fox"]), (1, ["owl"])],
}


def probabilities_of_texts(lesson: ModuleType) -> None:
    what = "fox with weight 2, owl and hare with weight 1"
    _expect_texts(
        with_an_end(lesson.probabilities_of_texts, RULES, "animal"),
        {"fox": 0.5, "owl": 0.25, "hare": 0.25},
        what,
        [
            ({"fox": 2.0, "owl": 1.0, "hare": 1.0}, f"{what}: your fox has the probability 2: weights are shares of "
                                                    "the rule's total weight, here 4"),
            (dict.fromkeys(("fox", "owl", "hare"), 1 / 3), f"{what}: your three are equally likely; an option with "
                                                           "twice the weight is drawn twice as often"),
        ],
    )  # fmt: skip
    _expect_texts(
        with_an_end(lesson.probabilities_of_texts, RULES, "deed"),
        {"slept": 2 / 3, "sang to the fox": 1 / 6, "sang to the owl": 1 / 12, "sang to the hare": 1 / 12},
        "a rule that uses another",
    )
    what = "\"the red fox slept\", which can be written in two ways"  # fmt: skip
    _expect_texts(
        lesson.probabilities_of_texts(TWO_WAYS),
        {"the red fox slept": 0.4, "the old fox slept": 0.3, "the red owl slept": 0.3},
        what,
        [
            ({"the red fox slept": 0.3, "the old fox slept": 0.3, "the red owl slept": 0.3},
             f"{what}: you kept only the last way, so your probabilities add up to 0.9; a text has the probability of "
             "all its ways together"),
            ({"the red fox slept": 0.1, "the old fox slept": 0.3, "the red owl slept": 0.3},
             f"{what}: you kept only the first way, so your probabilities add up to 0.7; a text has the probability of "
             "all its ways together"),
        ],
    )  # fmt: skip
    within = {
        "fable": [(1, ["first", "second"])],
        "first": [(1, ["old"]), (1, ["old", "red"])],
        "second": [(1, ["fox"]), (1, ["red", "fox"])],
    }
    what = '"old red fox", which one option can write in two ways'
    _expect_texts(
        lesson.probabilities_of_texts(within),
        {"old fox": 0.25, "old red fox": 0.5, "old red red fox": 0.25},
        what,
        [({"old fox": 0.25, "old red fox": 0.25, "old red red fox": 0.25},
          f"{what}: your probabilities add up to 0.75; when a beginning and a continuation give a text that is there "
          "already, their probabilities add up")],
    )  # fmt: skip


def _expect_texts(
    answer: Any, right: Mapping[str, float], what: str, mistakes: Sequence[tuple[Mapping[str, float], str]] = ()
) -> None:
    """Compare the texts, then their probabilities."""
    if answer is None:
        raise Wrong(f"{what}: your function returns None; is a `return` missing?")
    if not isinstance(answer, Mapping):
        raise Wrong(f"{what}: expected a dict {{text: probability}}, but got {type(answer).__name__}")
    for text in answer:
        if text != " ".join(text.split()):
            raise Wrong(f"{what}: your text {text!r} has a space too many; spaces stand between words only")
    missing, extra = sorted(right.keys() - answer.keys()), sorted(map(str, answer.keys() - right.keys()))
    if missing:
        instead = f", but there is {extra[0]!r}, which cannot be written" if extra else ""
        raise Wrong(f"{what}: the text {missing[0]!r} is missing{instead}; there are {len(right)} texts")
    if extra:
        raise Wrong(f"{what}: the text {extra[0]!r} cannot be written; there are {len(right)} texts")
    expect(
        [answer[text] for text in right],
        list(right.values()),
        f"{what} (texts in the order {', '.join(map(repr, right))})",
        [([wrong[text] for text in right], sentence) for wrong, sentence in mistakes],
    )


def floor_of_rules(lesson: ModuleType) -> None:
    coin = {"fable": [(3, ["yes"]), (1, ["no"])]}
    right = _floor(coin, "fable")
    expect(
        lesson.floor_of_rules(coin),
        right,
        "one rule, two options of weight 3 and 1",
        [
            (0.0, "one rule, two options of weight 3 and 1: you have 0, not 0.5623: both options end at once, but "
                  "which of them comes is a choice too; its entropy counts"),
            (-3 * math.log(3), "one rule, two options of weight 3 and 1: you have -3.296, not 0.5623: you took the "
                               "weights for probabilities; these are 3/4 and 1/4"),
            (math.log(2), "one rule, two options of weight 3 and 1: you have 0.6931, not 0.5623: that would be right "
                          "for equal weights"),
            in_bits("one rule, two options of weight 3 and 1", right),
        ],
    )  # fmt: skip
    twice = {"fable": [(1, ["a", "fox", "animal", "animal"])], "animal": RULES["animal"]}
    right = _floor(twice, "fable")
    expect(
        with_an_end(lesson.floor_of_rules, twice),
        right,
        "one option with two animals",
        [
            (0.0, "one option with two animals: you have 0, not 2.079: at the top there is nothing to choose, but the "
                  "animals that it leads to are drawn; what comes after a choice counts too"),
            (right / 2, "one option with two animals: you have 1.04, not 2.079: the rule is used twice, and each time "
                        "it is drawn anew: two draws, two entropies"),
        ],
    )  # fmt: skip
    right = _floor(RULES, "fable")
    equal = _floor(RULES, "fable", shares=lambda p: [1 / len(p)] * len(p))
    full = _floor(RULES, "fable", shares=lambda p: [1.0] * len(p))
    without = _floor(RULES, "fable", counts_the_choice=False)
    what = "the rules fable, animal and deed"
    expect(
        lesson.floor_of_rules(RULES),
        right,
        what,
        [
            (equal, f"{what}: you have {equal:.4g}, not {right:.4g}: you averaged the options as if all were equally "
                    "likely; what comes after an option counts with the option's probability"),
            (full, f"{what}: you have {full:.4g}, not {right:.4g}: you added all options in full; what comes after an "
                   "option happens only if that option is drawn"),
            (without, f"{what}: you have {without:.4g}, not {right:.4g}: which option comes is a choice too; its "
                      "entropy counts"),
            in_bits(what, right),
        ],
    )  # fmt: skip
    right = _floor(TWO_WAYS, "fable")
    what = 'the choices of rules that write "the red fox slept" in two ways'
    of_texts = -total(p * ln(p) for p in (0.4, 0.3, 0.3))
    expect(
        lesson.floor_of_rules(TWO_WAYS),
        right,
        what,
        [(of_texts, f"{what}: you have {of_texts:.4g}, the entropy of the list of texts; do without the list: for the "
                    "real fables it would never end")],
    )  # fmt: skip


def _floor(
    rules: Mapping[str, Any],
    name: str,
    shares: Callable[[list[float]], list[float]] = lambda p: p,
    counts_the_choice: bool = True,
) -> float:
    """The entropy of a rule; `shares` replaces the weights with which what comes after the options counts."""
    weights = [weight for weight, _ in rules[name]]
    p = [weight / sum(weights) for weight in weights]
    of_choice = -total(x * ln(x) for x in p) if counts_the_choice else 0.0
    after = [
        total(_floor(rules, part, shares, counts_the_choice) for part in parts if part in rules)
        for _, parts in rules[name]
    ]
    return of_choice + total(share * each for share, each in zip(shares(p), after, strict=True))


def mean_and_error(lesson: ModuleType) -> None:
    values = [1.0, 2.0, 4.0, 9.0]
    deviation = math.sqrt(38 / 3)
    what = "the values 1, 2, 4, 9"
    answer = lesson.mean_and_error(values)
    if answer is not None and not (isinstance(answer, Sequence) or hasattr(answer, "shape")):
        raise Wrong(f"{what}: expected a mean and an error, but got {type(answer).__name__}")
    expect(
        answer,
        (4.0, deviation / 2),
        what,
        [
            ((4.0, deviation), f"{what}: your error is {deviation:.4g}, not {deviation / 2:.4g}: that is how far *one* "
                               "draw strays; a mean of n strays √n times less"),
            ((4.0, deviation / 4), f"{what}: your error is {deviation / 4:.4g}, not {deviation / 2:.4g}: you divided "
                                   "by n = 4; errors partly cancel, and what is left of them shrinks with √n"),
            ((4.0, math.sqrt(38) / 4), f"{what}: your error is {math.sqrt(38) / 4:.4g}, not {deviation / 2:.4g}: the "
                                       "values are nearer to their own mean than to the true one; dividing by n - 1 "
                                       "makes up for that"),
            ((4.0, math.sqrt(38 / 4)), f"{what}: your error is {math.sqrt(38 / 4):.4g}: that is how far *one* draw "
                                       "strays (with n for n - 1); a mean of n strays √n times less"),
            ((4.0, 38 / 6), f"{what}: your error is {38 / 6:.4g}, not {deviation / 2:.4g}: you divided the variance by "
                            "√n, but forgot its own root: how far a draw strays is the root of the variance"),
            ((4.0, 38 / 12), f"{what}: your error is {38 / 12:.4g}, which is a squared distance, a variance; an error "
                             "is in the unit of the values"),
        ],
    )  # fmt: skip
