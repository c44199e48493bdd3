"""Serves runs on disk as models that are ready to write, and reloads them when they change."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pellucid.checkpoint.run_directory import find_step_directory, step_directories, steps_in
from pellucid.checkpoint.step_directory import MANIFEST
from pellucid.errors import PellucidError
from pellucid.trained import TrainedModel, load_trained_run
from pellucid.web.openai.engine_thread import EngineThread
from pellucid.web.openai.metrics import Totals
from pellucid.web.runs import named

SECONDS_BETWEEN_CHECKS = 1.0


@dataclass(frozen=True)
class Served:
    """A checkpoint and the thread that writes with it."""

    name: str  # of its run, as on the page
    trained: TrainedModel
    engine: EngineThread
    loaded_at: int  # seconds since 1970


class ServedRun:
    """A served run: its best checkpoint, or the named one, loaded again when the folder changes.

    So a run can be served while it trains (at first with its newest snapshot), and one that is gone for a while is
    served again when it is back.
    """

    def __init__(self, name: str, run: Path, checkpoint: str = "best") -> None:
        self._name, self._run, self._checkpoint = name, run, checkpoint
        self.totals = Totals()
        self._served: Served | None = None
        self._error: PellucidError | None = None
        self._seen: object = None  # the folder's state when it was loaded
        self._checked_at = -SECONDS_BETWEEN_CHECKS
        self._lock = asyncio.Lock()

    async def current(self) -> Served:
        """The current model. CheckpointError if there is none: the folder is gone, still empty, or damaged."""
        async with self._lock:
            if time.monotonic() - self._checked_at >= SECONDS_BETWEEN_CHECKS:
                before = self._served
                await asyncio.to_thread(self._check)
                self._checked_at = time.monotonic()
                if before is not None and before is not self._served:
                    before.engine.close()
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it would collect the frames of every request
        assert self._served is not None
        return self._served

    def close(self) -> None:
        if self._served is not None:
            self._served.engine.close()

    def _check(self) -> None:
        """Load the checkpoint if it has changed. Current requests keep their model."""
        seen = self._folder_state()
        if seen == self._seen:
            return
        try:
            trained, precision = load_trained_run(self._directory())
        except PellucidError as error:
            self._error, self._seen = error, seen
            return
        engine = EngineThread(trained.model, trained.tokenizer, precision, self.totals)
        self._served = Served(self._name, trained, engine, int(time.time()))
        self._error, self._seen = None, seen

    def _directory(self) -> Path:
        folders = step_directories(self._run)
        if self._checkpoint in ("best", "latest") and folders and not steps_in(self._run):
            return folders[-1]
        return find_step_directory(self._run, self._checkpoint)

    def _folder_state(self) -> object:
        """A value that changes when a checkpoint or snapshot is added, removed or replaced; faster than reading one."""
        manifests = []
        for folder in step_directories(self._run):
            with suppress(OSError):
                stat = (folder / MANIFEST).stat()
                manifests.append((folder, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return manifests


def served_runs(paths: Sequence[Path], checkpoint: str = "best") -> dict[str, ServedRun]:
    """The runs at these paths by their names. Each is loaded at its first request."""
    return {name: ServedRun(name, path, checkpoint) for name, path in named(paths).items()}
