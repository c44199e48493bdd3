"""docs/claims.md: each figure stands in a results.csv or is a mark's, and each verdict follows from the figures.

A claim has a function here, found by its words. It gives the figures of its row, in their order and as they should be
written, and the verdict that they allow. If an experiment was made again, the failing test says what to write.
"""

import csv
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import pytest
from scripts.results import NUMBER, figure, read

from experiments.conftest import own_code
from pellucid.evaluation.answers import Share

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/claims.md"
HOLDS, FAILS, OPEN = "**holds here**", "**fails here**", "**open**"
RECORDED = read()


class Row(NamedTuple):
    claim: str  # the words in bold
    measured: str
    verdict: str


def rows_of_the_page() -> list[Row]:
    """The rows of all its tables."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| **"):
            claim, measured, verdict = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(re.match(r"\*\*(.+?)\.\*\*", claim)[1], measured, verdict))
    return found


ROWS = rows_of_the_page()

Answer = tuple[list[str], str]
CLAIMS: dict[str, Callable[[], Answer]] = {}
# No run of ours speaks to these: they have no figure, and stay open.
UNMEASURED = {
    "Tying embedding and unembedding costs nothing",
    "A low-rank embedding reduces overfitting",
    "Chat models write with beam search",
}


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


def lower(first: Iterable[float], second: Iterable[float]) -> str:
    """Is every seed of the first lower than every seed of the second? Open where their ranges meet."""
    first, second = list(first), list(second)
    if max(first) < min(second):
        return HOLDS
    return FAILS if min(first) > max(second) else OPEN


def higher(first: Iterable[float], second: Iterable[float]) -> str:
    return lower(second, first)


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
    knows_order = min(spelling) > 90  # a bag of letters tells how some words go on, not nearly all
    return [*excess, spread(spelling, 1), seeds("positions")], FAILS if knows_order else OPEN


def beyond_the_trained_length(kind: str) -> Answer:
    lengths = [values("positions", f"position={kind}", column=f"contexts.{length}") for length in (128, 192, 320)]
    works = {FAILS: HOLDS, HOLDS: FAILS, OPEN: OPEN}[lower(lengths[0], lengths[-1])]
    return [*map(spread, lengths), seeds("positions")], works


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
    return [*map(spread, (one, four, eight)), seeds("depth_and_heads")], lower(four + eight, one)


@claim("One layer cannot repeat what was said")
def _() -> Answer:
    one, two = (percents("depth_and_heads", label) for label in ("1 layer", "2 layers"))
    words = percents("depth_and_heads", "1 layer, whole words")
    verdict = FAILS if min(words) > 50 else OPEN  # repeating words is repeating, even if a word is one token
    return [*(spread(numbers, 1) for numbers in (one, two, words)), seeds("depth_and_heads")], verdict


def norms(placement: str, norm: str, warmup: int) -> list[float]:
    return values("norms", f"norm_placement={placement}, norm={norm}, warmup_steps={warmup}")


@claim("RMSNorm is as good as LayerNorm")
def _() -> Answer:
    pairs = [(placement, warmup) for placement in ("pre", "post") for warmup in (0, 100)]
    differences = [
        abs(mean(norms(placement, "layer_norm", warmup)) - mean(norms(placement, "rms_norm", warmup)))
        for placement, warmup in pairs
    ]
    gains = [mean(norms("pre", norm, 0)) - mean(norms("pre", norm, 100)) for norm in ("layer_norm", "rms_norm")]
    verdict = HOLDS if max(differences) < min(gains) / 5 else OPEN
    return [f"{max(differences):.3f}", f"{min(gains):.3f}", seeds("norms")], verdict


@claim("Attention remembers what a recurrent network forgets")
def _() -> Answer:
    kinds = "decoder, plain", "LSTM", "decoder, plain, four times", "LSTM, four times"
    recall = [percents("family", kind) for kind in kinds]
    return [*(f"{spread(found, 1)} %" for found in recall), seeds("family")], higher(recall[2], recall[3])


@claim("Attention without the softmax is as good, and cheaper")
def _() -> Answer:
    linear, softmax = (values("linear_attention", label) for label in ("linear", "softmax"))
    recall = [spread(percents("linear_attention", label), 1) for label in ("linear", "softmax")]
    verdict = FAILS if lower(softmax, linear) == HOLDS else OPEN
    return [spread(linear), spread(softmax), *recall, seeds("linear_attention")], verdict


@claim("Experts give more for the same work")
def _() -> Answer:
    experts, one = (values("experts", label) for label in ("eight experts", "one layer, as much work"))
    return [spread(experts), spread(one), seeds("experts")], lower(experts, one)


# Training


def warmup(placement: str) -> Answer:
    """The verdict on: without warmup it is as good."""
    kinds = "layer_norm", "rms_norm"
    figures = [spread(norms(placement, norm, steps)) for norm in kinds for steps in (0, 100)]
    without, with_it = ([run for norm in kinds for run in norms(placement, norm, steps)] for steps in (0, 100))
    return [*figures, seeds("norms")], lower(without, with_it)


@claim("Pre-norm needs no warmup")
def _() -> Answer:
    return warmup("pre")


@claim("Post-norm needs a warmup")
def _() -> Answer:
    figures, does_without = warmup("post")
    return figures, HOLDS if does_without == FAILS else FAILS  # who does as well without does not need it


def at_its_best_rate(optimizer: str) -> list[float]:
    labels = {run["label"] for run in runs("optimizers") if run["label"].startswith(optimizer)}
    return min((values("optimizers", label) for label in labels), key=mean)


@claim("Muon learns faster than AdamW")
def _() -> Answer:
    muon, adamw = map(at_its_best_rate, ("Muon", "AdamW"))
    return [spread(muon), spread(adamw), seeds("optimizers")], lower(muon, adamw)


@claim("Accumulated gradients are as good as one large batch")
def _() -> Answer:
    of_seeds = [
        [float(run["val_loss"]) for run in runs("accumulation") if run["seed"] == seed]
        for seed in sorted({run["seed"] for run in runs("accumulation")})
    ]
    of_ways = max(max(losses) - min(losses) for losses in of_seeds)
    between_seeds = max(map(mean, of_seeds)) - min(map(mean, of_seeds))
    figures = [spread(values("accumulation", "1 batch of 24")), f"{between_seeds:.3f}", seeds("accumulation")]
    return figures, HOLDS if of_ways < 1e-6 else FAILS


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
    return figures, FAILS if n_below else OPEN


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
    return figures, HOLDS if max(abs(ratio / 6 - 1) for ratio in decoder) < 0.2 else FAILS


def costs_nothing(percent: float) -> str:
    """The verdict on a cost in percent of the loss: nothing is less than a thousandth."""
    return HOLDS if percent < 0.1 else FAILS


@claim("Four bits per weight cost nothing")
def _() -> Answer:
    return [], costs_nothing(recorded("quantization/nf4/cost (% of the loss)"))


@claim("The model with the lower loss per token is the better one")
def _() -> Answer:
    labels = "characters", "BPE 2048"
    loss = [values("tokenizers", label, column="val_loss") for label in labels]
    bits = [values("tokenizers", label, column="bits_per_byte") for label in labels]
    figures = [*map(spread, loss), *map(spread, bits), seeds("tokenizers")]
    return figures, FAILS if lower(*loss) == HOLDS and lower(*bits) == FAILS else OPEN


# Writing


@claim("The likeliest text is the best one")
def _() -> Answer:
    beams, top_p = whole("8 beams", 125), whole("top-p 0.9")
    surprise = [f"{ways('surprise', way):.1f}" for way in ("8 beams", "greedy", "true fables")]
    morals = [f"{ways('morals', way):.0f} of 18" for way in ("8 beams", "top-p 0.9")]
    poorer = ways("morals", "8 beams") < ways("morals", "top-p 0.9")
    verdict = FAILS if poorer and beams.interval[0] <= top_p.interval[1] else OPEN
    figures = [*surprise, morals[0], with_interval(beams), morals[1], with_interval(top_p), seeds("decoding")]
    return figures, verdict


def more(first: Share, second: Share) -> str:
    return lower(second.interval, first.interval)


@claim("Cutting off the tail helps (top-p)")
def _() -> Answer:
    names = "top-p 0.9", "top-k 50", "the model itself"
    shares = [whole(name) for name in names]
    distances = [f"{100 * ways('distance', name):.0f} %" for name in (names[0], names[-1])]
    return [*map(with_interval, shares), *distances, seeds("decoding")], more(shares[0], shares[-1])


@claim("A repetition penalty helps")
def _() -> Answer:
    with_it, without = whole("repetition penalty 1.2"), whole("the model itself")
    return [with_interval(with_it), with_interval(without), seeds("decoding")], more(with_it, without)


# After pre-training


@claim("LoRA needs only rank 1 or 2")
def _() -> Answer:
    labels = ("rank 1", "rank 2", "rank 4", "rank 8", "all parameters")
    obeys = [percents("lora_ranks", label, column="answers.obeys") for label in labels]
    verdict = FAILS if max(obeys[0] + obeys[1]) < min(obeys[-1]) else OPEN
    return [*(spread(share, 1) for share in obeys), seeds("lora_ranks")], verdict


@claim("LoRA is as good as training all weights")
def _() -> Answer:
    return [], costs_nothing(recorded("adapters/LoRA, rank 8/more than all weights (%)"))


@claim("Learning from rewards breaks down without a price on divergence")
def _() -> Answer:
    free, priced = "beta=0.0", "beta=0.2"
    reward = [values("grpo_beta", label, column="answers.reward") for label in (free, priced)]
    excess = [percents("grpo_beta", label, column="excess_fraction") for label in (free, priced)]
    figures = [*map(spread, reward), *(f"{spread(found, 1)} %" for found in excess), seeds("grpo_beta")]
    start = recorded("frontier/SFT, the reference/reward")
    return figures, FAILS if min(reward[0]) > start else HOLDS


@claim("A reward model needs a price on divergence, or it is fooled")
def _() -> Answer:
    ends = "truth, start", "truth, end"
    free, priced = ([recorded(f"over_optimization/{b}/{end}") for end in ends] for b in ("β = 0", "β = 1"))
    return [], HOLDS if free[1] < free[0] and priced[1] >= priced[0] else OPEN


NUMBER_IN_A_CELL = re.compile(r"\d+\.\d+|\d+ of \d+|\d+(?= %| seed| runs|–\d+\))|(?<=–)\d+(?=\))")


def numbers(text: str) -> list[str]:
    """The numbers of a cell: decimals, percent, seeds and runs; not those in marks, in code, or in links."""
    return NUMBER_IN_A_CELL.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", NUMBER.sub("", text)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.claim)
def test_a_row_has_the_figures_of_its_experiment_and_the_verdict_that_follows(row):
    figures, verdict = CLAIMS.get(row.claim, lambda: ([], OPEN))()
    written = numbers(f"{row.measured} | {row.verdict}")
    assert written == numbers(" | ".join(figures)), f"docs/claims.md should say here, in this order: {figures}"
    assert row.verdict.startswith(verdict), f"docs/claims.md: from these figures follows {verdict}"


def test_every_claim_of_the_page_is_checked_here_or_named_as_unmeasured():
    claims = [row.claim for row in ROWS]
    assert sorted(claims) == sorted(UNMEASURED | CLAIMS.keys())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.claim)
def test_a_row_names_its_source_and_what_is_open_says_what_would_decide_it(row):
    assert "](" in row.measured, "a link to an experiment or a page"
    assert sum(row.verdict.count(verdict) for verdict in (HOLDS, FAILS, OPEN)) == 1
    if row.verdict.startswith(OPEN):
        assert len(row.verdict) > len(OPEN) + 20


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [([1, 2], [3, 4], HOLDS), ([3, 4], [1, 2], FAILS), ([1, 3], [2, 4], OPEN), ([1, 2], [2, 3], OPEN)],
)
def test_lower_is_what_is_lower_with_every_seed(first, second, verdict):
    assert lower(first, second) == verdict


def test_figures_in_marks_in_code_and_in_links_are_not_those_of_a_csv():
    cell = "<!-- result a/b -->1.5 times, `top-p 0.9`, [here](x_2.5.md): 0.250 (0.1–0.3), 7 % (6–8), 2 seeds, 4 layers"
    assert numbers(cell) == ["0.250", "0.1", "0.3", "7", "6", "8", "2"]
