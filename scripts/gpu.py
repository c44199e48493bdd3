"""Runs what needs an NVIDIA GPU: the tests marked cuda, then measurements, in less than ten minutes (`make gpu`).

    python scripts/gpu.py --to FOLDER [--text tinyshakespeare.txt] [--nanogpt FOLDER] [--only tests demo]
    python scripts/gpu.py --take FOLDER       later, elsewhere: copies the figures into docs/results.json

Each part is a process with a time limit. If one fails, the next begins all the same. After each part report.md and
gpu.json (figures, as in docs/results.json) are written anew. Exit code 1 if a part failed, 2 if there is no GPU.
"""

import argparse
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from results import ROOT, Entries, commit_of_code, machine, write

MINUTES = 9.5
LEAST_SECONDS = 20  # with less left no part begins
RUNTIME = ("torch", "numpy", "pydantic", "yaml", "tokenizers", "safetensors", "filelock", "tqdm", "typing_extensions")
COMMAND = (*RUNTIME, "typer", "huggingface_hub", "matplotlib")
OPTIONAL = {  # packages, and what is lost without them
    "fastapi": "the tests of the server's engine are skipped",
    "datasets": "no corpus of the hub can be prepared; nothing here does",
}
LAST_LINES = 25  # of a part that failed, in the report


class Part(NamedTuple):
    name: str
    command: list[str]
    seconds: float  # at most
    needs: Sequence[str]  # packages
    lacks: str = ""  # why it cannot run, if that is known before


class Outcome(NamedTuple):
    part: Part
    result: str  # "done", "failed: …", "skipped: …"
    seconds: float = 0.0
    log: str = ""


def cuda_tests() -> list[str]:
    """The files with tests that need a GPU: the others would need more packages to be collected."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if "mark.cuda" in file.read_text(encoding="utf-8") or "on_device" in file.parts]


def parts_of(text: Path | None, nanogpt: Path | None) -> list[Part]:
    def measure(*arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "scripts/measure.py"), *arguments, "--record"]

    # A warning of another version of a package is no error there, and every test has a line of its own.
    options = "-m cuda -v -o addopts=--import-mode=importlib -W default --tb=short -p no:cacheprovider"
    pytest = [sys.executable, "-m", "pytest", *cuda_tests(), *options.split()]
    beside = [] if nanogpt is None else ["--nanogpt", str(nanogpt.resolve())]
    no_text = "" if text else "--text FILE was not given, and there is no network to fetch tiny Shakespeare"
    return [
        Part("tests", pytest, 240, (*COMMAND, "pytest", "hypothesis")),
        Part("gpt2", measure("gpt2", *beside), 240, COMMAND),
        Part("demo", measure("demo", "--here-only", "--seeds", "1"), 240, COMMAND),
        Part("speedrun", measure("shakespeare", str(text and text.resolve())), 150, COMMAND, no_text),
        Part("decoding", measure("benchmark", "decoding", "--pairs", "3"), 120, (*COMMAND, "transformers")),
        Part("preparation", measure("preparation", "--megabytes", "200"), 90, COMMAND),
    ]


def missing(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]


def run(parts: Sequence[Part], folder: Path, minutes: float) -> Iterator[Outcome]:
    """One after the other, each within its own time and what is left of all."""
    ends = time.monotonic() + 60 * minutes
    for part in parts:
        seconds = min(part.seconds, ends - time.monotonic())
        if part.lacks:
            yield Outcome(part, f"skipped: {part.lacks}")
        elif absent := missing(part.needs):
            yield Outcome(part, f"skipped: this Python lacks {', '.join(absent)}")
        elif seconds < LEAST_SECONDS:
            yield Outcome(part, f"skipped: less than {LEAST_SECONDS} s were left; --only {part.name} runs it")
        else:
            yield run_part(part, folder, seconds)


def run_part(part: Part, folder: Path, seconds: float) -> Outcome:
    """Runs one part. All processes that it has started end with it."""
    environment = {"RESULTS": str(folder / "gpu.json"), "PYTHONUNBUFFERED": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    started, log = time.monotonic(), folder / f"{part.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
            result = "done" if code == 0 else f"failed: exit code {code}"
        except subprocess.TimeoutExpired:
            result = f"failed: not done in {seconds:.0f} s"
        finally:
            end_all_of(process)
    return Outcome(part, result, time.monotonic() - started, log.read_text(encoding="utf-8", errors="replace"))


def end_all_of(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def facts_of_machine() -> list[str]:
    """Lines of the report: this machine and its Python."""
    import torch

    return [
        machine(),
        f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}",
        f"commit: {commit_of_code() or 'a copy without git'}",
        *(f"{name} is missing: {cost}" for name, cost in OPTIONAL.items() if missing([name])),
    ]


def report(facts: Sequence[str], outcomes: Sequence[Outcome], entries: Entries) -> str:
    lines = ["# What a GPU says", "", *(f"- {fact}" for fact in facts), ""]
    lines += ["| part | result | seconds |", "|---|---|---:|"]
    lines += [f"| {each.part.name} | {each.result} | {each.seconds:.0f} |" for each in outcomes]
    for each in outcomes:
        if each.part.name == "tests" and each.log:
            tests = re.findall(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED)", each.log, re.MULTILINE)
            counts = Counter(result.lower() for _, result in tests)
            lines += ["", "Tests: " + ", ".join(f"{n} {result}" for result, n in counts.items()), ""]
            lines += [f"- {result.lower()}: {name}" for name, result in tests if result != "PASSED"]
    for name, entry in entries.items():
        lines += ["", f"## {name}", "", entry["machine"], ""]
        lines += [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry["figures"].items()]
    for each in outcomes:
        if each.result.startswith("failed"):
            lines += ["", f"## {each.part.name} failed", ""]
            lines += [f"    {line}" for line in each.log.splitlines()[-LAST_LINES:]]
    return "\n".join(lines) + "\n"


def take(folder: Path, results: Path) -> list[str]:
    """Copies the figures of a folder into `results`, and returns their names. Without a commit they get this one."""
    new = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))
    for entry in new.values():
        entry["commit"] = entry["commit"] or commit_of_code()
    write({**json.loads(results.read_text(encoding="utf-8")), **new}, results)
    return sorted(new)


def no_gpu() -> str | None:
    """Why nothing can be measured here."""
    if missing(["torch"]):
        return "this Python has no PyTorch; name one that has it, as `make gpu PYTHON=/usr/bin/python3`"
    import torch

    if torch.cuda.is_available():
        return None
    fix = "run it where there is one, or rehearse it: `pytest tests/test_gpu.py tests/on_device`"
    return f"PyTorch {torch.__version__} finds no NVIDIA GPU; {fix}"


def main(make_parts: Callable[..., list[Part]] = parts_of) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("gpu"), help="the folder for report.md, gpu.json and the logs")
    parser.add_argument("--text", type=Path, help="tiny Shakespeare, for the speedrun")
    parser.add_argument("--nanogpt", type=Path, help="a folder with nanoGPT's model.py")
    parser.add_argument("--only", nargs="+", default=[], help="these parts alone")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--take", type=Path, help="take the figures of this folder into docs/results.json")
    options = parser.parse_args()
    if options.take:
        names = take(options.take, ROOT / "docs" / "results.json")
        fix = "show each on a page (README, docs/speed.md), then `python scripts/results.py`"
        print(f"taken: {', '.join(names)}; {fix}")
        return 0
    if why := no_gpu():
        print(f"error: gpu: {why}", file=sys.stderr)
        return 2
    parts = make_parts(options.text, options.nanogpt)
    names = [part.name for part in parts]
    if unknown := set(options.only) - set(names):
        print(f"error: --only: no part {', '.join(unknown)}; choose among {', '.join(names)}", file=sys.stderr)
        return 2
    options.to.mkdir(parents=True, exist_ok=True)
    folder, facts, outcomes = options.to.resolve(), facts_of_machine(), []
    (folder / "gpu.json").write_text("{}", encoding="utf-8")
    print("\n".join(facts), flush=True)
    for outcome in run([part for part in parts if part.name in (options.only or [part.name])], folder, options.minutes):
        outcomes.append(outcome)
        print(f"{outcome.part.name}: {outcome.result} ({outcome.seconds:.0f} s)", flush=True)
        entries = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))
        (folder / "report.md").write_text(report(facts, outcomes, entries), encoding="utf-8")
    return int(any(outcome.result.startswith("failed") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
