"""All tests as other computers run them: other kernels, threads and orders, and beside a busy process, as a table.

    python scripts/everywhere.py                 an hour or two; rows already measured at this commit are not run again
    python scripts/everywhere.py --only 3        one row, again
    python scripts/everywhere.py tests/model     what else is given goes to pytest

Each setting comes with and without the busy process, and no two rows share two of the others. The kernels of PyTorch,
oneDNN and MKL are those of a CPU with AVX2, say, and no more. Output and JUnit files are left in .everywhere/.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import torch
from measurements.neighbours import busy_processes
from results import ROOT
from runs import AVX2

KERNELS = {
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "avx2": AVX2,
    "default": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}


class Row(NamedTuple):
    kernels: str
    threads: int
    order: int  # the seed of pytest-randomly
    is_beside: bool


ROWS = {
    1: Row("avx512", 1, 1, False),
    2: Row("avx2", 2, 2, False),
    3: Row("default", 4, 3, False),
    4: Row("avx512", 2, 3, True),
    5: Row("avx2", 4, 1, True),
    6: Row("default", 1, 2, True),
}


class Outcome(NamedTuple):
    passed: int
    failed: list[str]
    skipped: int
    minutes: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", type=int, choices=ROWS, metavar="ROW", help="one row, even if it is done")
    options, for_pytest = arguments.parse_known_args()
    has = {"avx512": torch.cpu._is_avx512_supported(), "avx2": torch.cpu._is_avx2_supported(), "default": True}
    folder = ROOT / ".everywhere" / commit()
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    print("| row | kernels | threads | order | beside | passed | failed | skipped | minutes |\n|" + "---|" * 9)
    for number, row in ROWS.items():
        if options.only not in (None, number):
            continue
        settings = f"| {number} | {row.kernels} | {row.threads} | {row.order} | {'busy' if row.is_beside else ''} |"
        if not has[row.kernels]:
            print(f"{settings} this CPU has none | | | |")
            continue
        file = folder / f"{number}.xml"
        if options.only or for_pytest or folder.name.endswith("-dirty") or not file.exists():
            run(row, file, for_pytest)
        done = outcome(file)
        failed += [f"row {number}: {name}" for name in done.failed]
        print(f"{settings} {done.passed} | {len(done.failed)} | {done.skipped} | {done.minutes:.1f} |", flush=True)
    print("", *failed, sep="\n")
    sys.exit(bool(failed))


def commit() -> str:
    """The present commit, with `-dirty` if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run(row: Row, file: Path, for_pytest: list[str]) -> None:
    """Runs the tests, which write `file` as they end; what pytest prints stands beside it."""
    file.unlink(missing_ok=True)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(row.threads))
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]
    command += ["-p", "randomly", f"--randomly-seed={row.order}", "--randomly-dont-reset-seed", f"--junit-xml={file}"]
    with file.with_suffix(".txt").open("wb") as output, busy_processes(row.is_beside):
        environment = {**os.environ, **KERNELS[row.kernels], **threads}
        subprocess.run(
            [*command, *for_pytest], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )


def outcome(file: Path) -> Outcome:
    """Counts the tests in a JUnit file. Without one pytest itself has failed."""
    if not file.exists():
        return Outcome(0, [f"pytest broke off; see {file.with_suffix('.txt')}"], 0, 0.0)
    [suite] = ElementTree.parse(file).getroot()
    cases = suite.findall("testcase")
    failed = [name_of(case) for case in cases if {"failure", "error"} & {each.tag for each in case}]
    skipped = sum(case.find("skipped") is not None for case in cases)
    passed = len(cases) - len(failed) - skipped
    return Outcome(passed, failed, skipped, float(suite.get("time", 0)) / 60)


def name_of(case: ElementTree.Element) -> str:
    """The name of a test, as pytest takes it."""
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


if __name__ == "__main__":
    main()
