"""How long whole commands take: `pellucid --help`, and training of debug.yaml.

Remakes: help, debug
Takes: half a minute
Needs: nothing
"""

from collections.abc import Iterator
from statistics import median

from results import ROOT, Entry
from runs import pellucid
from timing import seconds_of


def measure() -> Iterator[Entry]:
    yield Entry("help", {"seconds": median(seconds_of(lambda: pellucid("--help")) for _ in range(7))})
    debug = seconds_of(lambda: pellucid("train", ROOT / "configs/debug.yaml"))
    yield Entry("debug", {"seconds": debug}, ["debug"])
