"""F5: Ctrl-C and SIGTERM, in every phase of a run."""

import shutil
from functools import partial
from pathlib import Path

import pytest

import strikes
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, step_name
from processes import command_line, fresh_process
from reference_run import Trace, leftovers, trace

SIGNALS = {"SIGINT": (strikes.interrupt, 130), "SIGTERM": (strikes.terminate, 143)}

# Where the signal strikes, and the step whose checkpoint is the newest when the process has ended.
PHASES = {
    "the first update": (("update", 1), 1),
    "an update": (("update", 13), 13),
    "an evaluation": (("evaluate", 10), 10),
    "an evaluation that is not due": (("evaluate", 12), 12),
    "the last evaluation": (("evaluate", 30), 30),
    "writing a save": (("write optimizer.safetensors", 2), 10),
    "the rename of a save": (("rename checkpoint", 1), 5),
    "the end of a save": (("saved", 3), 15),
    "the last save": (("write model.safetensors", 6), 30),
    "pruning": (("rename to trash", 1), 20),
    "deleting": (("delete trash", 2), 25),
}


def skip_every_other(soak: bool, i: int, name: str) -> None:
    if not soak and (i + list(SIGNALS).index(name)) % 2:
        pytest.skip("long: part of `make soak`")


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("phase", PHASES)
def test_f5_a_signal_saves_once_a_step_exists(fault_place, reference: Trace, phase, name, soak):
    """The exit code is the signal's, no later update is made, and the resumed run is the same.

    In the short form, every other phase is for Ctrl-C, and the rest for SIGTERM.
    """
    skip_every_other(soak, list(PHASES).index(phase), name)
    (point, nth), newest = PHASES[phase]
    action, exit_code = SIGNALS[name]
    run = fault_place / f"{name}-in-{phase.replace(' ', '-')}"
    arguments = ["train", "reference.yaml", "--run-dir", run.name]
    done = command_line(fault_place, *arguments, fault=partial(strikes.at_point, action, point, nth))
    assert done.exit_code == exit_code, done
    assert "Traceback" not in done.stderr
    assert f"stopped after step {newest}, saved" in done.stderr
    assert steps_in(run)[-1] == newest
    read_checkpoint(run / step_name(newest))
    assert command_line(fault_place, *arguments, "--resume").exit_code == 0
    assert trace(run) == reference
    assert leftovers(run) == []


def test_f5_a_second_stop_before_the_interrupted_evaluation_is_done_again(fault_place, reference: Trace):
    run = fault_place / "stopped-twice-in-evaluation"
    arguments = ["train", "reference.yaml", "--run-dir", run.name, "--resume"]
    for nth in (10, 1, 1):
        stop = partial(strikes.at_point, strikes.terminate, "evaluate", nth)
        assert command_line(fault_place, *arguments, fault=stop).exit_code == 143
        assert steps_in(run)[-1] == 10
    assert command_line(fault_place, *arguments).exit_code == 0
    assert trace(run) == reference


@pytest.mark.parametrize("point", ["update", "write model.safetensors", "delete trash"])
def test_f5_a_second_ctrl_c_ends_at_once(fault_place, reference: Trace, point):
    """By the signal itself, which a shell shows as 130, in the middle of what was going on."""
    run = fault_place / f"ctrl-c-twice-in-{point.replace(' ', '-')}"
    arguments = ["train", "reference.yaml", "--run-dir", run.name]
    done = command_line(fault_place, *arguments, fault=partial(strikes.at_point, strikes.interrupt_twice, point))
    assert done.exit_code == -2
    assert "Traceback" not in done.stderr
    assert command_line(fault_place, *arguments, "--resume").exit_code == 0
    assert trace(run) == reference
    assert leftovers(run) == []


PREPARING = [("pellucid.data.prepare", "write_split"), ("pellucid.tokenizer.build", "train_byte_pairs")]


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("call", PREPARING, ids=lambda call: call[1])
def test_f5_a_signal_while_preparing_leaves_nothing_half_done(
    fault_place, reference: Trace, tmp_path, call, name, soak
):
    skip_every_other(soak, PREPARING.index(call), name)
    for file in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / file, tmp_path)
    action, exit_code = SIGNALS[name]
    arguments = ["train", "reference.yaml", "--run-dir", "run"]
    done = command_line(tmp_path, *arguments, fault=partial(strikes.at_call, action, *call))
    assert done.exit_code == exit_code, done
    assert "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()] == []
    assert command_line(tmp_path, *arguments).exit_code == 0
    assert trace(tmp_path / "run") == reference


@pytest.mark.parametrize("name", SIGNALS)
def test_f5_a_signal_after_the_last_save_loses_nothing(fault_place, reference: Trace, name, soak):
    skip_every_other(soak, 1, name)
    action, exit_code = SIGNALS[name]
    run = fault_place / f"{name}-at-the-end"
    arguments = ["train", "reference.yaml", "--run-dir", run.name]
    done = command_line(
        fault_place, *arguments, fault=partial(strikes.at_call, action, "pellucid.training.plots", "save_figure")
    )
    assert done.exit_code == exit_code, done
    assert "Traceback" not in done.stderr
    again = command_line(fault_place, *arguments, "--resume")
    assert again.exit_code == 0
    assert "is finished" in again.stderr
    assert (run / "loss.png").exists()
    assert trace(run) == reference


IMPORTS = ["pydantic", "yaml", "numpy", "torch", "torch.nn", "torch.optim", "torch.cuda"]
IMPORTS += ["tokenizers", "safetensors.torch", "matplotlib", "pellucid.training.session", "torch._dynamo"]


@pytest.mark.parametrize("name", SIGNALS)
def test_f5_a_signal_while_importing_ends_in_one_line(fault_place: Path, tmp_path, tally, soak, name):
    """In a process that has imported nothing yet, when one of these is about to be."""
    _, exit_code = SIGNALS[name]
    for file in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / file, tmp_path)
    for module in IMPORTS if soak else {"SIGINT": ("torch.nn",), "SIGTERM": ("numpy",)}[name]:
        with tally.attempt(f"{name} at the import of {module}"):
            strike = (
                f"import signal, strikes; strikes.at_import(lambda: signal.raise_signal(signal.{name}), {module!r})"
            )
            arguments = ["train", "reference.yaml", "--run-dir", f"run-{module}"]
            done = fresh_process(tmp_path, *arguments, prelude=strike)
            assert done.exit_code == exit_code, done
            assert "Traceback" not in done.stderr
            saved = [20, 25, 30] if module == "matplotlib" else []  # it draws the trained run
            assert not (tmp_path / f"run-{module}").exists() or steps_in(tmp_path / f"run-{module}") == saved
