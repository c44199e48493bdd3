"""F31 and F32: what happens to one of several processes that train together happens to all of them."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import strikes
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, step_name
from pellucid.training.metrics import read_rows
from processes import HANGS_AFTER_SECONDS, Command, Fault, command_line, n_threads
from reference_run import STEPS, Trace, leftovers, trace
from tiny_run import Result, assert_one_error_line

TWO = ("train", "reference.yaml", "train.processes=2", "--run-dir")


def by_two_forked(place: Path, run: Path, *arguments: object, fault: Fault | None = None) -> Result:
    return command_line(place, *TWO, run.name, *arguments, fault=partial(strikes.forked, fault))


def kill_a_helper() -> None:
    os.kill(random.Random(0).choice(multiprocessing.active_children()).pid, signal.SIGKILL)


def losses(of: Trace) -> list[float]:
    return [json.loads(row)["train_loss"] for row in of.losses]


@pytest.fixture(scope="module")
def by_two(fault_place: Path) -> Trace:
    """The reference run made by two processes, the second of which starts afresh."""
    done = command_line(fault_place, *TWO, "by-two")
    assert done.exit_code == 0, done.stderr
    assert "device  cpu, float32, 2 processes" in done.stderr
    return trace(fault_place / "by-two")


def test_f32_two_processes_train_as_one_does(by_two: Trace, reference: Trace):
    """Each reads one of an update's two micro-batches, with the dropout that it has in one process."""
    assert losses(by_two) == pytest.approx(losses(reference), abs=1e-4)
    assert by_two.step == reference.step


def test_f32_a_stop_request_saves_once_and_ends_all(fault_place: Path, by_two: Trace):
    run = fault_place / "two-stopped"
    stop = partial(strikes.at_point, strikes.terminate, "update", 13)
    done = by_two_forked(fault_place, run, fault=stop)
    assert done.exit_code == 143, done
    assert "stopped after step 13, saved" in done.stderr
    assert steps_in(run)[-1] == 13
    assert by_two_forked(fault_place, run, "--resume").exit_code == 0
    assert trace(run) == by_two
    assert leftovers(run) == []


def test_f32_a_killed_process_ends_the_others_in_one_line(fault_place: Path, by_two: Trace):
    run = fault_place / "two-killed"
    strike = partial(strikes.at_point, kill_a_helper, "update", 13)
    done = by_two_forked(fault_place, run, fault=strike)
    assert_one_error_line(done, 9, "process 2 of 2: it was ended by SIGKILL")
    assert steps_in(run)[-1] == 10
    read_checkpoint(run / step_name(10))
    assert by_two_forked(fault_place, run, "--resume").exit_code == 0
    assert trace(run) == by_two


def end_at_once() -> None:
    """A helper of the run ends before it has connected: as if the system had no memory for it."""
    real = multiprocessing.spawn.get_command_line
    multiprocessing.spawn.get_command_line = lambda **names: (
        [sys.executable, "-c", "raise SystemExit(3)"] if "pipe_handle" in names else real(**names)
    )


def test_f32_a_process_that_never_comes_is_not_waited_for(fault_place: Path):
    done = command_line(fault_place, *TWO, "two-never", fault=end_at_once)
    assert_one_error_line(done, 9, "process 2 of 2: it ended with exit code 3")


@pytest.mark.usefixtures("soak_only")
def test_f32_a_full_disk_ends_all_with_the_code_of_one_process(fault_place: Path, by_two: Trace):
    run = fault_place / "two-full"
    strike = partial(strikes.at_point, strikes.input_output_error, "write model.safetensors", 3)
    assert_one_error_line(by_two_forked(fault_place, run, fault=strike), 5, "step-00000015")
    assert by_two_forked(fault_place, run, "--resume").exit_code == 0
    assert trace(run) == by_two


@pytest.mark.usefixtures("soak_only")
def test_f32_another_number_of_processes_goes_on_within_rounding(fault_place: Path, reference: Trace):
    run = fault_place / "two-then-one"
    stop = partial(strikes.at_point, strikes.terminate, "update", 16)
    assert by_two_forked(fault_place, run, fault=stop).exit_code == 143
    done = command_line(fault_place, "train", "reference.yaml", "--run-dir", run.name, "--resume")
    assert done.exit_code == 0
    assert "processes was 2, is 1" in done.stderr
    assert losses(trace(run)) == pytest.approx(losses(reference), abs=1e-4)


def test_f32_a_sharded_run_ends_the_same_and_writes_on_one_device(fault_place: Path, by_two: Trace):
    run = fault_place / "sharded"
    stop = partial(strikes.at_point, strikes.terminate, "update", 16)
    sharded = ("train.parallel=fsdp", "checkpoint.snapshots=3")
    assert by_two_forked(fault_place, run, *sharded, fault=stop).exit_code == 143
    done = by_two_forked(fault_place, run, *sharded, "--resume")
    assert done.exit_code == 0, done.stderr
    assert losses(trace(run)) == pytest.approx(losses(by_two), abs=1e-4)
    assert trace(run).samples
    last, snapshot = (read_checkpoint(run / folder / step_name(STEPS)) for folder in ("", "snapshots"))
    assert all(torch.equal(snapshot.model[name], tensor) for name, tensor in last.model.items())
    for which in ("latest", "1"):
        words = ("generate", run.name, "--checkpoint", which, "--max-new-tokens", 5)
        assert command_line(fault_place, *words).exit_code == 0


def test_f32_two_processes_start_from_a_run_and_train_an_adapter_of_it_as_one_does(fault_place: Path, reference: Trace):
    """Each has a part of every tensor, of the frozen ones too."""
    adapts = (
        "start_from=undisturbed",
        "adapter={type: lora, rank: 2}",
        "model.dropout=0.0",
        "schedule={type: constant}",
    )
    changes = (*adapts, "train.steps=2", "evaluation.every_steps=2")
    one = command_line(fault_place, "train", "reference.yaml", *changes, "--run-dir", "adapted-by-one")
    two = by_two_forked(fault_place, fault_place / "adapted-by-two", *changes, "train.parallel=fsdp")
    assert (one.exit_code, two.exit_code) == (0, 0), (one, two)
    by_one, by_two = (trace(fault_place / run) for run in ("adapted-by-one", "adapted-by-two"))
    assert losses(by_two) == pytest.approx(losses(by_one), abs=1e-5)


def torchrun(*arguments: object, n: int, restarts: int = 0, module: str = "pellucid") -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), "--standalone"]
    return [*launcher, "--max-restarts", str(restarts), "-m", module, *map(str, arguments)]


def of_ranks() -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(max(1, n_threads() // 2)))  # each, as `TWO` has
    return {**threads, "PYTHONPATH": str(Path(__file__).parent)}


def started(fault_place: Path, command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, **of_ranks()}
    return subprocess.Popen(command, cwd=fault_place, env=environment, stderr=subprocess.PIPE, text=True)


def be_torchrun(command: list[str]) -> None:
    """This process, which has imported PyTorch, becomes the launcher; its ranks are fresh ones."""
    from torch.distributed.run import main

    os.environ.update(of_ranks())
    main(command[3:])
    sys.exit()


def test_f32_torchrun_trains_the_same_and_passes_a_stop_on(fault_place: Path, by_two: Trace, soak):
    """SIGTERM to torchrun: one save; then the rest of the run, which is that of processes which train started.

    In the long form torchrun makes the rest as well.
    """
    run = fault_place / "by-torchrun"
    words = ("train", "reference.yaml", "--run-dir", run.name)
    launcher = Command(fault_place, fault=partial(be_torchrun, torchrun(*words, n=2, module="waits_for_a_stop")))
    while len(read_rows(run / "metrics.jsonl")) < 10 and launcher.process.is_alive():
        time.sleep(0.02)
    launcher.process.terminate()
    done = launcher.wait()
    assert done.exit_code != 0
    assert done.stderr.count("saved; to continue") == 1, done.stderr
    assert not leftovers(run)
    if soak:
        launcher = started(fault_place, torchrun("train", "reference.yaml", "--run-dir", run.name, "--resume", n=2))
        _, err = launcher.communicate(timeout=HANGS_AFTER_SECONDS)
        assert launcher.returncode == 0, err
    else:
        assert by_two_forked(fault_place, run, "--resume").exit_code == 0
    assert trace(run) == by_two


@pytest.mark.usefixtures("soak_only")
def test_f31_random_kills_of_random_ranks_end_in_the_undisturbed_run(fault_place: Path, by_two: Trace, tally):
    """torchrun starts again after each, and the run continues from its last save."""
    n_kills = 30
    generator = random.Random(31)
    run = fault_place / "killed-under-torchrun"
    command = torchrun("train", "reference.yaml", "--run-dir", run.name, n=2, restarts=n_kills)
    launcher = started(fault_place, command)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    for _ in range(n_kills):
        tally.tries += 1
        time.sleep(generator.uniform(3, 12))
        if launcher.poll() is None and (ranks := [int(pid) for pid in children.read_text().split()]):
            os.kill(generator.choice(ranks), signal.SIGKILL)
    _, err = launcher.communicate(timeout=HANGS_AFTER_SECONDS)
    assert launcher.returncode == 0, err
    assert trace(run) == by_two
