"""metrics.jsonl and loss.png."""

import json
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pellucid.training.metrics import append_row, cut_back, read_rows
from pellucid.training.plots import _round_ticks, plot_loss


def test_rows_come_back_in_order_and_a_half_written_one_is_left_out(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3):
        append_row(file, {"step": step, "train_loss": 1 / step})
    with file.open("a") as stream:
        stream.write('{"step": 4, "train')
    assert [row["step"] for row in read_rows(file)] == [1, 2, 3]
    assert read_rows(tmp_path / "absent.jsonl") == []


def test_cutting_back_drops_the_rows_that_will_be_written_again(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    for step in range(1, 6):
        append_row(file, {"step": step})
    cut_back(file, 3)
    assert [row["step"] for row in read_rows(file)] == [1, 2, 3]


def test_every_row_is_strict_json(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    append_row(file, {"step": 1, "train_loss": math.nan, "gradient_norm": math.inf})
    assert json.loads(file.read_text()) == {"step": 1, "train_loss": None, "gradient_norm": None}


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.none() | st.floats(1e-3, 10))
def test_any_losses_can_be_drawn(tmp_path_factory, losses, floor):
    assert _round_ticks(min(losses) / 3, max(losses))
    file = tmp_path_factory.mktemp("plot") / "loss.png"
    rows = [{"tokens": 100 * i, "train_loss": loss, "val_loss": loss} for i, loss in enumerate(losses)]
    if len(losses) % 5 == 0:  # drawing is slow: every fifth example
        plot_loss(rows, floor, "title", file)
        assert file.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_rows_can_be_drawn(tmp_path: Path):
    plot_loss([], None, "nothing yet", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").exists()
