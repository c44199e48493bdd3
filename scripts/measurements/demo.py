"""The demo from a fresh clone: how long it takes, how near it comes to the floor, and how good its stories are.

Remakes: demo, demo_seeds
Takes: half an hour
Needs: nothing

Clones this repository (what is committed), times `make demo` there, trains with four other seeds in the same minutes,
and judges 100 stories of each model.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measurements import stories
from results import ROOT, Entry, here
from runs import FABLES, evaluation, pellucid
from timing import seconds_of

from pellucid.training.metrics import read_rows

CLONE, DEMO = Path("pellucid"), "checkpoints/fables"
IN_TIME = ["--minutes", *re.findall(r"\nMINUTES := (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"))]
TIME, SKILLS = "training (s)", ("recall", "agreement", "count")


def measure(*, seeds: int = 5, here_only: bool = False, pictures: Path | None = None) -> Iterator[Entry]:
    """--here-only: this folder's code, no clone, and nothing is installed. --pictures docs: puts the demo's there."""
    minutes = seconds_of(run_here if here_only else run_in_a_clone) / 60
    by_seed = {0: figures_of(CLONE / DEMO)}
    for figure in ("loss.png", "skills.png") if pictures else ():
        shutil.copy(CLONE / DEMO / figure, pictures)
    for seed in range(1, seeds):
        pellucid("train", FABLES, f"name=seed-{seed}", f"seed={seed}", *IN_TIME, folder=CLONE)
        by_seed[seed] = figures_of(CLONE / f"checkpoints/seed-{seed}")
    lines = pellucid("evaluate", CLONE / DEMO).rstrip("\n").splitlines()
    yield Entry(here("demo"), {"minutes": minutes, **by_seed[0], "evaluation": lines}, ["fables"])
    if seeds > 1:  # all take as long as the first, unless something runs beside them
        of_seeds = {
            str(seed): {name: figures[name] for name in figures if name != TIME} for seed, figures in by_seed.items()
        }
        yield Entry(here("demo_seeds"), of_seeds, ["fables"])


def run_here() -> None:
    CLONE.mkdir()
    for command in (["train", FABLES, *IN_TIME], ["evaluate", DEMO], ["generate", DEMO, "--num-samples", "3"]):
        pellucid(*command, folder=CLONE)


def run_in_a_clone() -> None:
    subprocess.run(["git", "clone", "--quiet", ROOT, CLONE], check=True)
    subprocess.run(["make", "demo"], cwd=CLONE, check=True)


def figures_of(run: Path) -> dict[str, float]:
    """The numbers of a trained model."""
    [of_stories] = stories.measure(run)
    last = read_rows(run / "metrics.jsonl")[-1]
    return {
        "updates": last["step"],
        TIME: last["elapsed_seconds"],
        **figures_from(evaluation(run)),
        **of_stories.figures,
    }


def figures_from(scores: dict[str, Any]) -> dict[str, float]:
    excess = scores["excess_nats_per_token"] / scores["floor_nats_per_token"]
    skills = {f"{name} (%)": 100 * scores["skills"][name]["accuracy"] for name in SKILLS}
    return {"excess (% of the floor)": 100 * excess, **skills}
