"""F37: a large corpus whose preparation is killed goes on from its last record, to the same bytes."""

import json
import os
import random
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

import strikes
from pellucid.corpora import text_files
from pellucid.data import encoding, prepare
from pellucid.data.progress import PROGRESS_FILE
from processes import command_line
from reference_run import CORPUS

KILLED = -signal.SIGKILL
RECORD = "fsync train.bin"
# Late enough for records, whose first part is `fsync train.bin`; the last is after them, at the end of all.
IN_ORDER = [(RECORD, 2), ("fsync .tmp-progress.json", 3), ("fsync SHA256SUMS", 1)]


def in_small_parts(strike, n_processes: int = 0) -> None:
    """As with gigabytes: many parts, a record now and then, two processes that encode, all in a group of their own."""
    os.setpgid(0, 0)
    text_files.PART_BYTES, prepare.PARTS_BETWEEN_RECORDS = 1000, 4
    encoding.PARTS_WITHOUT_PROCESSES = 2 if n_processes else 10_000
    encoding.MOST_PROCESSES = n_processes or 1
    strike()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("large")
    draw = random.Random(0)
    verses = CORPUS.split("\n\n")
    text = "\n\n".join(f"{draw.choice(verses)} {draw.randrange(1000)}" for _ in range(2000))
    (place / "corpus.txt").write_text(text, encoding="utf-8")
    (place / "reference.yaml").write_text(PREPARED)
    return place


PREPARED = """\
name: large
corpus: {type: text, files: [corpus.txt], separator: "\\n\\n"}
tokenizer: {type: bpe, vocab_size: 300}
model: {context_length: 32, d_model: 8, n_layers: 1, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant}
train: {steps: 1, batch_size: 2}
"""


def prepared(place: Path) -> dict[str, bytes]:
    [directory] = (path for path in (place / "data").iterdir() if path.is_dir())
    assert not directory.name.startswith("."), "no unfinished folder is left"
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> tuple[dict[str, bytes], list[str]]:
    """The bytes, and the failpoints on the way to them."""
    points = place / "points"
    fault = partial(in_small_parts, partial(strikes.record_points, points))
    done = command_line(place, "prepare", "reference.yaml", fault=fault)
    assert done.exit_code == 0, done
    found = prepared(place)
    shutil.rmtree(place / "data")
    return found, points.read_text().splitlines()


def n_records(place: Path) -> int:
    """Of the training text, in the unfinished folder."""
    drafts = list((place / "data").glob(f".tmp-*/{PROGRESS_FILE}"))
    splits = json.loads(drafts[0].read_text())["splits"] if drafts else {}
    return splits["train"]["n_parts"] // 4 if splits else 0


def kill_it(place: Path, strike) -> bool:
    """Whether the strike, a kill of the process or of its group, came before the end."""
    done = command_line(place, "prepare", "reference.yaml", fault=partial(in_small_parts, strike, n_processes=2))
    assert done.exit_code in (0, KILLED), done
    return done.exit_code == KILLED


def assert_it_goes_on(place: Path, undisturbed: tuple[dict[str, bytes], list[str]]) -> None:
    """From the last record, so that only those after it are made."""
    expected, points = undisturbed
    is_whole, kept = any((place / "data").glob("text-*")), n_records(place)
    fault = partial(in_small_parts, partial(strikes.record_points, place / "points"))
    done = command_line(place, "prepare", "reference.yaml", fault=fault)
    assert done.exit_code == 0, done
    assert ("continuing an interrupted preparation" in done.stderr) == (kept > 0), done.stderr
    assert prepared(place) == expected
    made = (place / "points").read_text().splitlines().count(RECORD)
    assert made == (0 if is_whole else points.count(RECORD) - kept)
    assert sorted(path.suffix for path in (place / "data").iterdir()) == ["", ".lock"]


def test_f37_a_preparation_that_is_killed_goes_on(place: Path, undisturbed, tally):
    """With its processes; the third kill finds nothing left to encode."""
    assert undisturbed[1].count(RECORD) > 10
    for n_kills, (point, nth) in enumerate(IN_ORDER, 1):
        with tally.attempt(f"killed at {point}, time {nth}"):
            before = n_records(place)
            assert kill_it(place, partial(strikes.at_point, strikes.kill_group, point, nth))
            assert n_records(place) > before or n_kills == 3
    assert_it_goes_on(place, undisturbed)


def test_f37_kills_at_random_moments_end_the_same(place: Path, undisturbed, tally, soak_only):
    """Of the process alone, or of all; one to three in a row."""
    chance, points = random.Random(0), undisturbed[1]
    for chain in range(18):
        shutil.rmtree(place / "data", ignore_errors=True)
        with tally.attempt(f"chain {chain}"):
            tally.tries -= 1  # the kills are counted, not the chain
            n_kills = chance.randint(1, 3)
            for _ in range(n_kills):
                kill = chance.choice([strikes.kill, strikes.kill_group])
                strike = partial(strikes.soon, kill, chance.uniform(0, 0.02))
                nth = chance.randrange(1, len(points) // n_kills)
                tally.tries += kill_it(place, partial(strikes.at_point, strike, "*", nth))
            assert_it_goes_on(place, undisturbed)
