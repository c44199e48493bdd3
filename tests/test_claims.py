"""docs/claims.md: each figure stands in a results.csv or is a mark's, and each verdict follows from the figures.

A claim has a function here, found by its words. It gives the figures of its row, in their order and as they should be
written, and the verdict that they allow, by the rules that the page states: `better`, `beyond` and `as_good` are these
rules. If an experiment was made again, the failing test says what to write.
"""

import csv
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, variance
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import t
from scripts.results import NUMBER, figure, read

from experiments.conftest import own_code
from pellucid.evaluation.answers import Share

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/claims.md"
HOLDS, FAILS, OPEN = "**holds here**", "**fails here**", "**open**"
MOST_CHANCE = 0.05  # at which a verdict is still given
RECORDED = read()


class Row(NamedTuple):
    claim: str  # the words in bold
    measured: str
    conditions: str
    verdict: str


class Verdict(NamedTuple):
    """The words of the page, and how probable they are by chance, if nothing differs; None where chance has no part."""

    words: str
    chance: float | None = None

    def __str__(self) -> str:
        return self.words if self.chance is None else f"{self.words} (chance {100 * self.chance:.2g} %)"

    def of_opposite(self) -> "Verdict":
        """The verdict on the opposite claim."""
        return Verdict({HOLDS: FAILS, FAILS: HOLDS}.get(self.words, OPEN), self.chance)


def rows_of_the_page() -> list[Row]:
    """The rows of all its tables."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| **"):
            claim, *others = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(re.match(r"\*\*(.+?)\.\*\*", claim)[1], *others))
    return found


ROWS = rows_of_the_page()

Answer = tuple[list[str], Verdict]
CLAIMS: dict[str, Callable[[], Answer]] = {}
# No run of ours speaks to these: they have no figure, and stay open.
UNMEASURED = {
    "Tying embedding and unembedding costs nothing",
    "A low-rank embedding reduces overfitting",
    "Chat models write with beam search",
}


# Of how little is enough for no verdict, whatever the figures are.
ONE_SEED = Verdict(OPEN)
ONE_RATE = Verdict(
    OPEN
)  # all variants trained with one learning rate, and the claim is about the best that each can do


def claim(words: str) -> Callable[[Callable[[], Answer]], Callable[[], Answer]]:
    def keep(answer: Callable[[], Answer]) -> Callable[[], Answer]:
        CLAIMS[words] = answer
        return answer

    return keep


def runs(experiment: str, *labels: str) -> list[dict[str, str]]:
    """The rows of results.csv with these labels; all if none is given."""
    file = f"docs/experiments/{experiment}/results.csv"
    with (ROOT / file).open(encoding="utf-8") as lines:
        table = list(csv.DictReader(lines))
    unknown = set(labels) - {run["label"] for run in table}
    assert not unknown, f"{file} has no {sorted(unknown)} any more: name other runs in tests/test_claims.py"
    return [run for run in table if not labels or run["label"] in labels]


def values(experiment: str, *labels: str, column: str = "excess") -> list[float]:
    return [float(run[column]) for run in runs(experiment, *labels)]


def percents(experiment: str, *labels: str, column: str = "accuracy.recall") -> list[float]:
    return [100 * value for value in values(experiment, *labels, column=column)]


def spread(numbers: Iterable[float], digits: int = 3) -> str:
    """The mean and, in brackets, the lowest and the highest, unless all are written alike."""
    numbers = sorted(numbers)
    middle, low, high = (f"{number:.{digits}f}" for number in (mean(numbers), numbers[0], numbers[-1]))
    return middle if low == high else f"{middle} ({low}–{high})"


def seeds(experiment: str, *labels: str) -> str:
    n = len({run["seed"] for run in runs(experiment, *labels)})
    return f"{n} seed{'s' if n > 1 else ''}"


def better(first: Sequence[float], second: Sequence[float]) -> Verdict:
    """Is the first lower? With every seed, and with so many seeds that chance would hardly do it.

    If nothing differed, all orders of the n + m values would be equally likely: 1 of them puts the first n in front.
    """
    chance = 1 / math.comb(len(first) + len(second), len(first))
    if chance > MOST_CHANCE or (max(first) >= min(second) and min(first) <= max(second)):
        return Verdict(OPEN)
    return Verdict(HOLDS if max(first) < min(second) else FAILS, chance)


def beyond(values: Sequence[float], threshold: float) -> Verdict:
    """Is the true value above the threshold? With every seed; each would be above it by chance in one case of two."""
    chance = 0.5 ** len(values)
    if chance > MOST_CHANCE or min(values) <= threshold <= max(values):
        return Verdict(OPEN)
    return Verdict(HOLDS if min(values) > threshold else FAILS, chance)


def as_good(first: Sequence[float], second: Sequence[float], margin: float) -> Verdict:
    """Do the means differ by less than the margin? Two one-sided t-tests (Welch's), at 5 % each."""
    if min(len(first), len(second)) < 2:
        return Verdict(OPEN)
    a, b = variance(first) / len(first), variance(second) / len(second)
    freedom = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1)) if a + b else 1
    difference, half = mean(first) - mean(second), float(t.ppf(1 - MOST_CHANCE, freedom)) * math.sqrt(a + b)
    if abs(difference) + half < margin:
        return Verdict(HOLDS, MOST_CHANCE)
    return Verdict(FAILS, MOST_CHANCE) if abs(difference) - half > margin else Verdict(OPEN)


def recorded(path: str) -> float:
    """From docs/results.json; the page shows it by a mark."""
    return float(figure(path, RECORDED))


def ways(quantity: str, way: str) -> float:
    return values("decoding", column=f"{quantity}.{way}")[0]


def whole(way: str, n: int = 500) -> Share:
    return Share(round(n * ways("whole", way)), n)


def with_interval(share: Share) -> str:
    middle, low, high = (f"{100 * number:.0f}" for number in (share.value, *share.interval))
    return f"{middle} % ({low}–{high})"


# Architecture


@claim("Without positions a decoder cannot know the order of words")
def _() -> Answer:
    spelling = percents("positions", "position=none", column="accuracy.spelling")
    excess = [spread(values("positions", f"position={kind}")) for kind in ("none", "sinusoidal")]
    knows_order = beyond(spelling, 90)  # a bag of letters tells how some words go on, not nearly all
    return [*excess, spread(spelling, 1), seeds("positions")], knows_order.of_opposite()


def beyond_the_trained_length(kind: str) -> Answer:
    lengths = [values("positions", f"position={kind}", column=f"contexts.{length}") for length in (128, 192, 320)]
    return [*map(spread, lengths), seeds("positions")], better(lengths[0], lengths[-1]).of_opposite()


@claim("Sines work beyond the trained length")
def _() -> Answer:
    return beyond_the_trained_length("sinusoidal")


@claim("RoPE works beyond the trained length")
def _() -> Answer:
    return beyond_the_trained_length("rope")


@claim("Several heads are better than one")
def _() -> Answer:
    one, four, eight = (
        values("depth_and_heads", label) for label in ("2 layers, 1 head", "2 layers", "2 layers, 8 heads")
    )
    return [*map(spread, (one, four, eight)), seeds("depth_and_heads")], better(four + eight, one)


@claim("One layer cannot repeat what was said")
def _() -> Answer:
    one, two = (percents("depth_and_heads", label) for label in ("1 layer", "2 layers"))
    words = percents("depth_and_heads", "1 layer, whole words")
    repeats = beyond(words, 50)  # repeating words is repeating, even if a word is one token
    return [*(spread(numbers, 1) for numbers in (one, two, words)), seeds("depth_and_heads")], repeats.of_opposite()


def at_its_best_rate(experiment: str, beginning: str) -> list[float]:
    """The excess of the variants whose label begins so, at the learning rate with the lowest mean."""
    labels = {run["label"] for run in runs(experiment) if run["label"].startswith(beginning)}
    return min((values(experiment, label) for label in labels), key=mean)


def norms(placement: str, norm: str, warmup: int) -> list[float]:
    return at_its_best_rate("norms", f"norm_placement={placement}, norm={norm}, warmup_steps={warmup},")


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim that is about several cases: it holds, or fails, if it does in each."""
    words = {verdict.words for verdict in verdicts}
    return verdicts[0] if len(words) == 1 else Verdict(OPEN)


def tenth(values: Sequence[float]) -> float:
    """The margin within which another is as good."""
    return mean(values) / 10


@claim("RMSNorm is as good as LayerNorm")
def _() -> Answer:
    figures, verdicts = [], []
    for placement, warmup in itertools.product(("pre", "post"), (0, 100)):
        layer, rms = (norms(placement, norm, warmup) for norm in ("layer_norm", "rms_norm"))
        figures.append(f"{mean(rms) - mean(layer):+.3f}".replace("-", "−"))
        verdicts.append(as_good(rms, layer, tenth(layer)))
    return [*figures, seeds("norms")], together(verdicts)


@claim("Attention remembers what a recurrent network forgets")
def _() -> Answer:
    kinds = "decoder, plain", "LSTM", "decoder, plain, four times", "LSTM, four times"
    recall = [percents("family", kind) for kind in kinds]
    return [*(f"{spread(found, 1)} %" for found in recall), seeds("family")], better(recall[3], recall[2])


@claim("Attention without the softmax is as good, and cheaper")
def _() -> Answer:
    linear, softmax = (values("linear_attention", label) for label in ("linear", "softmax"))
    recall = [spread(percents("linear_attention", label), 1) for label in ("linear", "softmax")]
    return [spread(linear), spread(softmax), *recall, seeds("linear_attention")], ONE_RATE


@claim("Experts give more for the same work")
def _() -> Answer:
    experts, one = (values("experts", label) for label in ("eight experts", "one layer, as much work"))
    return [spread(experts), spread(one), seeds("experts")], better(experts, one)


# Training


def with_and_without_warmup(placement: str) -> list[tuple[list[float], list[float]]]:
    """For LayerNorm and RMSNorm: the excess without a warmup and with one."""
    return [tuple(norms(placement, norm, steps) for steps in (0, 100)) for norm in ("layer_norm", "rms_norm")]


@claim("Pre-norm needs no warmup")
def _() -> Answer:
    pairs = with_and_without_warmup("pre")
    figures = [spread(excess) for pair in pairs for excess in pair]
    return [*figures, seeds("norms")], together([better(warm, bare).of_opposite() for bare, warm in pairs])


@claim("Post-norm needs a warmup")
def _() -> Answer:
    pairs = with_and_without_warmup("post")
    figures = [spread(excess) for pair in pairs for excess in pair]
    at_most = "norm_placement=post, norm={}, warmup_steps={}, lr=0.004".format
    both = ("layer_norm", "rms_norm")
    collapsed = [sum(excess > 1 for norm in both for excess in values("norms", at_most(norm, n))) for n in (0, 100)]
    assert collapsed == [6, 2], "in words on the page"
    return [*figures, seeds("norms")], together([better(warm, bare) for bare, warm in pairs])


@claim("Muon learns faster than AdamW")
def _() -> Answer:
    muon, adamw = (at_its_best_rate("optimizers", optimizer) for optimizer in ("Muon", "AdamW"))
    return [spread(muon), spread(adamw), seeds("optimizers")], better(muon, adamw)


@claim("Accumulated gradients are as good as one large batch")
def _() -> Answer:
    one, many = (values("accumulation", label, column="val_loss") for label in ("1 batch of 24", "8 batches of 3"))
    apart = max(abs(a - b) for a, b in zip(one, many, strict=True))
    figures = [spread(values("accumulation", "1 batch of 24")), f"{max(one) - min(one):.3f}", seeds("accumulation")]
    return figures, Verdict(
        HOLDS if apart < 1e-6 else FAILS
    )  # a sum, the same for each seed: no chance has a part in it


@claim("A fitted scaling law finds the loss that no model can beat")
def _() -> Answer:
    flops, losses = (np.array(values("scaling", column=column)) for column in ("flops", "val_loss"))
    scaling = own_code("scaling")

    def floor(chosen: np.ndarray) -> float:
        best = chosen[scaling.frontier(flops[chosen], losses[chosen])]
        return scaling.fit_law(flops[best][:, None], losses[best]).irreducible

    everything, cheapest = floor(np.arange(len(flops))), floor(np.argsort(flops, kind="stable")[:20])
    report = (ROOT / "docs/experiments/scaling/report.md").read_text(encoding="utf-8")
    low, high = re.search(r"\| L\(C\) = L∞ .*?\[([\d.]+), ([\d.]+)\]", report).groups()
    n_below = int((losses < everything).sum())
    figures = [f"{everything:.3f}", f"{float(low):.3f} {float(high):.3f}", f"{n_below} runs"]
    figures += [f"{values('scaling', column='floor')[0]:.3f}", f"{cheapest:.3f}", seeds("scaling")]
    return figures, Verdict(OPEN)  # the interval holds the truth, and a run is not drawn as a sample is


# Numbers


@claim("Training takes six operations per weight and token")
def _() -> Answer:
    def ratios(experiment: str, label: list[str], weights: str) -> list[float]:
        return [float(run["flops"]) / float(run["tokens"]) / float(run[weights]) for run in runs(experiment, *label)]

    label = ["decoder, the demo's start"]
    decoder = ratios("family", label, "parameters")
    every = ratios("scaling", [], "parameters")
    figures = [spread(decoder, 1), f"{min(every):.1f} to {max(every):.1f}"]
    figures.append(spread(ratios("family", label, "non_embedding_parameters"), 1))
    return figures, Verdict(HOLDS if max(abs(ratio / 6 - 1) for ratio in decoder) < 0.2 else FAILS)  # counted


@claim("Four bits per weight cost nothing")
def _() -> Answer:
    return [], ONE_SEED


@claim("The model with the lower loss per token is the better one")
def _() -> Answer:
    labels = "characters", "BPE 2048"
    loss = [values("tokenizers", label, column="val_loss") for label in labels]
    bits = [values("tokenizers", label, column="bits_per_byte") for label in labels]
    figures = [*map(spread, loss), *map(spread, bits), seeds("tokenizers")]
    per_token, per_byte = better(*loss), better(*bits)
    disagree = per_token.words == HOLDS and per_byte.words == FAILS
    return figures, Verdict(FAILS, per_byte.chance) if disagree else Verdict(OPEN)


# Writing


@claim("The likeliest text is the best one")
def _() -> Answer:
    beams, top_p = whole("8 beams", 125), whole("top-p 0.9")
    surprise = [f"{ways('surprise', way):.1f}" for way in ("8 beams", "greedy", "true fables")]
    morals = [f"{ways('morals', way):.0f} of 18" for way in ("8 beams", "top-p 0.9")]
    figures = [*surprise, morals[0], with_interval(beams), morals[1], with_interval(top_p), seeds("decoding")]
    return figures, ONE_SEED


@claim("Cutting off the tail helps (top-p)")
def _() -> Answer:
    names = "top-p 0.9", "top-k 50", "the model itself"
    shares = [whole(name) for name in names]
    distances = [f"{100 * ways('distance', name):.0f} %" for name in (names[0], names[-1])]
    return [*map(with_interval, shares), *distances, seeds("decoding")], ONE_SEED


@claim("A repetition penalty helps")
def _() -> Answer:
    with_it, without = whole("repetition penalty 1.2"), whole("the model itself")
    return [with_interval(with_it), with_interval(without), seeds("decoding")], ONE_SEED


# After pre-training


@claim("LoRA needs only rank 1 or 2")
def _() -> Answer:
    labels = ("rank 1", "rank 2", "rank 4", "rank 8", "all parameters")
    obeys = [percents("lora_ranks", label, column="answers.obeys") for label in labels]
    return [*(spread(share, 1) for share in obeys), seeds("lora_ranks")], ONE_RATE


@claim("LoRA is as good as training all weights")
def _() -> Answer:
    return [], ONE_SEED


@claim("Learning from rewards breaks down without a price on divergence")
def _() -> Answer:
    free, priced = "beta=0.0", "beta=0.2"
    reward = [values("grpo_beta", label, column="answers.reward") for label in (free, priced)]
    excess = [percents("grpo_beta", label, column="excess_fraction") for label in (free, priced)]
    figures = [*map(spread, reward), *(f"{spread(found, 1)} %" for found in excess), seeds("grpo_beta")]
    return figures, beyond(reward[0], recorded("frontier/SFT, the reference/reward")).of_opposite()


@claim("A reward model needs a price on divergence, or it is fooled")
def _() -> Answer:
    return [], ONE_SEED


# Thinking


def after_four_arrows(thoughts: str) -> list[float]:
    return percents("value_of_a_thought", f"thoughts={thoughts}, n_layers=4", column="accuracy.four hops")


@claim("Longer thinking is better")
def _() -> Answer:
    none, dots, way = map(after_four_arrows, ("none", "filler", "way"))
    wrong = [[100 - right for right in kind] for kind in (dots, none)]
    return [*(spread(kind, 1) for kind in (none, dots, way)), seeds("value_of_a_thought")], better(*wrong)


@claim("The written thought is the reason for the answer")
def _() -> Answer:
    labels = [f"n_layers={n}, steps=800" for n in (2, 4)]
    places = [percents("faithful", *labels, column=f"step {place}.changed") for place in (1, 2, 3)]
    follow = [mean(of_run) for of_run in zip(*places, strict=True)]
    return [f"{spread(follow, 1)} %", "10 runs"], beyond(follow, 50)


@claim("The majority of many answers is better than one")
def _() -> Answer:
    labels = dict.fromkeys(row["label"] for row in runs("choosing"))
    one, majority = (
        {label: percents("choosing", label, column=f"all.{what}") for label in labels} for what in ("one", "majority")
    )
    gains = [b - a for label in labels for a, b in zip(one[label], majority[label], strict=True)]
    shown = [f"{spread(one[label], 1)} {spread(majority[label], 1)}" for label in [*labels][:3]]
    return [*shown, f"{sum(gain > 0 for gain in gains)} of {len(gains)}", seeds("choosing")], beyond(gains, 0)


NUMBER_IN_A_CELL = re.compile(r"\d+\.\d+|\d+ of \d+|\d+(?= %| seed| runs|–\d+\))|(?<=–)\d+(?=\))")


def numbers(text: str) -> list[str]:
    """The numbers of a cell: decimals, percent, seeds and runs; not those in marks, in code, or in links."""
    return NUMBER_IN_A_CELL.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", NUMBER.sub("", text)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.claim)
def test_a_row_has_the_figures_of_its_experiment_and_the_verdict_that_follows(row):
    figures, verdict = CLAIMS.get(row.claim, lambda: ([], Verdict(OPEN)))()
    written = numbers(row.measured)
    assert written == numbers(" | ".join(figures)), f"docs/claims.md should say here, in this order: {figures}"
    assert row.verdict.startswith(str(verdict)), f"docs/claims.md: from these figures follows {verdict}"


def test_every_claim_of_the_page_is_checked_here_or_named_as_unmeasured():
    claims = [row.claim for row in ROWS]
    assert sorted(claims) == sorted(UNMEASURED | CLAIMS.keys())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.claim)
def test_a_row_names_its_source_and_what_is_open_says_what_would_decide_it(row):
    assert "](" in row.measured, "a link to an experiment or a page"
    assert sum(row.verdict.count(verdict) for verdict in (HOLDS, FAILS, OPEN)) == 1
    if row.verdict.startswith(OPEN):
        assert len(row.verdict) > len(OPEN) + 20


def test_better_is_better_with_every_seed_of_three_or_more():
    assert better([1, 2, 3], [4, 5, 6]) == (HOLDS, 1 / 20)
    assert better([4, 5, 6], [1, 2, 3]) == (FAILS, 1 / 20)
    assert better([1, 3, 5], [2, 4, 6]).words == better([1, 2], [3, 4]).words == better([1], [9]).words == OPEN


def test_a_threshold_is_passed_with_every_seed_of_five_or_more():
    assert beyond([5, 6, 7, 8, 9], 4) == (HOLDS, 1 / 32)
    assert beyond([5, 6, 7, 8, 9], 10) == (FAILS, 1 / 32)
    assert beyond([5, 6, 7, 8], 4).words == beyond([3, 6, 7, 8, 9], 4).words == OPEN


def test_as_good_is_within_a_margin_that_was_set_before():
    assert as_good([1.0, 1.1, 0.9], [1.0, 1.05, 0.95], 0.5).words == HOLDS
    assert as_good([1.0, 1.1, 0.9], [2.0, 2.1, 1.9], 0.5).words == FAILS
    assert as_good([1.0, 1.1, 0.9], [1.5, 1.6, 1.4], 0.5).words == OPEN


@pytest.mark.parametrize("n", [3, 5])
def test_the_rules_are_wrong_as_seldom_as_they_say(n):
    """Of 4,000 simulated experiments in which nothing differs, or just by the margin."""
    rng = np.random.default_rng(n)
    trials = rng.normal(size=(4000, 2, n))
    wrong = {
        "better": np.mean([better(*trial).words == HOLDS for trial in trials.tolist()]),
        "as good": np.mean(
            [as_good(first, [x + 3 for x in second], 3.0).words != OPEN for first, second in trials[:1000].tolist()]
        ),
    }
    assert wrong["better"] == pytest.approx(1 / math.comb(2 * n, n), abs=0.01)
    assert wrong["as good"] < 2 * MOST_CHANCE + 0.02


def test_figures_in_marks_in_code_and_in_links_are_not_those_of_a_csv():
    cell = "<!-- result a/b -->1.5 times, `top-p 0.9`, [here](x_2.5.md): 0.250 (0.1–0.3), 7 % (6–8), 2 seeds, 4 layers"
    assert numbers(cell) == ["0.250", "0.1", "0.3", "7", "6", "8", "2"]
