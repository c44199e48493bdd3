"""Pellucid's own commands, as measurements call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results import ROOT

FABLES = ROOT / "configs/fables.yaml"  # the demo
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def pellucid(*arguments: str | Path, folder: Path = Path(), environment: Mapping[str, str] | None = None) -> str:
    """What `pellucid …` prints, run in this folder by a process of its own."""
    command = [sys.executable, "-m", "pellucid", *arguments]
    environment = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def evaluation(run: str | Path, *options: str | Path, folder: Path = Path()) -> dict[str, Any]:
    """What `pellucid evaluate` says of a run."""
    found: dict[str, Any] = json.loads(pellucid("evaluate", run, "--json", *options, folder=folder))
    return found
