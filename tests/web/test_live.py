"""What a page is told about a folder while a run grows in it, goes and comes back."""

import asyncio
import json
import shutil
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pellucid.checkpoint.run_directory import is_locked, locked
from pellucid.checkpoint.snapshots import write_snapshot
from pellucid.checkpoint.step_directory import write_checkpoint
from pellucid.training import metrics
from pellucid.training.logs import cut_back_logs
from pellucid.web import live
from pellucid.web.errors import install_errors
from pellucid.web.live import Event, Tail, Watch, Watcher
from serving import served
from tiny_checkpoint import tiny_checkpoint, tiny_state
from tiny_run import TINY_RUN

GONE = Event("state", {"is_there": False, "is_training": False, "step": None, "steps": None})


def log(run: Path, *steps: int) -> None:
    for step in steps:
        metrics.append_row(run / "metrics.jsonl", {"step": step, "train_loss": 1 / step})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder as it is after ten steps: rows, texts, a checkpoint and two snapshots."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(TINY_RUN)
    log(run, 5, 10)
    (run / "samples.md").write_text(
        "## After 5 steps\n\n> Old.\n\n## After 10 steps\n\n> One.\n> \n> Two.\n\n> Three.\n\n"
    )
    write_checkpoint(run, tiny_checkpoint(step=10))
    for step in (0, 10):
        write_snapshot(run, tiny_checkpoint(step=step))
    return run


def told(watcher: Watcher) -> dict:
    return {event.type: event.data for event in watcher.look()}


def test_the_first_look_tells_everything_and_the_next_nothing(run: Path):
    watcher = Watcher(run)
    first = told(watcher)
    assert first["state"] == {"is_there": True, "is_training": False, "step": 10, "steps": 20}
    assert first["checkpoint"] == {"steps": [0, 10]}
    old, new = {"step": 5, "texts": ["Old."]}, {"step": 10, "texts": ["One.\n\nTwo.", "Three."]}
    assert first["samples"] == {"moments": [old, new]}
    assert first["metrics"]["after"] is None
    assert [row["step"] for row in first["metrics"]["rows"]] == [5, 10]
    assert watcher.look() == []


def test_what_is_added_is_told_once_and_a_row_only_when_it_is_whole(run: Path):
    watcher = Watcher(run)
    watcher.look()
    log(run, 15)
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 20, "train_')
    write_checkpoint(run, tiny_checkpoint(step=15))
    now = told(watcher)
    assert now.keys() == {"metrics", "state", "checkpoint"}
    assert (now["metrics"]["after"], [row["step"] for row in now["metrics"]["rows"]]) == (10, [15])
    assert (now["state"]["step"], now["checkpoint"]["steps"]) == (15, [0, 10, 15])
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('loss": 0.05}\n')
    assert told(watcher)["metrics"] == {"after": 15, "rows": [{"step": 20, "train_loss": 0.05}]}


def test_texts_are_told_when_they_are_written_to_the_end(run: Path):
    watcher = Watcher(run)
    watcher.look()
    with (run / "samples.md").open("a") as stream:
        stream.write("## After 20 steps\n\n> The fo")
    assert watcher.look() == []
    with (run / "samples.md").open("a") as stream:
        stream.write("x.\n\n")
    now = told(watcher)
    assert now.keys() == {"samples"}
    assert [moment["step"] for moment in now["samples"]["moments"]] == [5, 10, 20]
    assert now["samples"]["moments"][-1]["texts"] == ["The fox."]


@pytest.mark.parametrize("again", [(), (7,), (7, 9, 11, 13)], ids=["cut", "one more", "longer than before"])
def test_rows_that_a_resume_cut_back_are_all_told_anew(run: Path, again):
    watcher = Watcher(run)
    watcher.look()
    cut_back_logs(run, tiny_state(), 5)
    log(run, *again)
    now = told(watcher)
    assert now["metrics"]["after"] is None
    assert [row["step"] for row in now["metrics"]["rows"]] == [5, *again]
    assert now["state"]["step"] == max(5, *again, 5)


def test_a_log_that_is_deleted_has_no_rows(run: Path):
    tail = Tail(run / "metrics.jsonl")
    assert tail.read()[0]
    (run / "metrics.jsonl").unlink()
    assert tail.read() == (False, [])
    assert tail.read() == (True, [])


def test_a_folder_that_vanishes_is_told_and_one_that_comes_back_is_told_whole(run: Path, tmp_path: Path):
    watcher = Watcher(run)
    first = told(watcher)
    run.rename(tmp_path / "away")
    assert watcher.look() == [GONE]
    assert watcher.look() == []
    shutil.copytree(tmp_path / "away", run)
    assert told(watcher) == first


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path):
    watcher = Watcher(tmp_path / "run")
    assert watcher.look() == [GONE]
    (tmp_path / "run").mkdir()
    assert told(watcher)["state"] == {"is_there": True, "is_training": False, "step": None, "steps": None}


def test_a_config_that_is_half_written_tells_no_steps_yet(run: Path):
    (run / "config.yaml").write_text(TINY_RUN[: len(TINY_RUN) // 2])
    watcher = Watcher(run)
    assert told(watcher)["state"]["steps"] is None
    (run / "config.yaml").write_text(TINY_RUN)
    assert told(watcher)["state"]["steps"] == 20


def test_the_lock_tells_whether_the_run_is_training(run: Path):
    watcher = Watcher(run)
    watcher.look()
    with locked(run):
        assert told(watcher)["state"]["is_training"]
    assert not told(watcher)["state"]["is_training"]


def test_asking_whether_a_run_is_training_keeps_none_from_starting(run: Path):
    """The question takes the lock for an instant. Here a thread asks without a pause while runs start."""
    with locked(run):
        pass
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            is_locked(run)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(20):
            with locked(run):
                pass
    finally:
        stop.set()
        asking.join()


def test_asking_makes_no_lock_where_there_was_none(run: Path):
    assert not is_locked(run)
    assert not (run / ".lock").exists()


async def next_of(events: AsyncIterator[Event], n: int) -> list[Event]:
    return [await events.__anext__() for _ in range(n)]


def test_events_of_several_runs_come_with_their_names(run: Path, tmp_path: Path):
    watch = Watch({"a": run, "b": tmp_path / "none"}, seconds=0)
    events = asyncio.run(next_of(watch.events(), 5))
    assert [(event.data["run"], event.type) for event in events] == [
        *(("a", kind) for kind in ("metrics", "state", "checkpoint", "samples")),
        ("b", "state"),
    ]


def test_one_task_looks_for_all_who_listen_from_the_first_to_the_last(run: Path):
    async def listen() -> None:
        watch = Watch({"run": run}, seconds=0.01)
        for step in (15, 20):
            first, *others = (watch.events() for _ in range(3))
            everything = await next_of(first, 4)
            assert [await next_of(each, 4) for each in others] == [everything] * 2
            log(run, step)
            [change] = {str(await next_of(each, 2)) for each in (first, *others)}
            assert f"'step': {step}" in change
            assert len(asyncio.all_tasks()) == 2
            for each in (first, *others):
                await each.aclose()
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(listen())


def test_if_nobody_can_look_any_more_the_events_end_so_that_a_page_asks_again(run: Path, monkeypatch):
    def fails(_watcher: Watcher) -> list[Event]:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Watcher, "look", fails)
    monkeypatch.setattr(live._log, "exception", lambda *_: None)

    async def listen() -> list[Event]:
        return [event async for event in Watch({"run": run}).events()]

    assert asyncio.run(listen()) == []


def test_too_many_listeners_are_sent_away_with_when_to_come_back(run: Path, monkeypatch):
    monkeypatch.setattr(live, "MOST_LISTENERS", 1)
    app = FastAPI()
    app.include_router(live.event_routes({"run": run}))
    install_errors(app)
    with served(app) as (host, port), httpx.Client(base_url=f"http://{host}:{port}", timeout=60) as client:
        with client.stream("GET", "/api/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("event: ")
            refused = client.get("/api/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["message"] == "1 page listens already; close one, or ask again later"


def test_one_reading_serves_all_who_come_at_once(run: Path, monkeypatch):
    readings, changes = [], live._changes
    monkeypatch.setattr(live, "_changes", lambda watchers: readings.append(0) or changes(watchers))

    async def listen() -> None:
        watch = Watch({"run": run}, seconds=600)
        first, *others = (watch.events() for _ in range(30))
        everything = await next_of(first, 4)
        assert await asyncio.gather(*(next_of(each, 4) for each in others)) == [everything] * 29
        assert len(readings) == 2
        for each in (first, *others):
            await each.aclose()

    asyncio.run(listen())


def test_of_many_who_come_at_once_only_as_many_are_let_in_as_may_listen(run: Path, monkeypatch):
    monkeypatch.setattr(live, "MOST_LISTENERS", 10)
    app = FastAPI()
    app.include_router(live.event_routes({"run": run}))
    install_errors(app)
    with served(app) as address, ExitStack() as clients:
        asking = [clients.enter_context(socket.create_connection(address, timeout=60)) for _ in range(30)]
        for client in asking:
            client.sendall(b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answers = [client.recv(12, socket.MSG_WAITALL)[-3:] for client in asking]
    assert sorted(answers) == [b"200"] * 10 + [b"503"] * 20


def test_the_route_sends_events_that_a_browser_reads(run: Path, monkeypatch):
    async def two(_watch):
        yield Event("state", {"run": "run", "step": 1})
        yield Event("checkpoint", {"run": "run", "steps": [0, 1]})

    monkeypatch.setattr(Watch, "events", two)
    app = FastAPI()
    app.include_router(live.event_routes({"run": run}))
    with TestClient(app) as client:
        answer = client.get("/api/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    fields = [dict(line.split(": ", 1) for line in each.splitlines()) for each in answer.text.strip().split("\r\n\r\n")]
    assert [(each["event"], json.loads(each["data"])["run"]) for each in fields] == [
        ("state", "run"),
        ("checkpoint", "run"),
    ]
