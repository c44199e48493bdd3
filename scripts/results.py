"""Every measured number stands once, in docs/results.json. Pages mark where they show it:

    <!-- result decoding/1 sequence/ratio -->3.7 times             a number, by its path in the entry's figures
    <!-- result decoding -->                                       the table below: a row and a column for each key
    <!-- result demo/evaluation -->                                the block of text below, line by line
    <!-- result experiments/lora_ranks/rank 1/mean/answers.obeys (%) -->28.0   a number of an experiment's results.csv,
                                                              by label, seed (or mean, lowest, highest), and column

    python scripts/results.py          writes the recorded numbers into all pages
    python scripts/results.py --age    lists what was committed since each entry was measured

An entry names its machine with the kernels that PyTorch uses there, the format of its numbers, its commit, and a hash
of each recipe that it comes from. A figure is as old as its commit; it is wrong once its recipe has changed.
A command is that of its commit: what then was scripts/measure_demo.py is `scripts/measure.py demo` now. A page rounds
as it likes: a number keeps the decimals that it is shown with. tests/test_results.py checks every mark.
"""

import argparse
import csv
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "docs" / "experiments"
RESULTS = Path(os.environ.get("RESULTS", ROOT / "docs" / "results.json"))  # another file while a GPU is measured

Entries = dict[str, Any]

MARK = r"(<!-- result ([^<>]+?) -->"
NUMBER = re.compile(MARK + r")(-?[\d,]*\.?\d+)")
TABLE = re.compile(MARK + r"\n+)((?:\|.*\n)+)")
TEXT = re.compile(MARK + r"\n+)((?: {4}.*\n|\n(?= {4}))+)")


class Entry(NamedTuple):
    """A measurement as it will stand in results.json.

    A time depends on the model's shape but not on what it learns: its recipe is named with "/shape", as "fables/shape".
    """

    name: str
    figures: dict[str, Any]
    recipes: Iterable[str] = ()  # the shipped configs that it comes from
    where: str | None = None  # this machine
    numbers: str | None = None  # its best number format


def record(entry: Entry, commit: str | None = None) -> None:
    """Writes what was just measured into results.json, as of the commit that the measurement began with, or of now.

    Exits if code is not committed.
    """
    import torch  # here, as to fill in pages takes none

    commit = commit_of_code() if commit is None else commit
    entries = read()
    entries[entry.name] = {
        "machine": entry.where or machine(),
        "numbers": entry.numbers or number_format(),
        "pytorch": torch.__version__.partition("+")[0],
        "date": date.today().isoformat(),
        "commit": commit,
        "command": _command(),
        "recipes": {recipe: recipe_hash(recipe, commit) for recipe in entry.recipes},
        "figures": json.loads(json.dumps(entry.figures), parse_float=_rounded),
    }
    write(entries)


def _rounded(digits: str) -> float:
    """Five digits of what was measured; a count is exact."""
    value = float(digits)
    return value if value.is_integer() else float(f"{value:.5g}")


def write(entries: Entries, file: Path | None = None) -> None:
    """Writes them into results.json, or another file, in the order of their names."""
    text = json.dumps(dict(sorted(entries.items())), indent=1, ensure_ascii=False)
    (file or RESULTS).write_text(f"{text}\n", encoding="utf-8")


def commit_of_code() -> str:
    """The commit that holds the code and the recipes of now. Exits if none does.

    Empty in a copy without git, as on a GPU: its figures get a commit when `scripts/gpu.py` takes them home.
    """
    if not (ROOT / ".git").exists():
        return ""
    if changed := _output("git", "status", "--porcelain", "--", "src", "scripts", "configs"):
        sys.exit(f"error: --record: not committed:\n{changed}\nA figure names the commit that it was measured at.")
    return _output("git", "rev-parse", "--short=7", "HEAD")


def recipe_hash(name: str, commit: str = "") -> str:
    """The hash of what a shipped config trains and evaluates, on what and how, as it is now or was at a commit.

    It ignores comments, and how often the run reports, saves or evaluates, unless the loss decides when it ends.
    With "/shape" after the name, it is the hash of the model, the vocabulary and the batch alone.
    """
    import yaml  # here, as `scripts/gpu.py` says what is missing

    stem, is_shape = name.removesuffix("/shape"), name.endswith("/shape")
    file = f"configs/{stem}.yaml"
    config = yaml.safe_load(_output("git", "show", f"{commit}:{file}") if commit else (ROOT / file).read_text("utf-8"))
    if is_shape:
        config = {key: config[key] for key in ("model", "tokenizer", "data")} | {"rows": config["train"]["batch_size"]}
    learned = {key: value for key, value in config.items() if key not in ("name", "sample", "checkpoint")}
    learned.get("train", {}).pop("log_every_steps", None)
    evaluation = learned.get("evaluation", {})
    if not evaluation.keys() & {"stop_at_val_loss", "early_stopping_patience"}:
        evaluation.pop("every_steps", None)
    learned = {key: value for key, value in learned.items() if value != {}}
    return hashlib.sha256(json.dumps(learned, sort_keys=True).encode()).hexdigest()[:12]


def print_figures(name: str, figures: dict[str, Any]) -> None:
    """Prints rows that have the same columns as a table, each part that has parts below its name, the rest as lines."""
    rows = {key: value for key, value in figures.items() if isinstance(value, dict) and not _has_parts(value)}
    for _, group in groupby(rows, key=lambda row: list(rows[row])):
        print_table(name, {row: rows[row] for row in group})
    for key, value in figures.items():
        if isinstance(value, list):
            print(f"\n{name}: {key}", *value, sep="\n")
        elif not isinstance(value, dict):
            print(f"{name}: {key}: {_printed(value)}")
        elif _has_parts(value):
            print_figures(f"{name}: {key}", value)


def _has_parts(figures: dict[str, Any]) -> bool:
    return any(isinstance(value, (dict, list)) for value in figures.values())


def print_table(name: str, figures: dict[str, dict[str, Any]]) -> None:
    """The figures as a page would show them: a row and a column for each key."""
    columns = list(next(iter(figures.values())))
    print(f"\n| {name} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for row, numbers in figures.items():
        print(f"| {row} | {' | '.join(map(_printed, numbers.values()))} |", flush=True)


def _printed(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def read() -> Entries:
    entries: Entries = json.loads(RESULTS.read_text(encoding="utf-8"))
    return entries


def here(name: str) -> str:
    """The entry's name with the kind of this machine: `training_gpu`, `training_avx2`; the plain name: with bf16 units.

    For what pages show for several kinds, side by side.
    """
    import torch

    if torch.cuda.is_available():
        return f"{name}_gpu"
    return name if number_format() == "bf16" else f"{name}_{torch.backends.cpu.get_cpu_capability().lower()}"


def number_format() -> str:
    """The format of `precision: auto`, but fp32 where ATEN_CPU_CAPABILITY=avx2 asks for an ordinary machine."""
    import torch

    if torch.cuda.is_available():
        return "bf16" if _has_bf16("cuda") else "fp32"
    return "bf16" if _has_bf16("cpu") and torch.backends.cpu.get_cpu_capability() != "AVX2" else "fp32"


def _has_bf16(device: str) -> bool:
    import torch

    from pellucid.runtime.precision import has_bf16_hardware  # here, as to fill in pages takes no package

    return has_bf16_hardware(torch.device(device))


def machine(kernels: str | None = None) -> str:
    """This machine as pages name it: `2 cores, AMD EPYC with bf16 units (AVX512)`, or `4 cores, Intel Xeon (AVX2)`.

    In brackets the kernels that PyTorch uses, unless others are given.
    """
    import torch

    cpuinfo = Path("/proc/cpuinfo")
    cpu = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""  # Linux
    model = re.search(r"^model name\s*: (.*?)(?: @.*)?$", cpu, re.MULTILINE)
    name = model[1] if model else platform.processor() or platform.machine()
    name = name.replace("(R)", "").replace(" Processor", "")
    kernels = kernels or torch.backends.cpu.get_cpu_capability()
    if _has_bf16("cpu") and kernels != "AVX2":
        name, kernels = f"{name} with bf16 units", "AMX" if "amx_bf16" in cpu else kernels
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    n = torch.get_num_threads()
    return f"{n} core{'s' * (n > 1)}, {name} ({kernels}){gpu}"


def _command() -> str:
    """The command as it would be typed in the repository, whatever folder that and other files are in."""
    name = Path(sys.argv[0]).name
    named = ["python", f"scripts/{name}"] if (ROOT / "scripts" / name).exists() else [name]
    return shlex.join([*named, *(Path(word).name if word.startswith("/") else word for word in sys.argv[1:])])


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def filled(page: str, entries: Entries) -> str:
    """The page with every marked number, table and text as recorded. Raises KeyError for what is not recorded."""
    page = NUMBER.sub(lambda mark: mark[1] + _as_shown(figure(mark[2], entries), mark[3]), page)
    page = TABLE.sub(lambda mark: mark[1] + _table(figure(mark[2], entries), mark[3]), page)
    return TEXT.sub(lambda mark: mark[1] + _block(figure(mark[2], entries)), page)


def figure(path: str, entries: Entries) -> Any:
    """The figure at `entry/key/key`, or one of an experiment's results.csv."""
    name, *keys = path.split("/")
    if name == "experiments":
        return figure_of_experiment(keys[0], "/".join(keys[1:-2]), *keys[-2:])
    value = entries[name]["figures"]
    for key in keys:
        value = value[key]
    return value


def figure_of_experiment(name: str, label: str, which: str, column: str) -> float:
    """A figure of the runs with this label: of `seed N`, or their mean, lowest or highest; in per cent after " (%)".

    Raises KeyError for what is not in its results.csv.
    """
    scale = 100 if column.endswith(" (%)") else 1
    rows = [row for row in rows_of_experiment(name) if row["label"] == label]
    of_seed = {f"seed {row['seed']}": scale * float(row[column.removesuffix(" (%)")]) for row in rows}
    if not of_seed:
        raise KeyError(f"{name} has no run {label!r}")
    several = {"mean": mean, "lowest": min, "highest": max}
    return float(several[which](of_seed.values())) if which in several else of_seed[which]


@cache
def rows_of_experiment(name: str) -> list[dict[str, str]]:
    """The rows of an experiment's results.csv."""
    with (EXPERIMENTS / name / "results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _as_shown(value: float | str | None, shown: str) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,.{len(shown.partition('.')[2])}f}"
    return value or ""


def _table(figures: dict[str, dict[str, Any]], table: str) -> str:
    """Each cell by the first cell of its row and the header of its column."""
    first, ruler, *lines = table.splitlines()
    header, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in [first, *lines])
    if [name for name, *_ in rows] != list(figures):
        raise KeyError(f"the table's rows are {[name for name, *_ in rows]}, recorded are {list(figures)}")
    new = [first, ruler]
    for name, *cells in rows:
        numbers = [_as_shown(figures[name][key], cell) for key, cell in zip(header[1:], cells, strict=True)]
        new.append(f"| {' | '.join([name, *numbers])} |")
    return "\n".join(new) + "\n"


def _block(lines: list[str]) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def pages() -> list[Path]:
    """All Markdown of the repository."""
    return [ROOT / name for name in _output("git", "ls-files", "*.md").splitlines()]


def pages_that_show(entry: str) -> list[str]:
    """The pages with a mark of an entry, or of its like on another kind of machine."""
    mark = re.compile(rf"<!-- result {re.escape(entry)}(_gpu|_avx2|_avx512)?[ /]")
    return [page.relative_to(ROOT).as_posix() for page in pages() if mark.search(page.read_text(encoding="utf-8"))]


def print_ages(entries: Entries) -> None:
    """Prints for each entry how many later commits changed src, and which ones its own script and recipes."""
    for name, entry in entries.items():
        since, scripts = f"{entry['commit']}..", programs_of(entry["command"])
        try:
            n = _output("git", "rev-list", "--count", since, "--", "src")
        except subprocess.CalledProcessError:
            print(f"{name}: {entry['commit']} of {entry['date']}, which is not in the history here")
            continue
        print(f"{name}: {entry['commit']} of {entry['date']}, {n} commits to src since")
        if own := [*scripts, *(f"configs/{recipe.partition('/')[0]}.yaml" for recipe in entry["recipes"])]:
            for line in _output("git", "log", "--format=%h %s", since, "--", *own).splitlines():
                print(f"    {line}")


def programs_of(command: str) -> list[str]:
    """The files of the script that a command runs. Older ones, which name no measurement, are found in the history."""
    named = re.findall(r"scripts/measure\.py (\w+)", command)
    return [f"scripts/measurements/{name}.py" for name in named] or re.findall(r"scripts/\w+\.py", command)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--age", action="store_true", help="list what was committed since each entry")
    entries = read()
    if arguments.parse_args().age:
        print_ages(entries)
        return
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text, entries)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: numbers replaced")


if __name__ == "__main__":
    main()
