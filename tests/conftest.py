"""Shared by the tests: a tiny run on disk, and the command line as a function."""

import functools
import gc
import logging
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from matplotlib.figure import Figure

from pellucid.cost.machine import Machine, measure_machine
from pellucid.runtime.processes import stop_signals
from tiny_run import TINY_RUN, VERSES, Result

# Examples are the same on every run, so that a red test stays red until it is fixed; no deadline on noisy machines.
settings.register_profile("pellucid", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("soak", settings.get_profile("pellucid"), max_examples=100)
settings.load_profile("pellucid")
for name in ("NO_PROXY", "no_proxy"):  # the tests' own servers are not asked through a proxy
    os.environ[name] = ",".join([*filter(None, [os.environ.get(name)]), "127.0.0.1", "localhost"])
N_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(N_THREADS)
DRAW = Figure.draw
gc.disable()  # until all tests are collected: imports make many objects, and all of them stay


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let neither the numbers that a test draws, nor the threads that add them up, depend on the tests before it."""
    torch.set_num_threads(N_THREADS)  # a forecast of an experiment leaves it at the threads of one run
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def blank_figures() -> Iterator[None]:
    """Figures are made and saved, but blank, unless a test has `ink`: half of a tiny run's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.draw", lambda self, renderer: None)
        yield


@pytest.fixture
def ink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn."""
    monkeypatch.setattr("matplotlib.figure.Figure.draw", DRAW)


@functools.cache
def measured_once(device: torch.device, dtype: torch.dtype) -> Machine:
    return measure_machine(device, dtype)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a small corpus and a config that trains on it in a second."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text(VERSES)
    (tmp_path / "tiny.yaml").write_text(TINY_RUN)
    return tmp_path


@pytest.fixture(scope="session")
def tiny_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, the config and the finished run `base` of tiny_run.py, to be read or to be copied."""
    from pellucid.config.load import load_run_config
    from pellucid.runs.train_run import train_run

    place = tmp_path_factory.mktemp("tiny")
    (place / "corpus.txt").write_text(VERSES)
    (place / "tiny.yaml").write_text(TINY_RUN)
    config = load_run_config(place / "tiny.yaml", [f"corpus.files=[{place / 'corpus.txt'}]"])
    train_run(config, place / "data", place / "base", resume=False, overwrite=False, note=lambda line: None)
    return place


@pytest.fixture(scope="session")
def untrained_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `checkpoints` with the configs alone of the runs that others start from."""
    from pellucid.config.load import load_run_config, run_config_to_yaml

    place = tmp_path_factory.mktemp("configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        configs = {"fables": "fables", "instructions_sft": "instructions_sft", "hops_optional": "languages/hops"}
        for name, config in configs.items():
            run = place / "checkpoints" / name
            run.mkdir(parents=True)
            changes = ["corpus.thoughts=optional", "model.context_length=66"] if name == "hops_optional" else []
            (run / "config.yaml").write_text(run_config_to_yaml(load_run_config(Path(config), changes)), "utf-8")
    return place / "checkpoints"


@pytest.fixture
def trained_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untrained_checkpoints: Path) -> None:
    """In an empty folder, the configs of the runs that others start from, as training them would have left."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(untrained_checkpoints, tmp_path / "checkpoints")


@pytest.fixture
def pellucid(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`pellucid("train", "tiny.yaml")` as typed in a shell, but in this process."""
    from pellucid.cli import main

    monkeypatch.setattr("pellucid.cost.machine.measure_machine", measured_once)

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pellucid", *map(str, arguments)])
        handlers = {number: signal.getsignal(number) for number in stop_signals()}
        with pytest.raises(SystemExit) as ended:
            main()
        logging.getLogger("pellucid").handlers.clear()  # it writes to a stream that is closed after this test
        for number, handler in handlers.items():
            signal.signal(number, handler)
        out, err = capfd.readouterr()
        return Result(ended.value.code or 0, out, err)

    return run


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> bool:
    """True in the long form: `make soak`."""
    return bool(request.config.getoption("--soak", default=False))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the long form (make soak)")
    parser.addoption("--record", action="store_true", help="with --soak: write its table into docs/results.json")
    parser.addoption("--lessons-in-full", action="store_true", help="the long blocks of the lessons too (make lessons)")


# Rooms whose tests share what takes seconds to start (a browser, a server of processes, transformers): for one worker.
TOGETHER = {"distributed": "faults", **{room: room for room in ("exchange", "faults", "inspection", "web")}}


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Each worker takes a file at a time, or a whole room. (xdist's own groups are lost on pytest 9.2, in silence.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByRoom(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return TOGETHER.get(file.split("/")[1], file)

    return ByRoom(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU: make gpu"))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--soak", default=False):
        settings.load_profile("soak")
