"""Stand-ins for other processes, for tests of scripts: commands and pools run in the tests' own process."""

import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pellucid.cli import main
from pellucid.config import load
from pellucid.config.run import RunConfig
from pellucid.runtime.processes import stop_signals

SMALL: dict[str, dict[str, Any]] = {
    "corpus": {"size": 40, "world_size": 3, "validation_fraction": 0.2},
    "tokenizer": {"vocab_size": 400},
    "model": {"context_length": 256, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32},
    "schedule": {"warmup_steps": 0},
    "adapter": {"rank": 2},
    "objective": {"group_size": 2, "max_new_tokens": 8},
    "train": {"steps": 4, "batch_size": 2},
    "checkpoint": {"every_steps": 2},
}
ALWAYS: dict[str, dict[str, Any]] = {
    "train": {"precision": "fp32"},
    "evaluation": {"max_tokens": 60},
    "sample": {"n_samples": 1, "max_new_tokens": 2},
}


def train_small(patch: pytest.MonkeyPatch) -> None:
    """Each config of a run that is read from now on becomes that of a tiny run, whatever the file and overrides say."""
    validated = load.validated

    def small(kind: Any, data: dict[str, Any], *rest: Any) -> Any:
        if kind is not RunConfig:
            return validated(kind, data, *rest)
        for name, values in SMALL.items():
            section = data.get(name) or {}
            section.update({key: value for key, value in values.items() if isinstance(section.get(key), (int, float))})
        for name, values in ALWAYS.items():
            data.setdefault(name, {}).update(values)
        return validated(kind, data, *rest)

    patch.setattr(load, "validated", small)


def pellucid(arguments: list[str]) -> None:
    """The command line. An assertion fails if it does."""
    handlers = {number: signal.getsignal(number) for number in stop_signals()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pellucid", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    logging.getLogger("pellucid").handlers.clear()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert not ended.value.code, arguments


def work(work: Callable[..., Any], *arguments: Any) -> Any:
    """As `runs.in_a_process`."""
    return work(*arguments)


class Command:
    """As subprocess.Popen of a command of `pellucid`, which ends before anyone looks twice."""

    def __init__(self, command: list[Any], **options: Any) -> None:
        pellucid(list(map(os.fspath, command[3:])))  # without `python -m pellucid`
        self.pid, self.returncode = os.getpid(), None

    def poll(self) -> int | None:
        before, self.returncode = self.returncode, 0
        return before
