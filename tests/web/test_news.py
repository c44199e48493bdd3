"""What a page is told about a folder while a run grows in it, goes and comes back."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pellucid.checkpoint.run_directory import is_locked, locked
from pellucid.checkpoint.snapshots import write_snapshot
from pellucid.checkpoint.step_directory import write_checkpoint
from pellucid.training import metrics
from pellucid.training.logs import cut_back_logs
from pellucid.web.news import news_of, news_routes
from tiny_checkpoint import tiny_checkpoint, tiny_state
from tiny_run import TINY_RUN


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


class Asking:
    """Asks for news of a run as a page does, each time with what it was told before."""

    def __init__(self, run: Path) -> None:
        self.run, self.seen = run, ""

    def news(self) -> dict:
        news = news_of(self.run, self.seen)
        self.seen = news["seen"]
        return news


def steps_of(news: dict) -> list[int]:
    return [row["step"] for row in news["rows"]]


def test_the_first_answer_tells_everything_and_the_next_only_the_state(run: Path):
    asking = Asking(run)
    first = asking.news()
    assert (first["is_there"], first["is_training"], first["checkpoints"]) == (True, False, [0, 10])
    old, new = {"step": 5, "texts": ["Old."]}, {"step": 10, "texts": ["One.\n\nTwo.", "Three."]}
    assert first["samples"] == [old, new]
    assert (first["goes_on"], steps_of(first)) == (False, [5, 10])
    state = {key: first[key] for key in ("is_there", "is_training", "config", "checkpoints", "seen")}
    assert asking.news() == {**state, "goes_on": True, "rows": []}


def test_what_is_added_is_told_once_and_a_row_only_when_it_is_whole(run: Path):
    asking = Asking(run)
    asking.news()
    log(run, 15)
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 20, "train_')
    write_checkpoint(run, tiny_checkpoint(step=15))
    now = asking.news()
    assert (now["goes_on"], steps_of(now), now["checkpoints"]) == (True, [15], [0, 10, 15])
    assert "samples" not in now
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('loss": 0.05}\n')
    assert asking.news()["rows"] == [{"step": 20, "train_loss": 0.05}]


def test_texts_are_told_when_they_are_written_to_the_end(run: Path):
    asking = Asking(run)
    asking.news()
    with (run / "samples.md").open("a") as stream:
        stream.write("## After 20 steps\n\n> The fo")
    assert "samples" not in asking.news()
    with (run / "samples.md").open("a") as stream:
        stream.write("x.\n\n")
    samples = asking.news()["samples"]
    assert [moment["step"] for moment in samples] == [5, 10, 20]
    assert samples[-1]["texts"] == ["The fox."]


@pytest.mark.parametrize("again", [(), (7,), (7, 9, 11, 13)], ids=["cut", "one more", "longer than before"])
def test_rows_that_a_resume_cut_back_are_all_told_anew(run: Path, again):
    asking = Asking(run)
    asking.news()
    cut_back_logs(run, tiny_state(), 5)
    log(run, *again)
    now = asking.news()
    assert (now["goes_on"], steps_of(now)) == (False, [5, *again])


def test_logs_that_are_deleted_hold_nothing(run: Path):
    asking = Asking(run)
    asking.news()
    for name in ("metrics.jsonl", "samples.md"):
        (run / name).unlink()
    now = asking.news()
    assert (now["goes_on"], now["rows"], now["samples"]) == (False, [], [])
    assert asking.news()["goes_on"]


def test_a_folder_that_vanishes_is_told_and_one_that_comes_back_is_told_whole(run: Path, tmp_path: Path):
    asking = Asking(run)
    first = asking.news()
    run.rename(tmp_path / "away")
    assert not asking.news()["is_there"]
    assert asking.news()["rows"] == []
    shutil.copytree(tmp_path / "away", run)
    assert asking.news() == first


def test_a_folder_is_waited_for_and_then_its_config(tmp_path: Path):
    asking = Asking(tmp_path / "run")
    assert not asking.news()["is_there"]
    (tmp_path / "run").mkdir()
    before = asking.news()
    (tmp_path / "run" / "config.yaml").write_text(TINY_RUN)
    assert (before["is_there"], asking.news()["config"] != before["config"]) == (True, True)


def test_the_lock_tells_whether_the_run_is_training_and_asking_makes_none(run: Path):
    assert not news_of(run)["is_training"]
    assert not (run / ".lock").exists()
    with locked(run):
        assert news_of(run)["is_training"]
    assert not news_of(run)["is_training"]


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


def test_pages_that_ask_at_once_take_no_other_for_the_training(run: Path, tmp_path: Path):
    with locked(run):
        pass
    app = FastAPI()
    app.include_router(news_routes({"run": run, "none": tmp_path / "none"}))
    with TestClient(app) as client, ThreadPoolExecutor(8) as pages:
        answers = list(pages.map(lambda _: client.get("/api/news").json()["runs"], range(64)))
    assert {(each["run"]["is_training"], each["none"]["is_there"]) for each in answers} == {(False, False)}
    seen = {"run": answers[0]["run"]["seen"]}
    assert client.get("/api/news", params=seen).json()["runs"]["run"]["goes_on"]


@pytest.mark.parametrize("seen", ["x", "9-9 ", "-1-0", "9" * 5_000 + "-1 1", " "])
def test_what_no_answer_said_is_told_everything(run: Path, seen):
    assert news_of(run, seen) == news_of(run)
