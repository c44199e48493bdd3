"""The news of training runs for the page, which asks for them once a second, from the files in their folders.

The training process does not take part, and the server keeps nothing between two questions: each answer has a mark,
`seen`, of what it contains. The page sends the mark with its next question, and the answer has what is new since.
"""

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from pellucid.checkpoint.run_directory import is_locked
from pellucid.files import require_regular
from pellucid.training.metrics import Row, row_in
from pellucid.web.descriptions import Json, steps_of

MOST_BYTES_OF_SAMPLES = 1 << 18  # of a longer samples.md only the end is shown
MARK = re.compile(r"(\d{1,15})-\d+")


def news_routes(runs: Mapping[str, Path]) -> APIRouter:
    """The route `/api/news`: what is new in these runs. A question has for each run what the page has seen of it."""
    routes, looking = APIRouter(), Lock()  # of two looks at once, each would take the other for the run's training

    @routes.get("/api/news")
    def news(request: Request) -> JSONResponse:
        with looking:
            return JSONResponse({"runs": news_of_all(runs, request.query_params)})

    return routes


def news_of_all(runs: Mapping[str, Path], seen: Mapping[str, str]) -> dict[str, Json]:
    """The news of each run whose files can be read. Of the others, `Runs.described` says what is wrong."""
    news = {}
    for name, run_dir in runs.items():
        with suppress(OSError):
            news[name] = news_of(run_dir, seen.get(name, ""))
    return news


def news_of(run_dir: Path, seen: str = "") -> Json:
    """The state of a run, and of its logs what is new since `seen`, which is of an answer before; "" means all.

    goes_on: whether the rows follow those of the answer before; else the log was cut back, and these are all rows.
    samples: all texts that the run wrote, as [{step, texts}], the oldest first; only if they have changed.
    """
    if not run_dir.is_dir():
        return {"is_there": False, "is_training": False, "goes_on": True, "rows": [], "seen": ""}
    mark, _, version = seen.partition(" ")
    goes_on, rows, mark = rows_since(run_dir / "metrics.jsonl", mark)
    samples, version = samples_since(run_dir / "samples.md", version)
    return {
        "is_there": True,
        "is_training": is_locked(run_dir),
        "config": version_of(run_dir / "config.yaml"),
        "checkpoints": steps_of(run_dir),
        "goes_on": goes_on,
        "rows": rows,
        **({} if samples is None else {"samples": samples}),
        "seen": f"{mark} {version}",
    }


def rows_since(log: Path, mark: str) -> tuple[bool, list[Row], str]:
    """Whether a log begins with what is marked as seen; the rows after that, or else all; and the new mark.

    A mark is the length in bytes and a checksum of the log as it was read. A line without an end is being written.
    """
    content = _content(log)
    content = content[: content.rfind(b"\n") + 1]
    length = int(match[1]) if (match := MARK.fullmatch(mark)) else 0
    goes_on = _mark(content[:length]) == mark
    rows = map(row_in, content[length if goes_on else 0 :].splitlines())
    return goes_on, [row for row in rows if row is not None], _mark(content)


def _content(log: Path) -> bytes:
    if not log.exists():
        return b""
    require_regular(log)
    return log.read_bytes()


def _mark(content: bytes) -> str:
    return f"{len(content)}-{zlib.crc32(content)}"


def samples_since(file: Path, version: str) -> tuple[list[Json] | None, str]:
    """The texts in samples.md and their version; None if that is still the same, or the last text is being written."""
    now = version_of(file)
    if now == version:
        return None, version
    samples = read_samples(file) if now else []
    return (None, version) if samples is None else (samples, now)


def version_of(file: Path) -> str:
    """Another text whenever a file has been written; "" while there is none."""
    if not file.exists():
        return ""
    stat = file.stat()
    return f"{stat.st_mtime_ns}-{stat.st_size}"


def read_samples(samples_file: Path) -> list[Json] | None:
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
