"""The folder of a run: what a forgotten option, a stranger's folder and missing checkpoints cannot cost."""

import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
import torch

from pellucid import failpoints
from pellucid.checkpoint.ownership import NOT_SAVED_YET
from pellucid.config.load import load_run_config
from pellucid.runs.train_run import train_run
from tiny_run import assert_one_error_line

SHORT = ("train.steps=2", "evaluation.every_steps=2")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("options", [(), ("--resume",), ("--overwrite",)])
def test_a_folder_with_files_of_these_names_and_no_run_is_refused_untouched(workplace: Path, pellucid, options):
    config = workplace / "config.yaml"
    config.write_text(f"# my notes\n{(workplace / 'tiny.yaml').read_text()}")
    for name in ("wandb/mine.txt", "snapshots/photo.png", "step-00000001/model.safetensors"):
        (workplace / name).parent.mkdir()
        (workplace / name).write_text("mine")
    before = contents(workplace)
    done = pellucid("train", "config.yaml", *SHORT, "--run-dir", ".", *options)
    assert done.stderr.splitlines()[-1].startswith("error: .: ")
    assert done.exit_code == (4 if options == ("--resume",) else 2)  # its step is taken for a damaged one
    assert contents(workplace).items() - {(".lock", b"")} == before.items()


def test_a_run_without_its_checkpoints_is_not_begun_anew_in_silence(workplace: Path, pellucid):
    """Whether its log is left, or a snapshot alone."""
    train = ("train", "tiny.yaml", *SHORT, "checkpoint.snapshots=2")
    assert pellucid(*train).exit_code == 0
    run = workplace / "checkpoints/tiny"
    shutil.rmtree(run / "step-00000002")
    before = contents(run)
    assert_one_error_line(
        pellucid(*train, "--resume"), 4, "there is the log of a run here, but none of its checkpoints"
    )
    assert contents(run) == before
    (run / "metrics.jsonl").unlink()
    assert_one_error_line(
        pellucid(*train, "--resume"), 4, "there is the log of a run here, but none of its checkpoints"
    )


def test_a_run_that_was_killed_before_its_first_save_begins_again(workplace: Path, pellucid, monkeypatch):
    def die(name: str) -> None:
        if name == "write model.safetensors":
            raise SystemExit(9)

    run = workplace / "checkpoints/tiny"
    with monkeypatch.context() as death:
        death.setattr(failpoints, "reached", die)
        assert pellucid("train", "tiny.yaml", *SHORT).exit_code == 9
    assert {NOT_SAVED_YET, "metrics.jsonl"} <= {path.name for path in run.iterdir()}
    assert pellucid("train", "tiny.yaml", *SHORT, "--resume").exit_code == 0
    assert (run / "step-00000002").is_dir()
    assert not (run / NOT_SAVED_YET).exists()


def test_without_a_compiler_nothing_is_trained_and_the_run_before_is_kept(workplace: Path, pellucid, monkeypatch):
    def compile_nothing(function: object) -> object:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\nin torch/_inductor/cpp_builder.py")

    assert pellucid("train", "tiny.yaml", *SHORT).exit_code == 0
    before = contents(workplace / "checkpoints")
    monkeypatch.setattr(torch, "compile", compile_nothing)
    done = pellucid("train", "tiny.yaml", *SHORT, "train.compile=true", "--overwrite")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        "error: train.compile: PyTorch cannot compile here (InvalidCxxCompiler: No working C++ compiler found); "
        "install a C++ compiler (on Ubuntu: apt install g++), or leave it out",
    )
    assert contents(workplace / "checkpoints") == before


def test_a_thread_of_a_program_can_train(workplace: Path):
    config, outcomes = load_run_config(workplace / "tiny.yaml", SHORT), []
    options = {"resume": False, "overwrite": True, "note": print}
    run = partial(train_run, config, workplace / "data", workplace / "run", **options)
    thread = threading.Thread(target=lambda: outcomes.append(run()))
    thread.start()
    thread.join()
    assert outcomes[0].step == 2
