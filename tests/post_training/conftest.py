"""A policy that learns from its answers, and the run that it starts from: what tests of GRPO begin with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.runs.train_run import train_run


def quietly(config: RunConfig, folder: Path, run: str, *, resume: bool = False) -> None:
    train_run(config, folder / "data", folder / run, resume=resume, overwrite=False, note=lambda line: None)


@contextmanager
def reader_and_policy(folder: Path, reader: str, policy: Sequence[str]) -> Iterator[Path]:
    """The folder, in which the run `reader` and then `policy`, which starts from it, have been trained."""
    (folder / "reader.yaml").write_text(reader)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        quietly(load_run_config(Path("reader.yaml")), folder, "reader")
        quietly(load_run_config(Path("reader.yaml"), policy), folder, "policy")
        yield folder
