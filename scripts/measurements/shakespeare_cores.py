"""Tiny Shakespeare to 1.4697 nats per character without a GPU: what each of five seeds needs to get there.

Remakes: shakespeare_cores
Takes: half an hour a seed
Needs: tinyshakespeare.txt

--runs names a folder that keeps the runs: those in it are continued, or only read if they have ended. The minutes are
those of seed 0, which must have had the machine to itself; the others may be trained beside other work.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from results import ROOT, Entry, here
from runs import pellucid

from pellucid.training.metrics import read_rows

RECIPE = "speedrun_shakespeare_cores"


def measure(text: Path, *, seeds: int = 5, runs: Path = Path()) -> Iterator[Entry]:
    files = f"corpus={{type: text, files: [{json.dumps(str(text))}]}}"
    figures, minutes = {}, []
    for seed in range(seeds):
        run = runs / f"seed-{seed}"
        pellucid("train", ROOT / f"configs/{RECIPE}.yaml", f"seed={seed}", files, "--run-dir", run, "--resume")
        last = read_rows(run / "metrics.jsonl")[-1]
        figures[f"seed {seed}"] = {"steps": last["step"], "nats per character": last["val_loss"]}
        minutes.append(last["elapsed_seconds"] / 60)
    yield Entry(here("shakespeare_cores"), {"minutes": minutes[0]} | figures, [RECIPE])
