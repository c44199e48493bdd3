"""The configs for tiny Shakespeare, on a GPU the one for it: seconds, evaluations included, and the loss at the end.

python scripts/measure_shakespeare.py tinyshakespeare.txt --record
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from results import ROOT, here, parser, print_table, record

RUNS = {
    "speedrun, seed 0": ["speedrun_shakespeare.yaml", "seed=0"],
    "speedrun, seed 1": ["speedrun_shakespeare.yaml", "seed=1"],
    "longer": ["shakespeare_char.yaml"],
}
RUNS_ON_A_GPU = {"speedrun, seed 0": ["speedrun_shakespeare_gpu.yaml"]}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("text", type=Path)
    options = arguments.parse_args()
    runs = RUNS_ON_A_GPU if torch.cuda.is_available() else RUNS
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (config, *overrides) in runs.items():
            command = [sys.executable, "-m", "pellucid", "train", str(ROOT / "configs" / config), *overrides]
            files = f"corpus={{type: text, files: [{json.dumps(str(options.text.resolve()))}]}}"
            subprocess.run([*command, files, "--run-dir", name], cwd=folder, check=True)
            rows = (Path(folder) / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            last = json.loads(rows[-1])
            figures[name] = {"seconds": last["elapsed_seconds"], "nats per character": last["val_loss"]}
            if torch.cuda.is_available():
                figures[name]["steps"] = last["step"]
    print_table("shakespeare", figures)
    if options.record:
        record(here("shakespeare"), figures, {config.removesuffix(".yaml") for config, *_ in runs.values()})


if __name__ == "__main__":
    main()
