"""Live events of training runs for the page, from the files in their folders.

The training process does not take part: a single task looks at its files, twice a second, while any pages listen. An
event gives the current state, not only a change, so a page that missed some events is right again after the next.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from os import stat_result
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from fastapi import APIRouter
from sse_starlette import EventSourceResponse, JSONServerSentEvent
from starlette.types import Receive, Scope, Send

from pellucid.checkpoint.run_directory import is_locked, step_directories
from pellucid.config.load import load_run_config
from pellucid.errors import ConfigError
from pellucid.training.metrics import Row, row_in
from pellucid.web.errors import ApiError

SECONDS_BETWEEN_LOOKS = 0.5
MOST_LISTENERS = 256  # each holds a connection
MOST_BYTES_OF_SAMPLES = 1 << 18  # of a longer samples.md only the end is shown
Read = TypeVar("Read")
_log = logging.getLogger(__name__)


class Event(NamedTuple):
    """An event of one of four types, with its data.

    state: {is_there, is_training, step, steps}; the last logged step, and the planned number, if known.
    metrics: {after, rows}; these rows replace all after that step (all rows, if it is None).
    checkpoint: {steps}; those with weights.   samples: {moments}, each {step, texts}, the oldest first.
    """

    type: Literal["state", "metrics", "checkpoint", "samples"]
    data: dict[str, Any]


class Watcher:
    """Watches a run's folder for changes. The folder may vanish and come back, or be replaced."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._has_failed = False
        self._forget()

    def _forget(self) -> None:
        self._rows = Tail(self._run_dir / "metrics.jsonl")
        self._planned = Cached(self._run_dir / "config.yaml", planned_steps)
        self._samples = Cached(self._run_dir / "samples.md", read_samples)
        self._step: int | None = None
        self._sent: dict[str, Any] = {}

    def look(self) -> list[Event]:
        """The changes since the last look; at the first one, everything."""
        try:
            return self._look()
        except Exception as error:  # whatever its files hold, the other runs are shown
            # OSError: the folder has just vanished, or is unreadable. The next successful look reports everything.
            if not (isinstance(error, OSError) or self._has_failed):
                self._has_failed = True
                _log.exception("%s cannot be watched", self._run_dir)
            self._forget()
            return []

    def _look(self) -> list[Event]:
        if not self._run_dir.is_dir():
            was_there = self._sent.get("state", {}).get("is_there", True)
            self._forget()
            self._sent["state"] = {"is_there": False, "is_training": False, "step": None, "steps": None}
            return [Event("state", self._sent["state"])] if was_there else []
        events = []
        is_same_file, rows = self._rows.read()
        if rows or not is_same_file:
            events.append(Event("metrics", {"after": self._step if is_same_file else None, "rows": rows}))
            self._step = rows[-1]["step"] if rows else None
        state = {"is_there": True, "is_training": is_locked(self._run_dir), "step": self._step}
        steps = {int(path.name.removeprefix("step-")) for path in step_directories(self._run_dir)}
        now = {"state": {**state, "steps": self._planned.read()}, "checkpoint": {"steps": sorted(steps)}}
        if moments := self._samples.read():
            now["samples"] = {"moments": moments}
        events += [Event(kind, data) for kind, data in now.items() if self._sent.get(kind) != data]  # type: ignore[arg-type]
        self._sent = now
        return events


class Tail:
    """Reads the rows of a growing file, each once. A last line without an end is still being written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._n_bytes, self._last_line = 0, b""

    def read(self) -> tuple[bool, list[Row]]:
        """True and the new rows; or, if the file is not the one that was read before, False and all its rows.

        That happens after a resume, which cuts the file back: then the last line read is not in its place.
        """
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._n_bytes - len(self._last_line))
                new = stream.read()
                if is_same := new.startswith(self._last_line):
                    new = new[len(self._last_line) :]
                else:
                    self._n_bytes = stream.seek(0)
                    new = stream.read()
        except FileNotFoundError:
            is_same, new = self._n_bytes == 0, b""
            self._n_bytes, self._last_line = 0, b""
        lines = [line for line in new.splitlines(keepends=True) if line.endswith(b"\n")]
        self._n_bytes += sum(map(len, lines))
        self._last_line = lines[-1] if lines else self._last_line if is_same else b""
        return is_same, [row for line in lines if (row := row_in(line)) is not None]


class Cached:
    """The cached contents of a file, read again when the file has changed."""

    def __init__(self, file: Path, reader: Callable[[Path], Read | None]) -> None:
        self._file, self._reader = file, reader
        self._cached: tuple[tuple[int, int], Any] | None = None

    def read(self) -> Any:
        """The contents, as `reader` returns them; None if there is no such file, or nothing in it yet."""
        try:
            now = _version(self._file.stat())
            if self._cached is None or self._cached[0] != now:
                self._cached = (now, self._reader(self._file))
        except FileNotFoundError:
            return None
        return self._cached[1]


def _version(stat: stat_result) -> tuple[int, int]:
    return stat.st_mtime_ns, stat.st_size


def planned_steps(config_file: Path) -> int | None:
    """The planned number of steps; None while the file is being written."""
    try:
        return load_run_config(config_file).train.steps
    except ConfigError:
        return None


def read_samples(samples_file: Path) -> list[dict[str, Any]] | None:
    """The texts in samples.md as [{step, texts}]; None while the last ones are being written."""
    with samples_file.open("rb") as stream:
        stream.seek(max(0, samples_file.stat().st_size - MOST_BYTES_OF_SAMPLES))
        content = stream.read().decode("utf-8", "replace")
    _, *moments = re.split(r"^## After (\d{1,18}) steps\n\n", content, flags=re.MULTILINE)
    if not moments or not content.endswith("\n\n"):
        return None
    return [
        {"step": int(step), "texts": _unquoted(quoted)}
        for step, quoted in zip(moments[::2], moments[1::2], strict=True)
    ]


def _unquoted(quoted: str) -> list[str]:
    texts = quoted.rstrip("\n").split("\n\n")
    return [re.sub(r"^> ?", "", text, flags=re.MULTILINE) for text in texts]


class Watch:
    """Events of these runs for all listeners. One task looks, while there are any."""

    def __init__(self, runs: Mapping[str, Path], seconds: float = SECONDS_BETWEEN_LOOKS) -> None:
        self._runs, self._seconds = runs, seconds
        self._listeners: set[asyncio.Queue[Event | None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._to_read: asyncio.Task[list[Event]] | None = None  # which has not begun
        self._reading = asyncio.Lock()

    async def events(self) -> AsyncIterator[Event]:
        """The current state, then changes, each with the name of its run. They end only if watching fails."""
        news: asyncio.Queue[Event | None] = asyncio.Queue()
        self._listeners.add(news)
        try:
            if self._looking is None:
                self._looking = asyncio.create_task(self._look())  # its first look reports everything
            else:
                for event in await self._everything():
                    yield event
            while (event_or_end := await news.get()) is not None:
                yield event_or_end
        finally:
            self._listeners.remove(news)
            if not self._listeners and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _everything(self) -> list[Event]:
        """The current state, from a reading that begins later than this call; all who come until then share it."""
        if self._to_read is None:
            self._to_read = asyncio.create_task(self._read())
        return await asyncio.shield(self._to_read)

    async def _read(self) -> list[Event]:
        async with self._reading:
            self._to_read = None
            return await asyncio.to_thread(_changes, self._watchers())

    def _watchers(self) -> dict[str, Watcher]:
        return {name: Watcher(run_dir) for name, run_dir in self._runs.items()}

    async def _look(self) -> None:
        watchers = self._watchers()
        try:
            while True:
                for event in await asyncio.to_thread(_changes, watchers):
                    self._tell(event)
                await asyncio.sleep(self._seconds)
        except Exception:  # a bug: a page whose events end connects again
            _log.exception("watching failed")
            self._looking = None
            self._tell(None)

    def _tell(self, event: Event | None) -> None:
        for news in self._listeners:
            news.put_nowait(event)


def _changes(watchers: Mapping[str, Watcher]) -> list[Event]:
    return [
        Event(event.type, {"run": name, **event.data}) for name, watcher in watchers.items() for event in watcher.look()
    ]


class Stream(EventSourceResponse):
    """Events for one listener. It counts as open before its first event is read, so that many at once are too many."""

    def __init__(self, events: AsyncIterator[Event], open_streams: set["Stream"]) -> None:
        super().__init__(JSONServerSentEvent(event.data, event=event.type) async for event in events)
        self._open_streams = open_streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._open_streams.add(self)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open_streams.discard(self)


def event_routes(runs: Mapping[str, Path]) -> APIRouter:
    """The route `/api/events`: events of these runs, as server-sent events."""
    routes, watch = APIRouter(), Watch(runs)
    open_streams: set[Stream] = set()

    @routes.get("/api/events")
    async def events() -> EventSourceResponse:
        if len(open_streams) >= MOST_LISTENERS:
            pages = "page listens" if len(open_streams) == 1 else "pages listen"
            raise ApiError(503, f"{len(open_streams)} {pages} already; close one, or ask again later")
        return Stream(watch.events(), open_streams)

    return routes
