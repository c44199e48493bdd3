"""F1, F2, F17, F32: a run that learns from its own answers: stopped, killed while it writes, made by two processes."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from safetensors.torch import load_file

import strikes
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, write_checkpoint
from pellucid.training.metrics import read_rows
from policy_run import PPO, make_policy_place
from processes import Fault, command_line
from reference_run import Trace, trace

TRAIN = ("train", "policy.yaml", "--resume")
LAST = "step-00000008/model.safetensors"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_policy_place(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Trace:
    done = command_line(place, *TRAIN, "--run-dir", "undisturbed")
    assert done.exit_code == 0, done.stderr
    assert (place / "undisturbed" / "rewards.png").exists()
    evaluated = [row["val_reward"] for row in read_rows(place / "undisturbed/metrics.jsonl") if "val_reward" in row]
    assert evaluated[-1] > evaluated[0], "what is rewarded gets likelier"
    return trace(place / "undisturbed")


@pytest.mark.parametrize("nth", [3, 6], ids=["second rollout", "third rollout"])
def test_f2_a_kill_while_answers_are_written_is_the_same(place: Path, undisturbed: Trace, nth: int):
    """Two micro-batches, three updates on the same answers: the second of two is hit, or the first."""
    run = f"killed-{nth}"
    assert command_line(place, *TRAIN, "--run-dir", run, fault=strikes.killed_at("rollout", nth)).exit_code < 0
    assert command_line(place, *TRAIN, "--run-dir", run).exit_code == 0
    assert trace(place / run) == undisturbed


@pytest.mark.parametrize("step", [4, 5, 6])
def test_f1_a_stop_between_updates_on_the_same_answers_is_the_same(place: Path, undisturbed: Trace, step: int):
    run = f"stopped-{step}"
    stop = partial(strikes.at_point, strikes.terminate, "update", step)
    assert command_line(place, *TRAIN, "--run-dir", run, fault=stop).exit_code == 143
    assert steps_in(place / run)[-1] == step
    kept = [name for name in load_file(place / run / f"step-0000000{step}/rng.safetensors") if name != "cpu"]
    assert bool(kept) == (step % 3 != 0)
    assert command_line(place, *TRAIN, "--run-dir", run).exit_code == 0
    assert trace(place / run) == undisturbed


def by_two(place: Path, objective: tuple[str, ...], run: str, fault: Fault | None = None) -> int:
    words = (*TRAIN, "train.processes=2", *objective, "--run-dir", run)
    return command_line(place, *words, fault=partial(strikes.forked, fault)).exit_code


@pytest.fixture(scope="module")
def grpo_by_two(place: Path) -> Path:
    assert by_two(place, (), "grpo-by-two") == 0
    return place / "grpo-by-two"


@pytest.fixture(scope="module")
def ppo_by_two(place: Path) -> Path:
    assert by_two(place, (PPO,), "ppo-by-two") == 0
    return place / "ppo-by-two"


def furthest_apart(run: Path, other: Path) -> float:
    ours, theirs = load_file(run / LAST), load_file(other / LAST)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def test_f32_two_processes_end_with_the_weights_of_one(place: Path, undisturbed: Trace, grpo_by_two: Path):
    assert furthest_apart(grpo_by_two, place / "undisturbed") < 1e-4


def test_f32_two_processes_end_with_the_weights_of_one_under_ppo(place: Path, ppo_by_two: Path):
    assert command_line(place, *TRAIN, PPO, "--run-dir", "ppo").exit_code == 0
    assert furthest_apart(ppo_by_two, place / "ppo") < 1e-4


def test_f32_ppo_moves_its_value_head(ppo_by_two: Path):
    assert load_file(ppo_by_two / LAST)["scalar_head.weight"].abs().max() > 0


def test_f32_two_processes_that_were_stopped_go_on_as_if_not(place: Path, grpo_by_two: Path, ppo_by_two: Path, soak):
    stop = partial(strikes.at_point, strikes.terminate, "update", 5)
    for undisturbed, objective in [(grpo_by_two, ()), *([(ppo_by_two, (PPO,))] if soak else [])]:
        run = f"{undisturbed.name}-stopped"
        assert by_two(place, objective, run, stop) == 143
        assert by_two(place, objective, run) == 0
        assert trace(place / run) == trace(undisturbed)


def test_f17_a_reward_model_that_was_trained_again_is_refused(place: Path, undisturbed: Trace, tmp_path: Path):
    copytree(place, tmp_path, dirs_exist_ok=True)
    [judge] = (tmp_path / "judge").glob("step-*")
    read = read_checkpoint(judge)
    rmtree(judge)
    write_checkpoint(judge.parent, replace(read, model={name: 2 * tensor for name, tensor in read.model.items()}))
    done = command_line(tmp_path, *TRAIN, "--run-dir", "undisturbed")
    assert done.exit_code == 4
    assert done.stderr.startswith(
        "error: undisturbed/step-00000008: the model that judges or teaches, named in objective, has changed"
    )
    assert trace(tmp_path / "undisturbed") == undisturbed
