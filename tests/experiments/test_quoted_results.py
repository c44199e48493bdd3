"""Sentences about the experiments, in reports and lessons, quote their results.csv."""

import csv
import math
import re
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
import yaml

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


QUOTES = yaml.safe_load((Path(__file__).parent / "quotes.yaml").read_text(encoding="utf-8"))
FIGURE = re.compile(r"\{([^{}|]+) \| ([^{}|]+) \| ([^{}|]+) \| (\d)\}")


def quoted(experiment, label, which, column, decimals):
    """A figure as quotes.yaml names it, as a page shows it."""
    name, scale = column.removesuffix(" (%)"), 100 if column.endswith(" (%)") else 1
    several = re.search(r"(\d+)\.\.(\d+)", name)
    numbers = range(int(several[1]), int(several[2]) + 1) if several else [""]
    columns = [name.replace(several[0], str(number)) if several else name for number in numbers]
    runs = [row for row in results(experiment) if fnmatchcase(row["label"], label)]
    values = sorted(scale * mean(float(run[each] or "inf") for each in columns) for run in runs)
    known = [value for value in values if value < math.inf]
    if seed := re.fullmatch(r"seed (\d+)", which):
        [value] = [scale * float(run[name]) for run in runs if run["seed"] == seed[1]]
    else:
        middle = {"mean": mean(known), "median": values[len(values) // 2], "n": len(known)}
        value = (middle | {"lowest": known[0], "highest": known[-1]})[which]
    return f"{value:,.{decimals}f}"


@pytest.mark.parametrize(("experiment", "where"), [(name, where) for name, pages in QUOTES.items() for where in pages])
def test_a_sentence_about_an_experiment_has_the_figures_of_its_runs(experiment, where):
    if where == "short answer":
        [text] = re.findall(
            rf"^\| \[{experiment}\].*", (ROOT / "docs/experiments/README.md").read_text("utf-8"), re.MULTILINE
        )
    else:
        text = words({"report": f"docs/experiments/{experiment}/report.md", "languages": "docs/languages.md"}[where])
    for sentence in QUOTES[experiment][where]:
        shown = FIGURE.sub(lambda figure: quoted(experiment, *figure.groups()), sentence)
        assert shown in text


def test_hundreds_of_figures_are_quoted_and_a_median_counts_who_never_got_there(monkeypatch):
    assert (
        sum(len(FIGURE.findall(sentence)) for pages in QUOTES.values() for of in pages.values() for sentence in of)
        > 250
    )
    rows = [{"label": f"a {i}", "seed": str(i), "half": half} for i, half in enumerate(["100", "", "300", "200", ""])]
    monkeypatch.setitem(globals(), "results", lambda name: rows)
    shown = {which: quoted("any", "a *", which, "half", 0) for which in ("median", "n", "highest", "seed 3")}
    assert shown == {"median": "300", "n": "3", "highest": "300", "seed 3": "200"}


def recall(rows):
    """The recall of each run, in percent."""
    return sorted(100 * float(row["accuracy.recall"]) for row in rows)


def of_100(kind):
    return f"{mean(recall(row for row in results('family') if row['label'] == kind)):.0f}"


@pytest.mark.parametrize("page", ["docs/family.md", "docs/experiments/family/report.md"])
def test_why_attention_quotes_the_recall_of_decoder_and_lstm(page):
    text = words(page)
    once, longer = ([of_100(kind + times) for kind in ("decoder, plain", "LSTM")] for times in ("", ", four times"))
    assert f"right in {once[0]} of 100 cases, and an LSTM in {once[1]}" in text
    assert f"the decoder is right in {longer[0]}, the LSTM in {longer[1]}" in text
    assert f"With Muon the decoder is right in {of_100('decoder, Muon')}" in text
    assert f"the LSTM in {of_100('LSTM, Muon')}" in text


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


def test_lesson_9_says_how_far_cut_batches_and_other_seeds_are_apart():
    losses = {}
    for row in results("accumulation"):
        losses.setdefault(row["seed"], []).append(float(row["val_loss"]))
    assert max(max(of_seed) - min(of_seed) for of_seed in losses.values()) < 1e-6
    apart = abs(mean(losses["0"]) - mean(losses["1"]))
    text = words("lessons/11_what_it_costs.md")
    assert f"within a millionth of a nat of each other. Two seeds differ by {apart:.3f} nats" in text


def test_the_floor_of_the_tokenizers_is_the_same_for_all_in_bits_per_byte():
    floors = [
        float(row["bits_per_byte"]) * float(row["floor"]) / float(row["val_loss"]) for row in results("tokenizers")
    ]
    assert max(floors) == pytest.approx(min(floors), rel=1e-4)
    assert f"no model can do better than {mean(floors):.3f}" in words("docs/experiments/tokenizers/report.md")
    assert f"the floor of their test was {mean(floors):.3f}" in words("lessons/06_text_to_numbers.md")
