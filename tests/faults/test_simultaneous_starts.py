"""F19: of many processes that start in one run directory at once, one trains."""

import time
from collections import Counter
from functools import partial
from pathlib import Path

import strikes
from processes import HANGS_AFTER_SECONDS, Command, command_line
from reference_run import Trace, leftovers, trace
from tiny_run import assert_one_error_line

N_STARTS = 20


def test_f19_one_of_twenty_wins_and_after_its_kill_the_next_gets_the_lock(fault_place, reference: Trace, tally, soak):
    for i in range(10 if soak else 1):
        with tally.attempt(f"round {i}"):
            run, go = fault_place / f"raced-{i}", fault_place / f"go-{i}"
            arguments = ["train", "reference.yaml", "--run-dir", run.name]
            start = partial(held_winner, go)
            commands = [Command(fault_place, *arguments, fault=start) for _ in range(N_STARTS)]
            go.touch()
            winner = the_one_left_running(commands)
            losers = [command.wait() for command in commands if command is not winner]
            winner.process.kill()
            assert Counter(done.exit_code for done in losers) == {7: N_STARTS - 1}
            for done in losers:
                assert_one_error_line(done, 7, "another process trains in this folder", "--run-dir")
            assert winner.wait().exit_code == -9
            tally.tries += N_STARTS - 1
            restarted = command_line(fault_place, *arguments, "--resume")
            assert restarted.exit_code == 0, restarted
            assert trace(run) == reference
            assert leftovers(run) == []


def held_winner(go: Path) -> None:
    """Waits for the start, and stays in its thirteenth update if it wins."""
    strikes.wait_for(go)
    strikes.at_point(strikes.stay, "update", 13)


def the_one_left_running(commands: list[Command]) -> Command:
    end = time.monotonic() + HANGS_AFTER_SECONDS
    while len(running := [command for command in commands if command.process.is_alive()]) > 1:
        assert time.monotonic() < end, "more than one process trains"
        time.sleep(0.01)
    return running[0]


def test_f19_a_reader_needs_no_lock(fault_place, reference: Trace):
    """While a run goes on its checkpoints can be verified and generated from."""
    run = fault_place / "read-while-training"
    writer = Command(
        fault_place,
        "train",
        "reference.yaml",
        "--run-dir",
        run.name,
        fault=partial(strikes.at_point, strikes.stay, "update", 13),
    )
    while not (run / "step-00000010").exists():
        assert writer.process.is_alive()
        time.sleep(0.01)
    assert command_line(fault_place, "verify", run.name).exit_code == 0
    assert command_line(fault_place, "generate", run.name, "--max-new-tokens", "2").exit_code == 0
    writer.process.kill()
    assert writer.wait().exit_code == -9
