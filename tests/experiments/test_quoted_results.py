"""Sentences about the experiments, in reports and lessons, quote their results.csv."""

import csv
import re
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from pellucid.corpora.drawn import Drawn
from pellucid.evaluation.answers import Share
from pellucid.languages.fables import Fables

ROOT = Path(__file__).parents[2]


def results(experiment):
    with (ROOT / f"docs/experiments/{experiment}/results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def words(page):
    """The text of a page on one line."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def recall(rows):
    """The recall of each run, in percent."""
    return sorted(100 * float(row["accuracy.recall"]) for row in rows)


def of_100(kind):
    return f"{mean(recall(row for row in results('family') if row['label'] == kind)):.0f}"


def half_right(kind):
    """From the first to the last seed, the update at which half of the cases were right; and how many got there."""
    found = [row["half.recall"] for row in results("family") if row["label"] == kind]
    steps = sorted(int(float(step)) for step in found if step)
    return steps[0], steps[-1], len(steps)


@pytest.mark.parametrize("page", ["README.md", "docs/experiments/family/report.md"])
def test_why_attention_quotes_the_recall_of_decoder_and_lstm(page):
    text = words(page)
    once, longer = ([of_100(kind + times) for kind in ("decoder, plain", "LSTM")] for times in ("", ", four times"))
    assert f"right in {once[0]} of 100 cases, and an LSTM in {once[1]}" in text
    assert f"the decoder is right in {longer[0]}, the LSTM in {longer[1]}" in text
    assert f"With Muon the decoder is right in {of_100('decoder, Muon')}" in text
    assert f"the LSTM in {of_100('LSTM, Muon')}" in text


def test_the_report_on_the_family_says_when_decoder_and_lstm_begin_to_recall():
    text = words("docs/experiments/family/report.md")
    first, last, n = half_right("decoder, plain, four times")
    assert (f"after {first} to {last} updates" in text, n) == (True, 5)
    step, _, n = half_right("LSTM, four times")
    assert (f"one LSTM of five after {step:,}" in text, n) == (True, 1)


@pytest.mark.parametrize(
    ("way", "n", "form"),
    [
        ("2 beams", 125, r"(\d+) % are whole with 2 beams \(95 % interval (\d+) to (\d+)\)"),
        ("4 beams", 125, r"(\d+) % with 4 \((\d+) to (\d+)\)"),
        ("8 beams", 125, r"(\d+) % with 8 \((\d+) to (\d+)\)"),
        ("the model itself", 500, r"only (\d+) of 100 \((\d+) to (\d+), of 500 texts\)"),
        ("top-p 0.9", 500, r"(\d+) \((\d+) to (\d+)\) and \d+ \(\d+ to \d+\) of 100 whole"),
        ("min-p 0.1", 500, r"and (\d+) \((\d+) to (\d+)\) of 100 whole"),
        ("repetition penalty 1.2", 500, r"(\d+) of 100 whole \((\d+) to (\d+)\)"),
    ],
)
def test_the_report_on_decoding_gives_wilsons_intervals(way, n, form):
    [row] = results("decoding")
    share = Share(round(float(row[f"whole.{way}"]) * n), n)
    expected = [f"{100 * number:.0f}" for number in (share.value, *share.interval)]
    assert list(re.search(form, words("docs/experiments/decoding/report.md")).groups()) == expected


def test_what_recall_repeats_was_told_some_twenty_words_before():
    corpus = Drawn(Fables(24), size=30, seed=0, validation_fraction=0.5)
    recall = corpus.language.skills.index("recall")
    words_between = []
    for text in corpus.documents("validation"):
        skills = corpus.language.skills_of(text)
        for piece in corpus.language.decided_pieces(text):
            if recall in skills[piece.start : piece.end]:
                last_told = max(end for _, end in piece.by)
                words_between.append(len(text[last_told : piece.start].split()))
    assert 15 < np.median(words_between) < 25


def test_the_report_on_beliefs_says_what_is_read_from_a_model_and_what_the_last_symbols_tell():
    text = words("docs/experiments/belief/report.md")

    def percent(label, column, digits=1):
        found = [float(row[f"beliefs.{column}"]) for row in results("belief") if row["label"] == label]
        return f"{100 * mean(found):.{digits}f}"

    of_one, of_two = (percent(label, "the last norm") for label in ("slow, 1 layer", "slow, 2 layers"))
    assert f"with one layer ({of_one}) as with two ({of_two})" in text
    four, six, linear = (percent("slow, 2 layers", who, digits=0) for who in ("last 4", "last 6", "linear filter"))
    assert f"The last four symbols tell {four} %, the last six {six} %" in text
    assert f"It reads {linear} % in the slow process" in text
    assert f"the last symbol alone tells ({percent('slow, 2 layers', 'last 1', digits=0)} %)" in text
    read, told = (percent("fast, 2 layers", column) for column in ("the last norm", "last 4"))
    assert f"it is {read} %. But there the last four symbols tell {told} %" in text
    assert f"one block gives {percent('slow, 1 layer', 'block 1')} %" in text
    assert f"the first has {percent('slow, 2 layers', 'block 1')} %" in text


def test_lesson_9_says_how_far_cut_batches_and_other_seeds_are_apart():
    losses = {}
    for row in results("accumulation"):
        losses.setdefault(row["seed"], []).append(float(row["val_loss"]))
    assert max(max(of_seed) - min(of_seed) for of_seed in losses.values()) < 1e-6
    apart = abs(mean(losses["0"]) - mean(losses["1"]))
    text = words("lessons/09_what_it_costs.md")
    assert f"within a millionth of a nat of each other. Two seeds differ by {apart:.3f} nats" in text


def test_the_floor_of_the_tokenizers_is_the_same_for_all_in_bits_per_byte():
    floors = [
        float(row["bits_per_byte"]) * float(row["floor"]) / float(row["val_loss"]) for row in results("tokenizers")
    ]
    assert max(floors) == pytest.approx(min(floors), rel=1e-4)
    assert f"no model can do better than {mean(floors):.3f}" in words("docs/experiments/tokenizers/report.md")
    assert f"the floor of their test was {mean(floors):.3f}" in words("lessons/04_text_to_numbers.md")
