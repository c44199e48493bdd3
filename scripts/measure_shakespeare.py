"""Both configs for tiny Shakespeare: seconds of training, evaluations included, and the loss at the end.

python scripts/measure_shakespeare.py tinyshakespeare.txt --record
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from results import ROOT, here, parser, print_table, record

RUNS = {
    "speedrun, seed 0": ["speedrun_shakespeare.yaml", "seed=0"],
    "speedrun, seed 1": ["speedrun_shakespeare.yaml", "seed=1"],
    "longer": ["shakespeare_char.yaml"],
}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("text", type=Path)
    options = arguments.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (config, *overrides) in RUNS.items():
            command = [sys.executable, "-m", "pellucid", "train", str(ROOT / "configs" / config), *overrides]
            files = f"corpus={{type: text, files: [{json.dumps(str(options.text.resolve()))}]}}"
            subprocess.run([*command, files, "--run-dir", name], cwd=folder, check=True)
            rows = (Path(folder) / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            last = json.loads(rows[-1])
            figures[name] = {"seconds": last["elapsed_seconds"], "nats per character": last["val_loss"]}
    print_table("shakespeare", figures)
    if options.record:
        record(here("shakespeare"), figures, ["speedrun_shakespeare", "shakespeare_char"])


if __name__ == "__main__":
    main()
