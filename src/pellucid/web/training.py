"""Trains a run while its page is open, in its own process, which saves and stops with the server."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pellucid.checkpoint.ownership import require_own
from pellucid.checkpoint.run_directory import is_locked, steps_in
from pellucid.config.run import RunConfig
from pellucid.runtime.processes import command_of


def why_not_to_train(config: RunConfig, run_dir: Path) -> str | None:
    """Why the run need not be trained: it is finished, or another process trains it; else None.

    Raises ConfigError as `require_own` does.
    """
    if is_locked(run_dir):
        return "another process trains here"
    steps = steps_in(run_dir)
    if not steps:
        require_own(run_dir)
    return f"trained already, {steps[-1]:,} steps" if steps and steps[-1] >= config.train.steps else None


@contextmanager
def training(config_file: Path, run_dir: Path) -> Iterator[None]:
    """Inside, the run is trained, or resumed; at the end of the block, training saves and stops.

    Its output goes to that of the server. Ctrl-C in the terminal reaches only the server, as a second signal would end
    the training before it could save. If the server is killed, the training stops as well.
    """
    process = subprocess.Popen(
        command_of("pellucid", "train-for-page", str(config_file), str(run_dir)),
        stdin=subprocess.PIPE,  # never written to; when it closes, the training stops: `stop_with_parent`
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()
