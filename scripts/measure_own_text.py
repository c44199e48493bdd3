"""configs/own_text.yaml on a small text and a larger one, both made of what every checkout has at hand.

    python scripts/measure_own_text.py --record

The small text is Python's reference (the topics of `help()`), 466 kB in Python 3.11. The larger one adds this
project's pages and code and, up to 5 MB, the modules of the standard library. Trains in float32 with AVX2 alone, as
computers do that have nothing better.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from pydoc_data.topics import topics

from results import ROOT, machine, parser, print_table, record

LARGE_BYTES = 5_000_000
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def main() -> None:
    options = parser(__doc__).parse_args()
    small = dict(topics)
    project = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    large = small | texts_of(sorted(project), ROOT)
    library = Path(sysconfig.get_paths()["stdlib"])
    for name, text in texts_of(sorted(library.glob("*.py")), library).items():
        if n_bytes(large) < LARGE_BYTES:
            large[name] = text
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in {"small": small, "large": large}.items():
            figures[name] = measure(name, texts, Path(folder))
    print_table("own text", figures)
    if options.record:
        record("own text", figures, ["own_text"], machine("AVX2"), "fp32")


def texts_of(files: Iterable[Path], root: Path) -> dict[str, str]:
    return {"-".join(file.relative_to(root).parts): file.read_text(encoding="utf-8") for file in files}


def n_bytes(texts: dict[str, str]) -> int:
    return sum(len(text.encode()) for text in texts.values())


def measure(name: str, texts: dict[str, str], folder: Path) -> dict[str, float]:
    """Trains on a folder of these texts, in an order that mixes their kinds, so that every kind is held out."""
    (folder / name).mkdir()
    for title, text in texts.items():
        file = f"{hashlib.sha256(title.encode()).hexdigest()[:8]}-{title}.txt"
        (folder / name / file).write_text(text, encoding="utf-8")
    overrides = [f"name={name}-run", f"corpus.files=[{name}/*.txt]", "train.precision=fp32"]
    pellucid("train", "own_text", *overrides, folder=folder)
    run = folder / "checkpoints" / f"{name}-run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    best, last = (
        json.loads(pellucid("evaluate", str(run), "--checkpoint", which, "--json", folder=folder))
        for which in ("best", "latest")
    )
    return {
        "MB": n_bytes(texts) / 1e6,
        "steps": last["step"],
        "minutes": rows[-1]["elapsed_seconds"] / 60,
        "best step": best["step"],
        "bits per byte": best["bits_per_byte"],
        "bits per byte at the last step": last["bits_per_byte"],
    }


def pellucid(*arguments: str, folder: Path) -> str:
    command = [sys.executable, "-m", "pellucid", *arguments]
    env = os.environ | AVX2
    return subprocess.run(command, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
