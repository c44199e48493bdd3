"""Shared by the tests of faults: the reference run, a short and a long form of each row, the table of the long one.

A test is named after the row of docs/reliability.md that it holds: `test_f3_…` counts for row F3.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from scripts.results import Entry, record

import strikes
from processes import command_line
from reference_run import CORPUS, REFERENCE_CONFIG, SAVE_EVERY, STEPS, Trace, trace

TALLIES = pytest.StashKey[list["Tally"]]()
STARTED = pytest.StashKey[float]()
ROW = re.compile(r"test_(f\d+|fuzz)_")


@dataclass
class Tally:
    """How often a fault was made, and after which of them the promise did not hold."""

    row: str
    collects: bool
    tries: int = 0
    broken: list[str] = field(default_factory=list)

    @contextmanager
    def attempt(self, fault: object) -> Iterator[None]:
        """One try. In the long form a broken promise is noted and the tries go on; else it fails at once."""
        self.tries += 1
        try:
            yield
        except Exception as error:
            self.broken.append(f"{error!r:.500} after {fault!r:.2000}")
            if not self.collects:
                raise


@pytest.fixture
def soak_only(soak: bool) -> None:
    """For what takes too long for `make test`, and has a shorter relative there."""
    if not soak:
        pytest.skip("long: part of `make soak`")


@pytest.fixture(autouse=True)
def tally(request: pytest.FixtureRequest, soak: bool) -> Iterator[Tally]:
    """The count of this test's tries. A test that makes a single try need not mention it."""
    named = ROW.match(request.node.name)
    assert named, "name the test after its row: test_f3_what_holds"
    tally = Tally(named[1].replace("f", "F", 1) if named[1] != "fuzz" else "fuzz", soak)
    yield tally
    tally.tries = tally.tries or 1
    failed = getattr(request.node, "call_failed", True)
    if failed and not tally.broken:
        tally.broken.append("the test failed")
    request.config.stash.setdefault(TALLIES, []).append(tally)
    assert failed or not tally.broken, "\n".join(tally.broken[:10])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.call_failed = report.failed
        item.was_skipped = report.skipped
    return report


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STARTED] = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table of the long form, and records it if asked to."""
    if not config.getoption("--soak", default=False):
        return
    terminalreporter.section("faults")
    terminalreporter.write_line("| row | tries | survived |\n|---|---:|---:|")
    tallies = config.stash.get(TALLIES, [])
    rows = {}
    for row in [*(f"F{i}" for i in range(1, 38)), "fuzz"]:
        of_row = [tally for tally in tallies if tally.row == row]
        tries = sum(tally.tries for tally in of_row)
        survived = tries - sum(len(tally.broken) for tally in of_row)
        terminalreporter.write_line(f"| {row} | {tries:,} | {survived:,} |")
        rows[row] = {"tries": tries, "survived": survived}
    if config.getoption("--record", default=False):
        record(Entry("soak", {"minutes": (time.monotonic() - config.stash[STARTED]) / 60, "rows": rows}))


@dataclass(frozen=True)
class Beginning:
    """The reference run as far as `step`, and the failpoints that it reaches from there on, in their order."""

    folder: Path
    step: int
    points: list[str]

    def copy_to(self, run: Path) -> None:
        shutil.copytree(self.folder, run)

    def around_a_save(self) -> list[tuple[int, str]]:
        """The points from the last save but one, which deletes an older one, to the next update, numbered."""
        arrivals = list(enumerate(self.points, 1))
        updates = [i for i, name in arrivals if name == "update"]
        last = STEPS - SAVE_EVERY - self.step
        return arrivals[updates[last - 1] : updates[last]]

    def ends_around_a_save(self) -> list[tuple[int, str]]:
        """The first and the last of these points for each operation, as of the first and the last file written."""
        found: dict[str, list[tuple[int, str]]] = {}
        for nth, name in self.around_a_save():
            found.setdefault(name if name.endswith("trash") else name.split()[0], []).append((nth, name))
        return sorted({each for arrivals in found.values() for each in (arrivals[0], arrivals[-1])})


@pytest.fixture(scope="session")
def fault_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus and the config of the reference run, and room for the runs of all tests."""
    place = tmp_path_factory.mktemp("faults")
    (place / "corpus.txt").write_text(CORPUS)
    (place / "reference.yaml").write_text(REFERENCE_CONFIG)
    return place


@pytest.fixture(scope="session")
def reference(fault_place: Path) -> Trace:
    """The reference run, to which nothing has happened."""
    done = command_line(fault_place, "train", "reference.yaml", "--run-dir", "undisturbed")
    assert done.exit_code == 0, done.stderr
    return trace(fault_place / "undisturbed")


@pytest.fixture(scope="session")
def beginning(fault_place: Path, soak: bool) -> Beginning:
    """Nothing at all; in the short form, what a kill left of the run at its 21st update."""
    step, folder, file = 0 if soak else 20, fault_place / "beginning", fault_place / "points"
    folder.mkdir()
    train = ["train", "reference.yaml", "--resume", "--run-dir"]
    if step:
        assert command_line(fault_place, *train, folder.name, fault=strikes.killed_at("update", step + 1)).exit_code < 0
    shutil.copytree(folder, fault_place / "recorded")
    done = command_line(fault_place, *train, "recorded", fault=partial(strikes.record_points, file))
    assert done.exit_code == 0, done
    return Beginning(folder, step, file.read_text().splitlines())
