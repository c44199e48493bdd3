"""The configs and the demo that come with Pellucid: `fables` means configs/fables.yaml, `demo` a trained model."""

import re
from collections.abc import Iterator
from itertools import chain, takewhile
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_HOMES = (_PACKAGE, _PACKAGE.parents[1])  # configs/ lies in an installed package; in a checkout beside src/
SHIPPED = next((home / "configs" for home in _HOMES if (home / "configs").is_dir()), _PACKAGE / "configs")

DEMO = _PACKAGE / "demo"  # written by scripts/measure.py shipped_demo


def find_run(run: Path) -> Path:
    """The path itself; but `demo`, unless there is such a folder, means the trained demo that comes with Pellucid."""
    return DEMO if run == Path("demo") and not run.exists() else run


def find_config(file: Path) -> Path:
    """The file itself if it exists, or else the shipped config of that name: `fables`, `experiments/positions`."""
    if file.is_file() or file.is_absolute() or ".." in file.parts:
        return file
    name = file.relative_to("configs") if file.parts[:1] == ("configs",) else file
    candidates = (SHIPPED / name, SHIPPED / f"{name}.yaml")
    return next((path for path in candidates if path.suffix == ".yaml" and path.is_file()), file)


def find_rules(file: Path) -> Path:
    """The file itself if it exists, or else the shipped rules of that name: `weather`, `languages/weather`."""
    shipped = SHIPPED / "languages" / f"{file.stem}.rules"
    has_its_name = file.parent.as_posix() in (".", "languages", "configs/languages") and file.suffix in ("", ".rules")
    return shipped if has_its_name and shipped.is_file() and not file.exists() else file


def shipped_configs() -> Iterator[tuple[str, str]]:
    """The name and purpose (the first sentence of its comments) of each shipped config; experiments last."""
    files = (sorted(SHIPPED.glob(f"{folder}/*.yaml")) for folder in (".", "languages", "experiments"))
    for path in chain(*files):
        lines = path.read_text(encoding="utf-8").splitlines()[1:]  # the first one tells editors the schema
        comment = " ".join(line[2:] for line in takewhile(lambda line: re.match("# ?[^ ]", line), lines))
        yield path.relative_to(SHIPPED).with_suffix("").as_posix(), re.split(r"(?<=[.?!]) (?=[A-Z])", comment)[0]
