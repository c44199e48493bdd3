"""F2, F3: a process that is killed at any moment leaves whole checkpoints, and the resumed run is the same."""

import json
import random
import shutil
from functools import partial
from pathlib import Path

import pytest

import strikes
from model.family import FAMILY
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, step_name
from processes import Command, command_line
from reference_run import SAVE_EVERY, Trace, leftovers, trace

KILLED = -9


def assert_every_checkpoint_is_whole(run: Path) -> None:
    for step in steps_in(run):
        read_checkpoint(run / step_name(step))


def test_f2_a_kill_at_every_point_of_a_save_is_the_same(fault_place, reference: Trace, beginning, tally, soak):
    points = beginning.points
    files = [*(f"{kind}.safetensors" for kind in ("model", "optimizer", "rng"))]
    files += ["state.json", "config.yaml", "tokenizer.json", "manifest.json"]
    named = {f"{operation} {file}" for operation in ("write", "fsync") for file in files}
    assert named | {"fsync folder", "rename checkpoint", "rename to trash", "delete trash"} < set(points)
    arrivals = list(enumerate(points, 1))
    if not soak:  # one save, which deletes an older checkpoint as well
        arrivals = beginning.ends_around_a_save()
    for nth, name in arrivals:
        with tally.attempt(f"killed at {name}, point {nth} of the run"):
            run = fault_place / f"killed-at-{nth}"
            beginning.copy_to(run)
            arguments = ["train", "reference.yaml", "--run-dir", run.name, "--resume"]
            killed = command_line(fault_place, *arguments, fault=strikes.killed_at("*", nth))
            assert killed.exit_code == KILLED
            assert_every_checkpoint_is_whole(run)
            updates_done = beginning.step + points[:nth].count("update") - (name == "update")
            lost = updates_done - max(steps_in(run), default=0)
            assert lost <= SAVE_EVERY
            resumed = command_line(fault_place, *arguments)
            assert resumed.exit_code == 0, resumed
            assert trace(run) == reference
            assert leftovers(run) == []
            shutil.rmtree(run)


@pytest.mark.usefixtures("reference")  # the corpus is prepared: that has points too
def test_f2_a_kill_at_every_point_of_a_snapshot_is_the_same(fault_place, tally, soak):
    """The snapshot of step 3, between checkpoints 2 and 4. Some points; in the long form all."""
    train = ["train", "reference.yaml", "train.steps=5", "checkpoint.every_steps=2", "checkpoint.snapshots=5"]
    run, whole, file = (fault_place / name for name in ("snapshot-killed", "snapshot-whole", "snapshot-points"))
    record = partial(strikes.record_points, file)
    assert command_line(fault_place, *train, "--run-dir", whole.name, fault=record).exit_code == 0
    arrivals = list(enumerate(file.read_text().splitlines(), 1))
    updates = [i for i, name in arrivals if name == "update"]
    of_snapshot = arrivals[updates[2] + 1 : updates[3] - 1]
    parent_synced = max(nth for nth, name in of_snapshot if name == "fsync folder")  # the rename was just before
    if not soak:
        of_snapshot = [each for each in of_snapshot if each[1] in ("rename checkpoint", "saved")]
    assert len(of_snapshot) >= 2
    for nth, name in of_snapshot:
        with tally.attempt(f"killed at {name}, point {nth} of the run"):
            command = [*train, "--run-dir", run.name, "--resume"]
            assert command_line(fault_place, *command, fault=strikes.killed_at("*", nth)).exit_code == KILLED
            assert steps_in(run / "snapshots") == ([0, 1, 2, 3] if nth >= parent_synced else [0, 1, 2])
            assert command_line(fault_place, *command).exit_code == 0
            assert trace(run) == trace(whole)
            assert weights_of_snapshots(run) == weights_of_snapshots(whole)
            assert leftovers(run) == leftovers(run / "snapshots") == []
            shutil.rmtree(run)


def weights_of_snapshots(run: Path) -> dict[int, bytes]:
    """Each must be whole."""
    directories = {step: run / "snapshots" / step_name(step) for step in steps_in(run / "snapshots")}
    assert all(read_checkpoint(directory).is_snapshot for directory in directories.values())
    return {step: (directory / "model.safetensors").read_bytes() for step, directory in directories.items()}


def test_f3_kills_at_random_times_are_the_same(fault_place, reference: Trace, tmp_path, tally, soak):
    """Chains of five kills, from an empty folder on, half of them inside a save; then the run ends as it would."""
    wanted, chance = (300 if soak else 10), random.Random(0)
    survived_chains = 0
    while tally.tries < wanted:
        place = tmp_path / f"chain-{survived_chains}"
        place.mkdir()
        for name in ("corpus.txt", "reference.yaml"):
            shutil.copy(fault_place / name, place)
        with tally.attempt(f"chain {survived_chains}"):
            tally.tries -= 1  # the kills are counted, not the chain
            for n_kills in range(5):
                strike = kill_in_a_save if n_kills % 2 else kill_at_some_time
                if not strike(place, chance):
                    break  # it came to its end first
                tally.tries += 1
                assert_every_checkpoint_is_whole(place / "run")
            assert command_line(place, "train", "reference.yaml", "--run-dir", "run", "--resume").exit_code == 0
            assert trace(place / "run") == reference
            assert leftovers(place / "run") == []
            assert sorted(path.suffix for path in (place / "data").iterdir()) == ["", ".lock"]
        survived_chains += 1
        shutil.rmtree(place)


@pytest.mark.parametrize("name", [name for name, model in FAMILY.items() if model["type"] != "decoder"])
def test_f3_every_kind_of_model_survives_kills(name, fault_place, tally, soak):
    """In and after a save, and in the long form before one; the decoders among them are what the tests above kill."""
    if not soak and name != "lstm":
        pytest.skip("long: part of `make soak`")
    model = json.dumps({**FAMILY[name], "context_length": 16})
    train = ["train", "reference.yaml", f"model={model}", "train.steps=20", "--resume", "--run-dir"]
    assert command_line(fault_place, *train, f"{name}-whole").exit_code == 0
    strikes_in_order = [("rename checkpoint", 1), ("update", 7)]
    if soak:
        strikes_in_order = [("update", 3), ("write model.safetensors", 1), *strikes_in_order, ("fsync state.json", 1)]
    with tally.attempt(f"{len(strikes_in_order)} kills"):
        for point, nth in strikes_in_order:
            killed = command_line(fault_place, *train, f"{name}-killed", fault=strikes.killed_at(point, nth))
            assert killed.exit_code == KILLED, killed
            assert_every_checkpoint_is_whole(fault_place / f"{name}-killed")
        assert command_line(fault_place, *train, f"{name}-killed").exit_code == 0
        assert trace(fault_place / f"{name}-killed") == trace(fault_place / f"{name}-whole")


def kill_in_a_save(place: Path, chance: random.Random) -> bool:
    """Within two thousandths of a second of some point of one of the next saves."""
    point = chance.choice(["write model.safetensors", "fsync state.json", "rename checkpoint", "delete trash"])
    strike = partial(strikes.soon, strikes.kill, chance.uniform(0, 0.002))
    fault = partial(strikes.at_point, strike, point, chance.randint(1, 2))
    done = command_line(place, "train", "reference.yaml", "--run-dir", "run", "--resume", fault=fault)
    assert done.exit_code in (0, KILLED), done
    return done.exit_code == KILLED


def kill_at_some_time(place: Path, chance: random.Random) -> bool:
    command = Command(place, "train", "reference.yaml", "--run-dir", "run", "--resume")
    command.process.join(chance.uniform(0, 0.4))
    command.process.kill()
    done = command.wait()
    assert done.exit_code in (0, KILLED), done
    return done.exit_code == KILLED
