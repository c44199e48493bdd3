"""Pellucid's commands, and work in processes of its own, as measurements call them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from results import ROOT

FABLES = ROOT / "configs/fables.yaml"  # the demo
# PyTorch's own kernels and those of its libraries, held to what an ordinary CPU has.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2"} | dict.fromkeys(
    ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "FBGEMM_ENABLE_INSTRUCTIONS"), "AVX2"
)


def pellucid(*arguments: str | Path, folder: Path = Path(), environment: Mapping[str, str] | None = None) -> str:
    """Runs `pellucid …` in this folder, in a process of its own, and returns what it prints."""
    command = [sys.executable, "-m", "pellucid", *arguments]
    environment = {**os.environ, **(environment or {})}
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def evaluation(run: str | Path, *options: str | Path, folder: Path = Path()) -> dict[str, Any]:
    """The scores that `pellucid evaluate` gives a run."""
    scores: dict[str, Any] = json.loads(pellucid("evaluate", run, "--json", *options, folder=folder))
    return scores


def in_a_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """The work's value. Its process is its own: with it end its threads, its memory and what it has compiled."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


@contextmanager
def served(serve: Callable[..., None], *arguments: Any) -> Iterator[int]:
    """The port of a server: serve(*arguments, listening) in a process of its own. Whoever is early waits for it."""
    from pellucid.web.server import listen

    with listen("127.0.0.1", 0) as listening:
        process = get_context("spawn").Process(target=serve, args=(*arguments, listening), daemon=True)
        process.start()
        port: int = listening.getsockname()[1]
    try:
        yield port
    finally:
        process.terminate()
        process.join()


def at_once(n: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """The value of work(rank, n, *arguments) in the first of n processes of one thread each, as JSON gives it back."""
    from torch.multiprocessing.spawn import spawn

    with TemporaryDirectory() as folder:
        spawn(one_of, (n, Path(folder), work, arguments), nprocs=n)
        return json.loads(Path(folder, "value.json").read_text(encoding="utf-8"))


def one_of(rank: int, n: int, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=(folder / "meet").as_uri(), rank=rank, world_size=n)
    value = work(rank, n, *arguments)
    if rank == 0:
        (folder / "value.json").write_text(json.dumps(value), encoding="utf-8")
    dist.destroy_process_group()
