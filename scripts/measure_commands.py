"""How long whole commands take: `pellucid --help`, training of debug.yaml and, if asked for, all tests.

python scripts/measure_commands.py --record
python scripts/measure_commands.py --tests --record        `make test` in a fresh clone, installation included
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from results import ROOT, parser, record


def seconds(command: list[str], folder: str) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--tests", action="store_true", help="time `make test` instead")
    options = arguments.parse_args()
    pellucid = [sys.executable, "-m", "pellucid"]
    with tempfile.TemporaryDirectory() as folder:
        if options.tests:
            subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
            found = {"tests": {"minutes": seconds(["make", "test"], folder) / 60}}
        else:
            found = {
                "help": {"seconds": statistics.median(seconds([*pellucid, "--help"], folder) for _ in range(7))},
                "debug": {"seconds": seconds([*pellucid, "train", str(ROOT / "configs/debug.yaml")], folder)},
            }
    for name, figures in found.items():
        print(name, figures)
        if options.record:
            record(name, figures, ["debug"] if name == "debug" else [])


if __name__ == "__main__":
    main()
