"""The demo from a fresh clone: how long it takes, how near it comes to the floor, and how good its stories are.

    python scripts/measure_demo.py --record

Clones this repository (what is committed), times `make demo` there, trains with another seed, and judges 100 stories of
each model. With --record it also copies the demo's figures to docs/. About ten minutes on two cores.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from judge_fables import judge
from results import ROOT, parser, record


def figures_of(clone: Path, run: Path) -> dict[str, Any]:
    evaluate = [clone / ".venv/bin/pellucid", "evaluate", run]
    text, found = (
        subprocess.run([*evaluate, *options], cwd=clone, check=True, capture_output=True, text=True).stdout
        for options in ([], ["--json"])
    )
    evaluation = json.loads(found)
    skills = {name: evaluation["skills"][name]["accuracy"] for name in ("recall", "agreement")}
    rows = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    n_accepted, share = judge(run, 100, seed=0)
    return {
        "training_seconds": json.loads(rows[-1])["elapsed_seconds"],
        "excess (% of the floor)": 100 * evaluation["excess_nats_per_token"] / evaluation["floor_nats_per_token"],
        **{f"{name} (%)": 100 * accuracy for name, accuracy in skills.items()},
        "accepted stories (of 100)": n_accepted,
        "first fault after (% of the text)": 100 * share,
        "evaluation": text.rstrip("\n").splitlines(),
    }


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "pellucid"
        started = time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        subprocess.run(["make", "demo"], cwd=clone, check=True)
        minutes = (time.perf_counter() - started) / 60
        demo = {"minutes": minutes, **figures_of(clone, clone / "checkpoints/fables")}
        train = [clone / ".venv/bin/pellucid", "train", "configs/fables.yaml", "name=another", "seed=1"]
        subprocess.run(train, cwd=clone, check=True)
        another = figures_of(clone, clone / "checkpoints/another")
        if options.record:
            for figure in ("loss.png", "skills.png"):
                shutil.copy(clone / "checkpoints/fables" / figure, ROOT / "docs")
    for name, figures in (("demo", demo), ("demo_seed_1", another)):
        print(json.dumps({name: figures}, indent=1))
        if options.record:
            record(name, figures)


if __name__ == "__main__":
    main()
