"""What people wrote about the experiments quotes their results.csv."""

import csv
import re
from pathlib import Path
from statistics import mean

import pytest

from pellucid.evaluation.answers import Share

ROOT = Path(__file__).parents[2]


def results(experiment):
    with (ROOT / f"docs/experiments/{experiment}/results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def words(page):
    """Of a page, on one line."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def recall(rows):
    """In percent, of each run."""
    return sorted(100 * float(row["accuracy.recall"]) for row in rows)


def as_range(rows):
    percents = recall(rows)
    return f"{percents[0]:.0f} to {percents[-1]:.0f}"


def test_why_attention_quotes_the_recall_of_every_recipe():
    readme, report = words("README.md"), words("docs/experiments/family/report.md")
    lstm, decoder = (
        mean(recall(row for row in results("family") if row["label"] == kind)) for kind in ("LSTM", "decoder")
    )
    assert f"it is right in {lstm:.0f} of 100 cases, and the decoder in {decoder:.0f}" in readme
    not_copying = [row for row in results("looking_up") if row["model.copying_init"] == "false"]
    adamw = [row for row in results("optimizers") if row["label"].startswith("AdamW")] + results("norms")
    assert f"without the copying start are right in {as_range(not_copying)} of 100 cases" in readme
    assert f"less training or narrower layers, in {as_range(adamw)} (" in readme
    first, second = recall(row for row in not_copying if row["label"] == "last layer unrotated")
    assert f"is right in {first:.0f} of 100 cases with one seed and in {second:.0f} with the other" in report
    assert f"without this start are right in {as_range(adamw)} of 100" in report


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
