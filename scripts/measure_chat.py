"""From a trained demo to a model that does as it is told: how long it takes, and what it can do before and after.

    python scripts/measure_chat.py checkpoints/fables --record

Fine-tunes the run with each seed as `make demo-chat` does (SFT, then GRPO), and evaluates each stage: obedience and
whole fables on held-out instructions, wordings never seen among them; the excess over the exact floor; and the excess
on plain fables, which fine-tuning forgets. About ten minutes a seed on four cores. With --report FOLDER the table of an
existing pair of runs alone: python scripts/measure_chat.py checkpoints/fables --report checkpoints
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import ROOT, here, parser, print_table, record

from pellucid.languages.fables import Fables
from pellucid.languages.fables.story import MORALS

STAGES = ("instructions_sft", "instructions_grpo")
N_ANSWERS = 475  # all that are held out
PELLUCID = [sys.executable, "-m", "pellucid"]


def evaluation(run: Path, *options: str | Path) -> dict[str, Any]:
    """What `pellucid evaluate` says of a run."""
    command = [*PELLUCID, "evaluate", run, "--json", *options]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert isinstance(found, dict)
    return found


def figures_of(run: Path, base: Path) -> dict[str, float]:
    """The figures of a stage: its answers, its excess, and how well it still knows plain fables."""
    of_answers = evaluation(run, "--checkpoint", "latest", "--answers", str(N_ANSWERS))
    answers, fables = of_answers["answers"], evaluation(run, "--checkpoint", "latest", "--on", base)
    kinds = answers["instructions"]
    return {
        "obey (%)": 100 * kinds["all"]["obeys"]["share"],
        "obey, wordings never seen (%)": 100 * kinds["in wordings never seen"]["obeys"]["share"],
        "whole fables (%)": 100 * kinds["all"]["whole"]["share"],
        "distinct (%)": 100 * answers["distinct"],
        "excess over the floor (%)": 100 * of_answers["excess_fraction"],
        "excess on plain fables (%)": 100 * fables["excess_fraction"],
    }


def chance(world_size: int = 24) -> float:
    """How often a plain fable obeys by luck, in percent: exactly, over the three kinds of instruction."""
    morals = Fables(world_size).morals_of("fable")
    of_animal, of_moral = 1 / world_size, sum(morals.values()) / len(MORALS)
    return 100 * (of_animal + of_moral + of_animal * of_moral) / 3


def trained(base: Path, seed: int, folder: Path) -> float:
    """Trains both stages; how many seconds they took, with preparing."""
    started = time.perf_counter()
    start_from = base
    for stage in STAGES:
        options = [f"seed={seed}", f"start_from={start_from}", "--run-dir", folder / stage]
        subprocess.run([*PELLUCID, "train", ROOT / f"configs/{stage}.yaml", *options], check=True)
        start_from = folder / stage
    return time.perf_counter() - started


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("base", type=Path, help="a trained run of configs/fables.yaml")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--report", type=Path, metavar="FOLDER", help="of the runs that are there")
    arguments.add_argument("--keep", metavar="FOLDER", help="keep the runs there")
    options = arguments.parse_args()
    base = options.base.resolve()
    plain = 100 * evaluation(base)["excess_fraction"]
    rows: dict[str, dict[str, float]] = {}

    def add(folder: Path, name: str) -> None:
        for stage, what in zip(STAGES, ("SFT", "SFT and GRPO"), strict=True):
            rows[f"{what}{name}"] = figures_of(folder / stage, base)

    if options.report:
        add(options.report, "")
    else:
        minutes = {}
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(options.keep or temporary).resolve() / f"seed-{seed}"
                minutes[f"seed {seed}"] = trained(base, seed, folder) / 60
                add(folder, f", seed {seed}")
    print(f"before: {chance():.1f} % obey by chance; excess on plain fables {plain:.1f} %")
    print_table("after", rows)
    if not options.report:
        print("minutes of training:", ", ".join(f"{name} {m:.1f}" for name, m in minutes.items()))
    if options.record:
        before = {"obey by chance (%)": chance(), "excess on plain fables (%)": plain}
        record(here("chat"), {"before": before, "minutes": minutes, "after": rows}, ["fables", *STAGES])


if __name__ == "__main__":
    main()
