"""Checks of lesson 0: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from pellucid.course.checks import Wrong, draws, expect, unchanged

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
        return unchanged(function, *arguments)
    except RecursionError:
        raise Wrong(
            "your function calls itself without an end: for a part that is a rule, it has to begin with that rule"
        ) from None


def our_entropy(probabilities: Sequence[float]) -> float:
    return -total(p * ln(p) for p in probabilities if p > 0)


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
    for p in (*draws("surprise").uniform(0.001, 1, size=5), 1e-12, 1e-300):
        what = f"the surprise at a word of probability {p:.3g}"
        rare = f"{what}: you have ∞, not {-ln(p):.4g}: that is rare, but not impossible; only p = 0 is"
        expect(lesson.surprise(float(p)), -ln(p), what, [(math.inf, rare)], tolerance=1e-12)


def surprise_of_guess(lesson: ModuleType) -> None:
    _one_guess(lesson)
    _other_guesses(lesson)


def _other_guesses(lesson: ModuleType) -> None:
    """A named zero, nothing left over, nothing named, everything named, and numbers drawn by chance."""
    nothing = "fox 0.75 and owl 0, and it is an owl"
    no_logarithm = (
        f"{nothing}: that is infinitely much, but Python has no logarithm of 0; your `surprise` knows this case"
    )
    named = (f"{nothing}: you gave the owl a share of what was left over; but it was named, with 0, and so it was "
             "impossible to this player")  # fmt: skip
    expect(
        answered(lesson.surprise_of_guess, {"fox": 0.75, "owl": 0.0}, "owl", 24, instead_of_an_error=no_logarithm),
        math.inf,
        nothing,
        [(-ln(0.25 / 22), named), (-ln(0.25 / 23), named)],
    )
    shared = "fox 0.75 and owl 0 of 24 animals, and it is a hare"
    expect(
        lesson.surprise_of_guess({"fox": 0.75, "owl": 0.0}, "hare", 24),
        -ln(0.25 / 22),
        shared,
        [(-ln(0.25 / 23), f"{shared}: you shared 0.25 among 23; the owl was named, though with 0: 22 are left")],
    )
    all_bet = "fox 0.5 and owl 0.5, and it is a hare"
    never = f"{all_bet}: nothing was left over, so to this player the hare was impossible: that costs infinitely much"
    answer = answered(lesson.surprise_of_guess, {"fox": 0.5, "owl": 0.5}, "hare", 24, instead_of_an_error=never)
    if answer is not None and not math.isinf(answer):
        raise Wrong(never)
    expect(answer, math.inf, all_bet)
    all_named = "two possible words, fox 0.5 and owl 0.5, and it is an owl"
    divided = f"{all_named}: you divide by the number of words that were not named, which is 0; none of them came"
    answer = answered(lesson.surprise_of_guess, {"fox": 0.5, "owl": 0.5}, "owl", 2, instead_of_an_error=divided)
    expect(answer, -ln(0.5), all_named)
    expect(lesson.surprise_of_guess({}, "hare", 24), math.log(24), "nothing was named of 24 animals, and it is a hare")
    what = '"Never" 0.5 and "A" 0.2 of 24 words, and it is "never"'
    capital = f'{what}: you took "Never" for it; a text has both words, and they are not equally likely'
    expect(lesson.surprise_of_guess({"Never": 0.5, "A": 0.2}, "never", 24), -ln(0.3 / 22), what, [(-ln(0.5), capital)])
    random = draws("surprise_of_guess")
    for n_named in (1, 3, 5):
        shares = random.dirichlet(np.ones(n_named + 1)).tolist()[:-1]
        guess = {f"word{i}": p for i, p in enumerate(shares)}
        n_words = int(random.integers(50, 2000))
        what = f"a guess that names {n_named} of {n_words} words, and leaves {1 - sum(shares):.3f} over"
        given = dict(guess)
        expect(lesson.surprise_of_guess(given, "another", n_words), -ln((1 - sum(shares)) / (n_words - n_named)), what)
        expect(lesson.surprise_of_guess(given, "word0", n_words), -ln(shares[0]), f"{what}: at a named word")
        if given != guess:
            raise Wrong("your function changes the guess that it gets; whoever looks at it afterwards finds another")


def _one_guess(lesson: ModuleType) -> None:
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
    _mean_of_four(lesson)
    _other_means(lesson)


def _other_means(lesson: ModuleType) -> None:
    """A long text, an impossible word, one word, a word that comes again, and lists drawn by chance."""
    what = "a text of 400 words, each of probability 0.01"
    product = (
        f"{what}: the product of 400 probabilities is too small for a computer, which makes 0 of it; take the "
        "logarithms first, and add"
    )
    answer = answered(lesson.mean_surprise, [0.01] * 400, instead_of_an_error=product)
    expect(answer, -ln(0.01), what, [(math.inf, product), (-ln(0.01) / 400, f"{what}: equal words count each time")])
    what = "three words of probability 0.5, 0.5 and 0"
    impossible = f"{what}: the last one was impossible, and came: no mean makes that finite"
    answer = answered(lesson.mean_surprise, [0.5, 0.5, 0.0], instead_of_an_error=impossible)
    if answer is not None and math.isfinite(answer):
        raise Wrong(impossible)
    expect(answer, math.inf, what)
    what = "one word of probability 1e-60"
    expect(lesson.mean_surprise([1e-60]), -ln(1e-60), what)
    random = draws("mean_surprise")
    for n in random.integers(5, 60, size=3):
        p = random.choice(random.uniform(0.001, 1, size=5), size=n).tolist()
        right = -total(map(ln, p)) / len(p)
        of_set = -total(map(ln, set(p)))
        what = f"{n} words, some of equal probability"
        again = f"{what}: you have {{:.4g}}, not {right:.4g}: two words of equal probability are still two words"
        by_both = [(of_set / d, again.format(of_set / d)) for d in (len(p), len(set(p)))]
        given = list(p)
        expect(lesson.mean_surprise(given), right, what, by_both)
        if given != p:
            raise Wrong("your function changes the list that it gets; whoever needs these words again finds others")


def _mean_of_four(lesson: ModuleType) -> None:
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
    _entropy_of_three(lesson)
    _other_entropies(lesson)


def _other_entropies(lesson: ModuleType) -> None:
    """Rare outcomes, very many, and distributions drawn by chance, with zeros and with equal numbers."""
    what, p = "the entropy of 0.99, 0.009, 0.001 and 0", [0.99, 0.009, 0.001, 0.0]
    expect(lesson.entropy(p), our_entropy(p), what, tolerance=1e-6)
    n = 2_000
    what, right = f"the entropy of {n:,} outcomes, all equally likely", math.log(n)
    added = [
        (-math.log(1 / n + tiny), f"{what}: you are {right + math.log(1 / n + tiny):.1g} nats below ln {n:,}: you add "
                                  f"{tiny:g} to each p to be safe from ln 0, and so change the others; leave out the 0")
        for tiny in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12)
    ]  # fmt: skip
    rare = (0.0, f"{what}: rare is not the same as impossible")
    expect(lesson.entropy([1 / n] * n), right, what, [*added, rare], tolerance=1e-10)
    random = draws("entropy")
    for n in (2, 7, 30):
        p = random.dirichlet(np.ones(n))
        p = np.concatenate([p / 2, p / 2, [0.0]])[random.permutation(2 * n + 1)]  # each number twice
        what = f"the entropy of {len(p)} outcomes, two of each probability, and one that never comes"
        right = our_entropy(p)
        of_set = our_entropy(list(set(p)))
        twice = f"{what}: you have {of_set:.4g}, not {right:.4g}: two outcomes may be equally likely, and both count"
        expect(unchanged(lesson.entropy, p.tolist()), right, what, [(of_set, twice)])
    for tiny in (1e-6, 1e-8):
        what, p = f"the entropy of 1 - {tiny:g} and {tiny:g}", [1 - tiny, tiny]
        sure = f"{what}: you have 0, as if {tiny:g} were impossible; only an outcome of p = 0 is left out"
        expect(lesson.entropy(p), our_entropy(p), what, [(-p[0] * ln(p[0]), sure)])


def _entropy_of_three(lesson: ModuleType) -> None:
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
    _cost_of_one(lesson)
    _other_costs(lesson)


def _other_costs(lesson: ModuleType) -> None:
    """A rare outcome called impossible beside one that is, a very bold guess, the truth itself, and random ones."""
    what, tiny = "truth 1 - 1e-9, 1e-9, 0 and guess 1, 0, 0", 1e-9
    never = (f"{what}: the second outcome is rare, but it comes, and the guesser had said \"never\": that costs "
             "infinitely much")  # fmt: skip
    answer = answered(lesson.cost_of_wrong_guesses, [1 - tiny, tiny, 0.0], [1.0, 0.0, 0.0], instead_of_an_error=never)
    if answer is not None and not math.isinf(answer):
        raise Wrong(never)
    expect(answer, math.inf, what)
    bold = "truth 0.5, 0.5 and guess 1 - 1e-200, 1e-200"
    expect(lesson.cost_of_wrong_guesses([0.5, 0.5], [1.0, 1e-200]), 0.5 * ln(0.25) - 0.5 * ln(1e-200), bold)
    random = draws("cost_of_wrong_guesses")
    for n in (2, 6, 40):
        truth, guess = random.dirichlet(np.ones(n), size=2)
        right = total(p * (ln(p) - ln(q)) for p, q in zip(truth, guess, strict=True))
        order = random.permutation(n + 2)
        longer, theirs = (np.concatenate([each, zeros])[order].tolist()
                          for each, zeros in ((truth, [0.0, 0.0]), (guess * 0.5, [0.5, 0.0])))  # fmt: skip
        expect(lesson.cost_of_wrong_guesses(truth.tolist(), guess.tolist()), right, f"{n} outcomes drawn by chance")
        expect(unchanged(lesson.cost_of_wrong_guesses, longer, theirs), right + math.log(2),
               f"{n + 2} outcomes, two of which never come: the guesser gave half to one of these")  # fmt: skip
        expect(lesson.cost_of_wrong_guesses(longer, longer), 0.0, "somebody who guesses the truth")


def _cost_of_one(lesson: ModuleType) -> None:
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
    _texts_of_few_rules(lesson)
    twice = {"pair": [(1, ["animal", "and", "animal"])], "animal": [(1, ["fox"]), (1, ["owl"])]}
    what = "an option with two animals, animal and animal"
    answer = lesson.probabilities_of_texts(twice, "pair")
    if isinstance(answer, Mapping) and set(answer) == {"fox and fox", "owl and owl"}:
        raise Wrong(f'{what}: your two are always alike; the rule is drawn anew each time, so "fox and owl" may come')
    _expect_texts(answer, _texts(twice, "pair"), what)
    silent = {"s": [(1, ["a", "look", "fox"])], "look": [(1, []), (3, ["red"])]}
    what = "a rule that may write nothing at all"
    answer = answered(lesson.probabilities_of_texts, silent, "s", instead_of_an_error=f"{what}: it is an option too")
    _expect_texts(answer, _texts(silent, "s"), what)
    inside = {"ox": [(1, ["fox", "rod"])], "rod": [(0.5, ["rodent"]), (1.5, ["crow"])]}
    _expect_texts(lesson.probabilities_of_texts(inside, "ox"), _texts(inside, "ox"),
                  'a rule named "ox" that writes "fox": a part is compared as a whole; weights 0.5, 1.5')  # fmt: skip
    random = draws("probabilities_of_texts")
    for depth in (0, 1, 2):
        rules = _drawn_rules(random, depth)
        names = ", ".join(rules)
        what = f"rules drawn by chance ({names}; the last has {len(rules['top'])} options, and small weights)"
        _expect_texts(lesson.probabilities_of_texts(rules, "top"), _texts(rules, "top"), what)


def _drawn_rules(random: np.random.Generator, depth: int) -> dict[str, Any]:
    """Rules of which each uses the one below, some options twice, with weights that are no whole numbers; those of the
    last add up to less than 1.
    """
    rules: dict[str, Any] = {}
    for level in [*range(1, depth + 1), "top"]:
        below = list(rules)[-1] if rules else "red"
        name = f"level{level}" if level != "top" else level
        parts = [[below, below], *random.choice([below, "old"], size=(int(random.integers(1, 3)), 2)).tolist()]
        most = 3 if level != "top" else 0.3
        rules[name] = [(float(random.uniform(0.07, 1) * most), [f"{name}-{i}", *each]) for i, each in enumerate(parts)]
    return rules


def _texts(rules: Mapping[str, Any], name: str) -> dict[str, float]:
    """All texts of a rule, with their probabilities."""
    texts: dict[str, float] = {}
    unfinished = [((), (name,), 1.0)]
    while unfinished:
        words, ahead, p = unfinished.pop()
        if not ahead:
            texts[" ".join(words)] = texts.get(" ".join(words), 0.0) + p
        elif ahead[0] in rules:
            weights = sum(weight for weight, _ in rules[ahead[0]])
            unfinished += [(words, (*parts, *ahead[1:]), p * w / weights) for w, parts in rules[ahead[0]]]
        else:
            unfinished.append(((*words, ahead[0]), ahead[1:], p))
    return texts


def _texts_of_few_rules(lesson: ModuleType) -> None:
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
    _floor_of_few_rules(lesson)
    coins = {"fable": [(1, ["coin"] * 13)], "coin": [(1, ["heads"]), (3, ["tails"])]}
    tracemalloc.start()
    try:
        answer = lesson.floor_of_rules(coins)
        kept = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    expect(answer, _floor(coins, "fable"), "thirteen coins in a row")
    if kept > 100_000:
        raise Wrong(f"thirteen coins in a row: the number is right, but your function kept {kept / 1000:.0f} kB, "
                    "a number for each of 8,192 texts. The fables have 10⁴⁸: do without a list, rule by "
                    "rule")  # fmt: skip
    random = draws("floor_of_rules")
    for depth in (1, 3, 4):
        rules = _drawn_rules(random, depth)
        what = f"rules drawn by chance, {depth + 1} levels deep, with weights of any size"
        expect(with_an_end(lesson.floor_of_rules, rules, "top"), _floor(rules, "top"), what)


def _floor_of_few_rules(lesson: ModuleType) -> None:
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
            (_floor(coin, "fable"), "one option with two animals: you have 0.5623, the floor of the rules before: your "
                                    "function remembers from one call to the next; other rules have the same names"),
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
    random = draws("mean_and_error")
    for n, offset in ((2, 0.0), (17, -3.0), (60, 1e8)):
        numbers = np.round(random.normal(size=n), 6) + offset
        mean, error = float(numbers.mean()), float(numbers.std(ddof=1) / math.sqrt(n))
        what = f"{n} numbers about {offset:,.0f}" if offset else f"{n} numbers"
        given = numbers.tolist()
        answer = lesson.mean_and_error(given)
        expect(answer[0], mean, f"{what}: the mean", tolerance=1e-9)
        if given != numbers.tolist():
            raise Wrong("your function changes the list that it gets: the third number may belong to the third fable, "
                        "and now it stands elsewhere")  # fmt: skip
        if offset == 1e8 and not abs(answer[1] - error) <= 1e-5 * error:
            raise Wrong(
                f"{what}: your error is {answer[1]:.4g}, not {error:.4g}: is it a small difference of two large "
                "numbers, such as the mean square minus the square of the mean? Their last digits are rounded; "
                "subtract first, then square"
            )
        expect(answer[1], error, f"{what}: the error", tolerance=1e-6)
