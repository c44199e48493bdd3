"""metrics.jsonl and loss.png."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.training.metrics import append_row, read_rows, row_in, warn_of_damage
from pellucid.training.plots import loss_figure, rewards_figure, save_figure, skills_figure


def test_rows_come_back_in_order_and_a_half_written_one_is_left_out(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3):
        append_row(file, {"step": step, "train_loss": 1 / step})
    with file.open("a") as stream:
        stream.write('{"step": 4, "train')
    assert [row["step"] for row in read_rows(file)] == [1, 2, 3]
    assert read_rows(tmp_path / "absent.jsonl") == []


def test_a_damaged_row_is_left_out_and_who_reads_does_not_warn_of_it_each_time(tmp_path: Path, caplog):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"step: 2}\n{"step": 3}\n')
    assert [row["step"] for row in read_rows(file)] == [1, 3]
    assert caplog.messages == []
    warn_of_damage(file)
    assert caplog.messages == [f"{file}:2: not a row of metrics, and left out; the file was damaged or edited"]


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"[" * 100_000,
            b"5",
            b'["step"]',
            b"{}",
            b"\xff",
            b'{"step": 1, "a": "\\ud800"}',
            b'{"step": 1, "\\ud800": 1}',
        ),
        *(b'{"step": %s}' % step for step in (b"-1", b"true", b"1.0", b'"1"', b"null", b"1" + b"0" * 18, b"9" * 5000)),
        *(b'{"step": 1, "val_loss": %s}' % value for value in (b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 400)),
        *(b'{"step": 1, "val_loss": %s}' % value for value in (b'"x"', b"true", b"[1]", b'{"a": 1}')),
        *(b'{"step": 1, "skills": %s}' % value for value in (b"1e999", b"[]", b'{"a": 1}', b'{"a": {"b": NaN}}')),
        *(b'{"step": 1, "expert_load": %s}' % value for value in (b'"x"', b"[1]", b"[[true]]", b"[[1e999]]")),
        *(b'{"step": 1, "skills": {"a": {"b": %s}}}' % value for value in (b"[]", b"{}", b'"x"', b"false", b"1e999")),
    ],
)
def test_a_line_with_something_else_than_numbers_is_no_row(line: bytes):
    assert row_in(line) is None


def test_a_row_has_a_step_and_numbers_or_nothing_and_a_table_of_skills():
    row = {"step": 0, "tokens": 2**60, "val_loss": None, "kl": -0.5, "skills": {"recall": {"accuracy": None, "n": 1}}}
    row["expert_load"] = [[0.25, 0.75], [0.5, None]]
    assert row_in(json.dumps(row).encode()) == row
    assert row_in(b'{"step": 1, "skills": null}') == {"step": 1, "skills": None}


def test_every_row_is_strict_json(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    append_row(file, {"step": 1, "train_loss": math.nan, "skills": {"recall": {"accuracy": math.inf}}})
    assert json.loads(file.read_text()) == {"step": 1, "train_loss": None, "skills": {"recall": {"accuracy": None}}}


LOSSES = st.lists(st.tuples(st.floats(1e-3, 1e3), st.none() | st.floats(1e-3, 1e3)), min_size=1, max_size=8)


@settings(max_examples=20)
@given(LOSSES, st.none() | st.floats(1e-3, 10))
def test_every_loss_and_the_floor_lie_inside_the_picture(losses, floor):
    rows = [{"step": i, "tokens": 9 * i, "train_loss": train, "val_loss": val} for i, (train, val) in enumerate(losses)]
    low, high = loss_figure(rows, floor, "title").axes[0].get_ylim()
    assert all(low <= loss <= high for pair in [*losses, (floor,)] for loss in pair if loss is not None)


def test_the_best_step_is_named_in_the_picture():
    losses = enumerate([5.0, 4.79, 9.13], start=1)
    rows = [{"step": 100 * i, "tokens": i, "train_loss": 1.0, "val_loss": loss} for i, loss in losses]
    names = [text.get_text() for text in loss_figure(rows, None, "title").axes[0].get_legend().get_texts()]
    assert names == ["training (each batch)", "held out", "best: 4.790, at step 200"]


def test_a_loss_on_a_part_of_the_text_is_drawn_as_far_above_the_floor_as_it_is_above_its_own():
    rows = [{"step": 2, "tokens": 20, "val_loss": 0.51, "val_floor": 0.505}]
    axes, below = loss_figure(rows, 0.512, "run").axes
    heights = [line.get_ydata()[0] for line in axes.lines]
    assert heights == pytest.approx([0.517, 0.517, 0.512])  # the curve, its best step, the floor
    assert [line.get_ydata()[0] for line in below.lines] == pytest.approx([0.005])
    assert below.get_ylabel().startswith("excess")
    assert "best: 0.517, at step 2" in [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    ("val_loss", "val_floor", "finding"),
    [
        ([0.9, 0.5144], 0.512, "within 0.5 % of the floor, below which no model can go"),
        ([0.9, 0.511], 0.512, "within 0.001 % of the floor, below which no model can go"),
        ([9.0, 8.0], 0.5, "far from the floor, below which no model can go"),
        ([9.0, 3.0], None, "the held-out loss falls to 3.000"),
        ([9.0, 3.0, 3.5], None, "the held-out loss falls to 3.000, and then it rises"),
        ([], None, "not yet evaluated"),
    ],
)
def test_the_title_says_what_the_figure_shows(val_loss, val_floor, finding):
    floor = {} if val_floor is None else {"val_floor": val_floor}
    rows = [{"step": i, "tokens": 9 * i, "val_loss": loss, **floor} for i, loss in enumerate(val_loss, start=1)]
    assert loss_figure(rows, val_floor, "fables").get_suptitle() == f"fables: {finding}"


def test_a_skill_below_zero_is_drawn_there_and_what_chance_can_do_is_open():
    nats = {"recall": [8.0, 2.0, -0.5, 0.25], "count": [4.0, 3.0, 0.125, 0.0625]}
    rows = [
        {"tokens": 10**i, "skills": {skill: {"excess_nats_per_document": nats[skill][i]} for skill in nats}}
        for i in range(4)
    ]
    figure = skills_figure(rows, "run")
    recall, open_marks, count, none = figure.axes[0].lines
    assert [line.get_ydata().tolist()[2:] for line in (open_marks, count)] == [[-0.5, 0.25], [0.125, 0.0625]]
    assert open_marks.get_markerfacecolor() == "none"
    assert [np.isfinite(line.get_ydata()).sum() for line in (recall, none)] == [2, 0]
    low, high = figure.axes[0].get_ylim()
    assert low < -0.5 < 8 < high
    assert figure.get_suptitle() == "run: at the end, recall has most left to learn"
    assert skills_figure(rows[:2], "run").get_suptitle() == "run: at the end, count has most left to learn"


def test_a_run_without_rows_can_be_drawn(tmp_path: Path):
    save_figure(loss_figure([], None, "nothing yet"), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_rewards_are_drawn_above_the_divergence_that_they_cost():
    rows = [{"step": 1, "reward": 0.2, "whole": 0.1, "obeys": 0.3, "kl": 0.0, "val_reward": 0.25, "val_kl": 0.01}]
    above, below = rewards_figure(rows, "title").axes
    assert [line.get_ydata()[0] for line in above.lines] == [0.2, 0.25, 0.1, 0.3]
    assert [line.get_ydata()[0] for line in below.lines] == [0.0, 0.01]
    assert rewards_figure([], "nothing yet").axes


@pytest.mark.parametrize(("figures", "unit"), [({}, "token"), ({"accuracy": 0.5, "margin": 0.0}, "pair")])
def test_a_loss_over_pairs_is_shown_in_nats_per_pair(figures, unit):
    [axes] = loss_figure([{"step": 1, "tokens": 10, "train_loss": 0.69, **figures}], None, "title").axes
    assert axes.get_ylabel() == f"loss (nats per {unit})"
