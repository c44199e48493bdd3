"""How long whole commands take: `pellucid --help`, training of debug.yaml and, if asked for, all tests.

Remakes: help, debug
Takes: half a minute; with --tests ten
Needs: nothing
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from results import ROOT, Entry
from runs import pellucid
from timing import seconds_of


def measure(*, tests: bool = False) -> Iterator[Entry]:
    """--tests: `make test` in a fresh clone instead, installation included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if tests:
            subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
            yield Entry("tests", {"minutes": seconds_of(lambda: subprocess.run(["make", "test"], cwd=folder)) / 60})
            return
        help_seconds = [seconds_of(lambda: pellucid("--help", folder=folder)) for _ in range(7)]
        yield Entry("help", {"seconds": median(help_seconds)})
        debug = seconds_of(lambda: pellucid("train", ROOT / "configs/debug.yaml", folder=folder))
        yield Entry("debug", {"seconds": debug}, ["debug"])
