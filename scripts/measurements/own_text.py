"""configs/own_text.yaml on a tiny text, a small and a larger one, all made of what every checkout has at hand.

Remakes: own text
Takes: an hour
Needs: nothing

The tiny text is the first modules of the standard library, 60 kB and more. The small one is Python's reference (the
topics of `help()`), 466 kB in Python 3.11. The larger one adds this project's pages and code and, up to 5 MB, the
modules of the standard library. Trains in float32 with AVX2 alone, as computers do that have nothing better.

--runs names a folder that keeps the runs with their samples: those in it are continued, or only read if they have
ended. The run on the larger text can only be continued while the pages and the code stay as they are.
"""

import hashlib
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from pydoc_data.topics import topics

from results import ROOT, Entry, machine
from runs import AVX2, evaluation, pellucid

from pellucid.training.metrics import read_rows

TINY_BYTES, LARGE_BYTES = 60_000, 5_000_000


def measure(*, runs: Path = Path()) -> Iterator[Entry]:
    figures = {name: trained(runs / name, name, texts) for name, texts in three_texts(topics).items()}
    yield Entry("own text", figures, ["own_text"], machine("AVX2"), "fp32")


def three_texts(topics: dict[str, str]) -> dict[str, dict[str, str]]:
    """Tiny, small and large: texts by their titles."""
    project = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    large = topics | texts_of(sorted(project), ROOT)
    library = Path(sysconfig.get_paths()["stdlib"])
    tiny: dict[str, str] = {}
    for name, text in texts_of(sorted(library.glob("*.py")), library).items():
        if n_bytes(tiny) < TINY_BYTES:
            tiny[name] = text
        if n_bytes(large) < LARGE_BYTES:
            large[name] = text
    return {"tiny": tiny, "small": dict(topics), "large": large}


def texts_of(files: Iterable[Path], root: Path) -> dict[str, str]:
    return {"-".join(file.relative_to(root).parts): file.read_text(encoding="utf-8") for file in files}


def n_bytes(texts: dict[str, str]) -> int:
    return sum(len(text.encode()) for text in texts.values())


def write_texts(folder: Path, texts: dict[str, str]) -> None:
    """As files in an order that mixes their kinds, so that every kind is held out."""
    folder.mkdir()
    for title, text in texts.items():
        file = f"{hashlib.sha256(title.encode()).hexdigest()[:8]}-{title}.txt"
        (folder / file).write_text(text, encoding="utf-8")


def trained(run: Path, name: str, texts: dict[str, str]) -> dict[str, float]:
    write_texts(Path(f"{name}-text"), texts)
    overrides = [f"corpus.files=[{name}-text/*.txt]", "train.precision=fp32", "--run-dir", run, "--resume"]
    pellucid("train", "own_text", *overrides, environment=AVX2)
    best, last = (evaluation(run, "--checkpoint", which) for which in ("best", "latest"))
    return {
        "MB": n_bytes(texts) / 1e6,
        "steps": last["step"],
        "minutes": read_rows(run / "metrics.jsonl")[-1]["elapsed_seconds"] / 60,
        "best step": best["step"],
        "bits per byte": best["bits_per_byte"],
        "bits per byte at the last step": last["bits_per_byte"],
    }
