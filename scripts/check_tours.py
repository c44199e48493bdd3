"""Compares what tours claim with what is measured in runs: each figure of each stop, and where it is out of bounds.

    python scripts/check_tours.py checkpoints/fables
    python scripts/check_tours.py checkpoints/fables checkpoints/lstm --tour attention

Without --tour, all shipped tours that these runs can play. Exits with 1 if a figure is out of its bounds.
"""

import argparse
import sys
from pathlib import Path

from pellucid.web.microscope import Microscope
from pellucid.web.tours import Tours, files_of


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("runs", nargs="+", type=Path)
    arguments.add_argument("--tour", type=Path, help="file, or name of a shipped one")
    given = arguments.parse_args()
    tours = Tours(Microscope(given.runs), files_of(given.tour))
    names = [given.tour.stem] if given.tour else [tour["name"] for tour in tours.listed()["tours"]]
    n_misses = 0
    for name in names:
        for number, stop in enumerate(tours.played(name)["stops"], start=1):
            figures = ", ".join(f"{key} {value:.4g}" for key, value in stop["measured"].items() if value is not None)
            print(f"{name} {number}  {stop['title']}: {figures or 'nothing measured'}")
            for miss in stop["misses"]:
                print(f"    {miss}")
            n_misses += len(stop["misses"])
    print(f"{n_misses} out of bounds")
    sys.exit(n_misses > 0)


if __name__ == "__main__":
    main()
