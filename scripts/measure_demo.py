"""The demo from a fresh clone: how long it takes, how near it comes to the floor, and how good its stories are.

    python scripts/measure_demo.py --record

Clones this repository (what is committed), times `make demo` there, trains with four other seeds, and judges 100
stories of each model. With --record it also copies the demo's figures to docs/. About half an hour on four cores.
With --here nothing is cloned or installed: this Python trains with this folder's code.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from judge_fables import judge
from results import ROOT, here, parser, print_table, record

from pellucid.training.metrics import read_rows

FABLES, DEMO = str(ROOT / "configs/fables.yaml"), "checkpoints/fables"


def figures_of(pellucid: list[str], clone: Path, run: Path) -> tuple[dict[str, float], list[str]]:
    """The numbers of a trained model, and the lines that `pellucid evaluate` prints."""
    evaluate = [*pellucid, "evaluate", str(run)]
    text, found = (
        subprocess.run([*evaluate, *options], cwd=clone, check=True, capture_output=True, text=True).stdout
        for options in ([], ["--json"])
    )
    evaluation = json.loads(found)
    skills = {name: evaluation["skills"][name]["accuracy"] for name in ("recall", "agreement", "count")}
    n_accepted, share = judge(run, 100, seed=0)
    figures = {
        "training (s)": read_rows(run / "metrics.jsonl")[-1]["elapsed_seconds"],
        "excess (% of the floor)": 100 * evaluation["excess_nats_per_token"] / evaluation["floor_nats_per_token"],
        **{f"{name} (%)": 100 * accuracy for name, accuracy in skills.items()},
        "accepted stories (of 100)": n_accepted,
        "first fault after (% of the text)": 100 * share,
    }
    return figures, text.rstrip("\n").splitlines()


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--here", action="store_true", help="with this Python and this folder's code, not a clone")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "pellucid"
        started = time.perf_counter()
        if options.here:
            clone.mkdir()
            pellucid = [sys.executable, "-m", "pellucid"]
            for arguments_of_demo in (["train", FABLES], ["evaluate", DEMO], ["generate", DEMO, "--num-samples", "3"]):
                subprocess.run([*pellucid, *arguments_of_demo], cwd=clone, check=True)
        else:
            pellucid = [str(clone / ".venv/bin/pellucid")]
            subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
            subprocess.run(["make", "demo"], cwd=clone, check=True)
        minutes = (time.perf_counter() - started) / 60
        of_seed_0, evaluation = figures_of(pellucid, clone, clone / DEMO)
        seeds = {"0": of_seed_0}
        if options.record and not options.here:
            for figure in ("loss.png", "skills.png"):
                shutil.copy(clone / "checkpoints/fables" / figure, ROOT / "docs")
        for seed in range(1, options.seeds):
            train = [*pellucid, "train", FABLES, f"name=seed-{seed}", f"seed={seed}"]
            subprocess.run(train, cwd=clone, check=True)
            seeds[str(seed)], _ = figures_of(pellucid, clone, clone / f"checkpoints/seed-{seed}")
    demo = {"minutes": minutes, **of_seed_0, "evaluation": evaluation}
    print(json.dumps(demo, indent=1))
    print_table("seed", seeds)
    if options.record:
        record(here("demo"), demo, ["fables"])
        if len(seeds) > 1:
            record(here("demo_seeds"), seeds, ["fables"])


if __name__ == "__main__":
    main()
