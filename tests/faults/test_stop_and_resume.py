"""F1, F17, F20: stopping and going on changes nothing; another run is not taken for the same one."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

import strikes
from damage import sign
from pellucid.checkpoint.run_directory import steps_in
from pellucid.config.load import load_run_config
from pellucid.recipe import build_batches, prepare_data
from processes import command_line, n_threads
from reference_run import SAVE_EVERY, STEPS, Trace, leftovers, trace
from tiny_run import assert_one_error_line


def stopped_after(n_updates: int):
    return partial(strikes.at_point, strikes.terminate, "update", n_updates)


def stops(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every save, and each end of an epoch with the steps beside it."""
    monkeypatch.chdir(place)
    config = load_run_config(place / "reference.yaml")
    batches_per_epoch = build_batches(config, prepare_data(config, place / "data")).steps_per_epoch
    updates_per_epoch = batches_per_epoch / config.train.gradient_accumulation_steps
    epoch_ends = [round(epoch * updates_per_epoch) for epoch in range(1, int(STEPS / updates_per_epoch) + 1)]
    assert len(epoch_ends) >= 3
    edges = {end + d for end in epoch_ends for d in (-1, 0, 1)}
    return sorted(s for s in edges | set(range(SAVE_EVERY, STEPS + 1, SAVE_EVERY)) if s <= STEPS)


def test_f1_stopping_at_every_save_and_epoch_edge_is_the_same(fault_place, reference: Trace, tally, soak, monkeypatch):
    """All in one run: it is stopped and resumed some twenty times; in the short form at every third of these steps."""
    before = 0
    for step in stops(fault_place, monkeypatch)[:: 1 if soak else 3]:
        with tally.attempt(f"stop at {step}"):
            arguments = ["train", "reference.yaml", "--run-dir", "stopped", "--resume"]
            done = command_line(fault_place, *arguments, fault=stopped_after(step - before))
            assert done.exit_code == 143, done
            assert f"stopped after step {step}, saved; to continue: " in done.stderr
            assert steps_in(fault_place / "stopped")[-1] == step
        before = step
    done = command_line(fault_place, "train", "reference.yaml", "--run-dir", "stopped", "--resume")
    assert done.exit_code == 0, done
    assert trace(fault_place / "stopped") == reference


def test_f1_one_stop_anywhere_is_the_same(fault_place, reference: Trace, tally, soak, monkeypatch):
    for step in stops(fault_place, monkeypatch)[:: 1 if soak else 11]:
        with tally.attempt(f"stop at {step}"):
            arguments = ["train", "reference.yaml", "--run-dir", f"stopped-once-{step}", "--resume"]
            assert command_line(fault_place, *arguments, fault=stopped_after(step)).exit_code == 143
            assert command_line(fault_place, *arguments).exit_code == 0
            assert trace(fault_place / f"stopped-once-{step}") == reference


@pytest.fixture(scope="module")
def stopped(fault_place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own with a run that was stopped after step 12."""
    place = tmp_path_factory.mktemp("stopped")
    for name in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / name, place)
    done = command_line(place, "train", "reference.yaml", "--run-dir", "run", fault=stopped_after(12))
    assert done.exit_code == 143, done
    return place


@pytest.fixture
def begun(stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, where we are."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)


RESUME = ("train", "reference.yaml", "--run-dir", "run", "--resume")


CHANGES = {
    "optimizer.lr=0.02": "optimizer.lr was 0.01, is 0.02",
    "optimizer={type: sgd}": 'optimizer.type was "adamw", is "sgd"',
    "seed=1": "seed was 0, is 1",
    "train.batch_size=4": "train.batch_size was 2, is 4",
    "train.gradient_accumulation_steps=1": "train.gradient_accumulation_steps was 2, is 1",
    "model.d_model=16": "model.d_model was 8, is 16",
    "model.dropout=0.2": "model.dropout was 0.1, is 0.2",
    "data.packing=contiguous": 'data.packing was "documents", is "contiguous"',
    "tokenizer.vocab_size=290": "tokenizer.vocab_size was 300, is 290",
    "tokenizer={type: char}": 'tokenizer.type was "bpe", is "char"',
    "corpus.separator=null": r'corpus.separator was "\n\n", is null',
}


def test_f17_a_changed_config_is_refused_with_the_difference(begun: Path, pellucid, tally):
    before = {path: path.read_bytes() for path in (begun / "run").rglob("*") if path.is_file()}
    for change, difference in CHANGES.items():
        with tally.attempt(change):
            done = pellucid(*RESUME, change)
            assert_one_error_line(done, 4, "the config has changed", difference)
    four = pellucid(*RESUME, "seed=1", "optimizer.lr=1", "model.dropout=0", "model.bias=true")
    assert_one_error_line(four, 4, "optimizer.lr was 0.01, is 1.0, and 1 more; take these changes back")
    assert {path: path.read_bytes() for path in (begun / "run").rglob("*") if path.is_file()} == before


def test_f17_keys_that_change_no_number_may_change(begun: Path, pellucid, fault_place: Path, reference: Trace):
    """How often is logged, evaluated, sampled and saved, and how many checkpoints are kept."""
    changes = ["train.log_every_steps=3", "evaluation.every_steps=7", "sample.every_steps=9", "checkpoint.keep_last=1"]
    changes += ["checkpoint.every_steps=4", "name=other"]
    done = pellucid(*RESUME, *changes)
    assert done.exit_code == 0, done
    weights = "step-00000030/model.safetensors"
    assert steps_in(begun / "run")[-1] == STEPS
    assert (begun / "run" / weights).read_bytes() == (fault_place / "undisturbed" / weights).read_bytes()


def test_f17_a_changed_corpus_is_refused(begun: Path, pellucid):
    with (begun / "corpus.txt").open("a") as corpus:
        corpus.write("\n\nThe end.")
    done = pellucid(*RESUME)
    assert_one_error_line(done, 4, "the corpus has changed")


def test_f17_a_checkpoint_with_another_vocabulary_is_refused(begun: Path, pellucid):
    """Everything else is the same: the tokenizer in the checkpoint was replaced, and the manifest made to fit."""
    checkpoint = begun / "run/step-00000012"
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))  # in another layout
    sign(checkpoint)
    done = pellucid(*RESUME)
    assert_one_error_line(done, 4, "the tokenizer has changed")


def test_f17_a_checkpoint_whose_config_this_version_cannot_read_is_refused(begun: Path, pellucid):
    checkpoint = begun / "run/step-00000012"
    with (checkpoint / "config.yaml").open("a") as config:
        config.write("new_section: {}\n")
    sign(checkpoint)
    done = pellucid(*RESUME)
    assert_one_error_line(done, 4, "new_section: unknown key; use the version of Pellucid that wrote it")


def test_f17_another_number_of_threads_is_a_warning(begun: Path):
    done = command_line(begun, "train", "reference.yaml", "--run-dir", "run", "--resume", fault=two_with_a_thread_more)
    assert done.exit_code == 143
    n = n_threads()
    assert f"threads was {n}, is {n + 1}; the run continues, but not bit for bit" in done.stderr
    assert steps_in(begun / "run")[-1] == 14


def two_with_a_thread_more() -> None:
    """Two updates: that the run goes on is seen after them."""
    os.environ["OMP_NUM_THREADS"] = str(n_threads() + 1)
    strikes.at_point(strikes.terminate, "update", 2)


def test_f20_a_clock_that_jumps_ten_years_changes_nothing(fault_place, reference: Trace, tally, soak):
    for i in range(10 if soak else 1):
        with tally.attempt(f"run {i}"):
            run = f"clock-{i}"
            arguments = ["train", "reference.yaml", "--run-dir", run, "--resume"]

            assert command_line(fault_place, *arguments, fault=partial(jumping_and_killed, 60 + 12 * i)).exit_code < 0
            years = 10 * 365 * 86_400
            for age, step in enumerate(steps_in(fault_place / run)):  # the newest step seems the oldest
                os.utime(fault_place / run / f"step-{step:08d}", (years, 2 * years - age * 1000))
            assert command_line(fault_place, *arguments, fault=strikes.clock_jumps).exit_code == 0
            assert trace(fault_place / run) == reference
            assert leftovers(fault_place / run) == []


def jumping_and_killed(nth: int) -> None:
    strikes.clock_jumps()
    strikes.at_point(strikes.kill, "*", nth)
