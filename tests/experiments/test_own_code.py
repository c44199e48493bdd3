"""The NAME.py beside a NAME.yaml: what it measures and draws is in the report, and its faults are told by line."""

import csv
from pathlib import Path

import pytest

from experiments.conftest import make_report, make_runs
from pellucid.errors import ConfigError
from pellucid.experiments.figures.draw import _sketch
from pellucid.experiments.own_code import OwnCode
from pellucid.experiments.plan import plan_experiment
from pellucid.experiments.results import read_result
from pellucid.experiments.worker import make_run

ROOT = Path(__file__).parents[2]
MINE = """\
name: mine
question: What else?
base: base.yaml
runs: [{label: only}]
figures:
  - {type: own, title: Words}
  - {type: bars, title: Different words, y: different words, label: words}
"""
EXAMPLE = (ROOT / "docs/experiments/README.md").read_text("utf-8").partition("```python\n")[2].partition("```")[0]
TABLES = """

def tables(numbers):
    return [f"In numbers: {numbers['different words'].tolist()}"]
"""


@pytest.fixture
def mine(place: Path) -> Path:
    Path("mine.yaml").write_text(MINE)
    Path("mine.py").write_text(EXAMPLE + TABLES)
    return Path("mine.py")


def test_what_the_example_measures_is_a_column_and_what_it_draws_and_tells_stands_in_the_report(mine: Path):
    plan = plan_experiment(Path("mine.yaml"))
    make_runs(plan)
    assert make_report(plan) == []
    [row] = csv.DictReader(Path("report/results.csv").read_text().splitlines())
    assert int(row["different words"]) > 1
    assert "counts" not in row, "only numbers are columns"
    report = Path("report/report.md").read_text()
    assert f"\n\nIn numbers: [{row['different words']}.0]\n\n## Skills" in report
    assert (
        "![Words](words.png)\n\nHow often each word is written. Each line is one run, of one seed. Compared" in report
    )
    assert "![Different words](different-words.png)\n\nWords of each variant." in report
    [run] = plan.runs
    assert read_result(run.directory(Path("runs")), run) is not None
    mine.write_text(EXAMPLE + TABLES + "# edited\n")
    [run] = plan_experiment(Path("mine.yaml")).runs
    assert read_result(run.directory(Path("runs")), run) is None, "it may measure something else now"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("import Counter", "import Counters", "mine.py:1: it cannot be imported (ImportError: cannot import name"),
        ("import Counter", "import", "mine.py:1: it cannot be imported (SyntaxError: "),
        ("from collections", "raise SystemExit\nfrom collections", "mine.py:1: it cannot be imported (SystemExit)"),
        (EXAMPLE, None, "mine.py: no such file, and the figure 'Words' is of type own; write draw(figure"),
        ("def draw(", "def sketch(", "mine.py: it has no function draw, and the figure 'Words' is of type own; write"),
        (
            EXAMPLE,
            "print\n",
            "mine.py: its name makes it the code of mine.yaml, but it defines none of measure, draw, tables",
        ),
    ],
)
def test_code_that_cannot_be_used_is_told_before_anything_is_trained(mine: Path, before, after, message):
    mine.unlink() if after is None else mine.write_text(EXAMPLE.replace(before, after))
    with pytest.raises(ConfigError) as refused:
        plan_experiment(Path("mine.yaml"))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("measure", "1 / x", "mine.py:2: measure failed (ZeroDivisionError: division by zero); correct it there, and"),
        ("measure", "3", "mine.py: measure returned no dict that JSON can hold ('int' object is not iterable); return"),
        ("measure", "{'a': float('nan')}", "mine.py: measure returned no dict that JSON can hold (Out of range float"),
        ("tables", "[x.y]", "mine.py:2: tables failed (AttributeError: 'int' object has no attribute 'y'); correct"),
    ],
)
def test_a_function_that_fails_is_told_with_its_line(mine: Path, name, body, message):
    mine.write_text(f"def {name}(x):\n    return {body}\n")
    with pytest.raises(ConfigError) as failed:
        getattr(OwnCode(mine), name)(0)
    assert str(failed.value).startswith(message)


def test_a_figure_that_fails_is_told_with_its_line_but_a_value_error_is_the_authors_own_words(mine: Path):
    mine.write_text("def draw(figure, results):\n    return int(results)\n")
    with pytest.raises(ConfigError, match=r"mine\.py:2: draw failed \(TypeError: .*\); correct it there"):
        OwnCode(mine).draw(None, None)
    with pytest.raises(ValueError, match="invalid literal for int"):
        OwnCode(mine).draw(None, "a word")
    plan = plan_experiment(Path("mine.yaml"))
    with pytest.raises(ConfigError, match=r"mine\.py: draw returned no Sketch; return Sketch\(figure, caption\)"):
        _sketch(plan.config.figures[0], 3, plan.own)


def test_code_that_is_edited_while_the_experiment_runs_measures_nothing(mine: Path):
    [run] = plan_experiment(Path("mine.yaml")).runs
    mine.write_text(EXAMPLE + TABLES + "# edited\n")
    with pytest.raises(ConfigError, match="mine.py: it was edited after the experiment had begun; run"):
        make_run(run, run.directory(Path("runs")), Path("data"))
