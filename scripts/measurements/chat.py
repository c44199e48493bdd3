"""From a trained demo to a model that does as it is told: how long it takes, and what it can do before and after.

Remakes: chat
Takes: 10 minutes a seed
Needs: checkpoints/fables

Fine-tunes the run with each seed as `make demo-chat` does (SFT, then GRPO), and evaluates each stage: obedience and
whole fables on held-out instructions, wordings never seen among them; the excess over the exact floor; and the excess
on plain fables, which fine-tuning forgets.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from results import ROOT, Entry, here
from runs import evaluation, pellucid
from timing import seconds_of

from pellucid.languages.fables import Fables
from pellucid.languages.fables.world import MORALS

STAGES = {"SFT": "instructions_sft", "SFT and GRPO": "instructions_grpo"}
N_ANSWERS = 475  # all that are held out


def measure(base: Path, *, seeds: int = 3, report: Path | None = None) -> Iterator[Entry]:
    """base: a trained run of configs/fables.yaml. --report FOLDER: the table of the stages that are there, alone."""
    before = {"obey by chance (%)": chance(), "excess on plain fables (%)": 100 * evaluation(base)["excess_fraction"]}
    minutes, after = {}, {}
    if report:
        after = {what: figures_of(report / stage, base) for what, stage in STAGES.items()}
    for seed in () if report else range(seeds):
        minutes[f"seed {seed}"] = seconds_of(partial(train, base, seed)) / 60
        for what, stage in STAGES.items():
            after[f"{what}, seed {seed}"] = figures_of(Path(f"{seed}/{stage}"), base)
    yield Entry(here("chat"), {"before": before, "minutes": minutes, "after": after}, ["fables", *STAGES.values()])


def train(base: Path, seed: int) -> None:
    """Both stages, each from the one before."""
    for stage in STAGES.values():
        run = Path(f"{seed}/{stage}").resolve()
        pellucid("train", ROOT / f"configs/{stage}.yaml", f"seed={seed}", f"start_from={base}", "--run-dir", run)
        base = run


def figures_of(run: Path, base: Path) -> dict[str, float]:
    """The figures of a stage: its answers, its excess, and how well it still knows plain fables."""
    of_answers = evaluation(run, "--checkpoint", "latest", "--answers", str(N_ANSWERS))
    return as_row(of_answers, evaluation(run, "--checkpoint", "latest", "--on", base))


def as_row(of_answers: dict[str, Any], of_fables: dict[str, Any]) -> dict[str, float]:
    answers, kinds = of_answers["answers"], of_answers["answers"]["instructions"]
    return {
        "obey (%)": 100 * kinds["all"]["obeys"]["share"],
        "obey, wordings never seen (%)": 100 * kinds["in wordings never seen"]["obeys"]["share"],
        "whole fables (%)": 100 * kinds["all"]["whole"]["share"],
        "distinct (%)": 100 * answers["distinct"],
        "excess over the floor (%)": 100 * of_answers["excess_fraction"],
        "excess on plain fables (%)": 100 * of_fables["excess_fraction"],
    }


def chance(world_size: int = 24) -> float:
    """How often a plain fable obeys by luck, in percent: exactly, over the three kinds of instruction."""
    morals = Fables(world_size).morals_of("fable")
    of_animal, of_moral = 1 / world_size, sum(morals.values()) / len(MORALS)
    return 100 * (of_animal + of_moral + of_animal * of_moral) / 3
