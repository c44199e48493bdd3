"""report.md and results.csv: the numbers in the tables, what people wrote, and what could not be made."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from experiments.conftest import run_result
from pellucid.errors import ConfigError, DataError
from pellucid.experiments import report
from pellucid.experiments.plan import Plan, plan_experiment
from pellucid.experiments.report import (
    mean_and_range,
    require_own_report,
    times_reached,
    write_report,
    written_conclusion,
)
from pellucid.experiments.results import Failure, RunResult, read_result, write_result
from pellucid.experiments.table import results_csv

TWO_SEEDS = """\
name: wide_or_not
question: Is wider better?
base: base.yaml
set: {train.steps: 3}
grid:
  model.d_model: [8, 16]
seeds: [0, 1]
figures:
  - {type: bars, title: Excess by width, y: excess}
  - {type: skills, title: Each skill}
"""


@dataclass(frozen=True)
class DrawingStandIn:
    caption: str
    table: str


@pytest.fixture
def plan(place: Path, monkeypatch) -> Plan:
    def draw(figure, plan, results, folder):
        if figure.type == "skills":
            raise ValueError("no run measured skills")
        return DrawingStandIn(f"Drawn from {len(results)} runs.", "| a | b |\n| --- | --- |\n| 1 | 2 |")

    monkeypatch.setattr(report, "draw", draw)
    (place / "x.yaml").write_text(TWO_SEEDS)
    return plan_experiment(Path("x.yaml"))


def result(plan: Plan, i: int, *, excess: float | None, skills: dict | None = None) -> RunResult:
    run = plan.runs[i]
    losses = {"val_loss": 0.5 + (excess or 0.25), "floor": None if excess is None else 0.5, "excess": excess}
    more = {"overrides": run.overrides, "parameters": 1000 + i // 2, "skills": skills or {}}
    return run_result(run.label, run.seed, **losses, **more)


def four_results(plan: Plan) -> list[RunResult]:
    return [result(plan, i, excess=excess) for i, excess in enumerate([0.1, 0.3, 0.05, 0.05])]


def line_of(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0], "1.00"),
        ([1.0, 2.0, 6.0], "3.00 (1.00–6.00)"),
        ([None, 2.0], "2.00"),
        ([None], "–"),
        ([1, 1.001], "1.00"),
        ([0.001, 0.002, 0.002, 0.5], "median 0.00 (0.00–0.50)"),
        ([1, 1.01, 1.02, 1.2], "1.06 (1.00–1.20)"),
    ],
)
def test_a_cell_is_a_mean_with_its_range_and_a_median_where_some_learned_and_some_did_not(values, text):
    assert mean_and_range(pd.Series(values, dtype=float), "{:.2f}".format) == text


def test_waiting_times_count_who_never_got_there_as_last():
    assert times_reached(pd.Series([125, None, 175, 150, 125])) == "4 of 5 (38–96 %), step 150"
    assert times_reached(pd.Series([None, None, 300.0, None])) == "1 of 4 (5–70 %)"


def test_a_skill_is_half_right_from_the_first_evaluation_that_says_so_and_seeds_without_one_count(plan, place):
    def learns(i: int, by: float) -> RunResult:
        curve = [{"step": 50 * j, "val_loss": 1.0, "skills": {"recall": {"accuracy": by * j}}} for j in range(1, 5)]
        skills = {"recall": {"excess_nats_per_document": 1.0, "accuracy": 4 * by}}
        return result(plan, i, excess=0.1, skills=skills).model_copy(update={"curve": curve})

    results = [learns(0, 0.2), learns(1, 0.25), learns(2, 0.1), learns(3, 0.15)]
    assert [each.half_right["recall"] for each in results] == [150, 100, None, 200]
    text = write_report(plan, results, place, print).read_text()
    steps = text.partition("How many seeds came to")[2].partition("## ")[0]
    assert line_of(steps, "| d_model=8 ")[1] == "2 of 2 (34–100 %), step 150"
    assert line_of(steps, "| d_model=16 ")[1] == "1 of 2 (9–91 %)"


def test_no_first_step_is_told_of_runs_whose_skills_were_measured_only_at_the_end(plan, place):
    skills = {"recall": {"excess_nats_per_document": 1.0, "accuracy": 1.0}}
    results = [result(plan, i, excess=0.1, skills=skills) for i in range(4)]
    text = write_report(plan, results, place, print).read_text()
    assert "How often the most likely token is right" in text
    assert "How many seeds came to" not in text


def test_the_report_begins_with_the_question_and_ends_with_how_to_reproduce_it(place: Path, plan: Plan):
    text = write_report(plan, four_results(plan), place, print).read_text()
    assert text.startswith("# Wide or not\n\nIs wider better?\n\n## What was varied\n")
    assert "    pellucid experiment x.yaml\n" in text
    assert "Training took 4 min in total, over all runs." in text
    changed = plan_experiment(Path("x.yaml"), ["train.steps=2", "optimizer={type: sgd}"])
    text = write_report(changed, four_results(changed), place, print).read_text()
    assert "= 3 and, from the command line, `train.steps=2`, `optimizer={type: sgd}`." in text
    assert "    pellucid experiment x.yaml train.steps=2 'optimizer={type: sgd}'\n" in text


@pytest.mark.parametrize("blanks", ["", "  "])
def test_what_people_wrote_stays_where_it_is(plan: Plan, place: Path, blanks: str):
    written = f"## What it shows{blanks}\n\nWider is **better**.\n\n### But\n\nnot always."
    first = write_report(plan, four_results(plan), place, print).read_text()
    assert "## What it shows" not in first
    (place / "report.md").write_text(first + written + "\n\n## Mine\n\nThis goes.\n")
    for _ in range(2):
        text = write_report(plan, four_results(plan), place, print).read_text()
        assert text == first.replace("## What was varied", f"{written}\n\n## What was varied")


def test_a_report_that_is_no_text_stops_the_experiment(place: Path):
    (place / "report.md").write_bytes(b"## What it shows\n\xff\n")
    with pytest.raises(DataError, match="not UTF-8 at byte 17"):
        written_conclusion(place)


def test_a_figure_stands_with_its_caption_and_one_that_cannot_be_drawn_says_why(plan: Plan, place: Path):
    notes: list[str] = []
    text = write_report(plan, four_results(plan), place, notes.append).read_text()
    assert notes == ["warning: figure 'Each skill' is not drawn: no run measured skills"]
    assert "### Excess by width\n\n![Excess by width](excess-by-width.png)\n\nDrawn from 4 runs.\n\n| a | b |\n" in text
    assert "### Each skill\n\nNot drawn: no run measured skills.\n" in text


def test_failures_are_told_and_left_out_of_the_tables_and_figures(plan: Plan, place: Path):
    failure = Failure(f"{place}/corpus.txt: gone; bring it back", 3)
    text = write_report(plan, [failure, failure, *four_results(plan)[2:]], place, print).read_text()
    assert "Drawn from 2 runs." in text
    assert "| d_model=8 |" not in text
    assert "- d_model=8, seed 1: `the current folder/corpus.txt: gone; bring it back`" in text
    assert str(place) not in text
    assert "## Results\n\nNo run is finished.\n" in write_report(plan, [failure] * 4, place, print).read_text()


def test_without_a_known_truth_there_is_no_column_for_it(plan: Plan, place: Path):
    text = write_report(plan, [result(plan, i, excess=None) for i in range(4)], place, print).read_text()
    assert line_of(text, "| variant")[4:] == ["loss", "seconds"]
    assert "## Skills" not in text


def test_what_is_left_of_what_context_tells_stands_beside_the_share_of_the_floor_where_it_is_known(plan, place):
    found = four_results(plan)
    before = write_report(plan, found, place, print).read_text()
    assert "context tells" not in before
    found[0] = found[0].model_copy(update={"left_to_learn": 0.25, "impossible": 0.125})
    text = write_report(plan, found, place, print).read_text()
    header, eight = line_of(text, "| variant "), line_of(text, "| d_model=8 ")
    shown = dict(zip(header, eight, strict=True))
    assert list(shown)[-4:-1] == ["of the floor", "of what context tells", "on impossible texts"]
    assert (shown["of what context tells"], shown["on impossible texts"]) == ("25.0%", "12.5%")
    assert "As a share of what context tells, the excess is 100% for a reader who knows only how often" in text


def test_the_csv_has_a_row_for_every_run_and_numbers_that_read_back_exactly(plan: Plan):
    found = four_results(plan)[:3]
    found[0] = found[0].model_copy(update={"val_loss": 0.1 + 0.2, "measured": {"of mine": 1 / 3, "more": [1]}})
    rows = list(csv.DictReader(io.StringIO(results_csv(plan.runs, [*found, Failure("it fell; catch it", 1)]))))
    assert [(row["label"], row["seed"], row["model.d_model"]) for row in rows] == [
        ("d_model=8", "0", "8"),
        ("d_model=8", "1", "8"),
        ("d_model=16", "0", "16"),
        ("d_model=16", "1", "16"),
    ]
    assert float(rows[0]["val_loss"]) == 0.1 + 0.2
    assert float(rows[0]["of mine"]) == 1 / 3
    assert rows[1]["of mine"] == ""
    assert "more" not in rows[0], "only numbers are columns"
    assert float(rows[1]["excess_fraction"]) == 0.3 / 0.5
    assert [row["tokens"] for row in rows] == ["384", "384", "384", ""]
    assert [row["status"] for row in rows] == ["done", "done", "done", "failed: it fell; catch it"]


def test_a_result_is_read_only_for_the_run_that_it_belongs_to(plan: Plan, place: Path):
    first, other = plan.runs[0], plan.runs[1]
    assert read_result(place, first) is None
    found = result(plan, 0, excess=0.1)
    write_result(place, first, found)
    assert read_result(place, first) == found
    assert read_result(place, other) is None
    longer = first.model_copy(update={"measures": first.measures.model_copy(update={"answers": 9})})
    assert read_result(place, longer) is None
    renamed = first.model_copy(update={"overrides": {"model.d_model": 8, "seed": 0}})
    assert read_result(place, renamed).overrides == {"model.d_model": 8, "seed": 0}
    (place / "result.json").write_bytes((place / "result.json").read_bytes()[:-20])
    assert read_result(place, first) is None


@pytest.mark.parametrize("name", ["report.md", "results.csv", "excess-by-width.png"])
def test_a_report_takes_the_place_of_a_report_and_of_nothing_else(plan: Plan, tmp_path: Path, name: str):
    report = write_report(plan, [Failure("lost", 3)] * 4, tmp_path, lambda _: None)
    report.write_bytes(report.read_bytes().replace(b"\n", b"\r\n"))  # as git may write it on Windows
    require_own_report(tmp_path, plan.config)
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(ConfigError, match=f"{name}: it would be replaced by the experiment's"):
        require_own_report(tmp_path, plan.config)
