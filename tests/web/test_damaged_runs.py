"""A run whose files are damaged takes nothing from the runs beside it: neither the page, nor the tours, nor news."""

import json
import logging
import shutil
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from pellucid.web.app import make_app
from pellucid.web.descriptions import describe
from pellucid.web.microscope import Microscope
from pellucid.web.news import news_of_all
from pellucid.web.runs import Runs
from pellucid.web.tours import Tours

ROW = b'{"step": 4, %s}\n'
DAMAGES = {
    "nothing": b"",
    "nested": b"[" * 100_000,
    "nested keys": b'{"a":' * 50_000,
    "no number": ROW % b'"val_loss": NaN',
    "infinite": ROW % b'"val_loss": 1e999',
    "long": ROW % b'"val_loss": 1' + b"0" * 400,
    "very long": ROW % b'"val_loss": 1' + b"0" * 5_000,
    "text": ROW % b'"val_loss": "x"',
    "list": ROW % b'"val_loss": [1]',
    "truth value": ROW % b'"val_loss": true',
    "skills": ROW % b'"val_loss": 1, "skills": 5',
    "a skill": ROW % b'"val_loss": 1, "skills": {"recall": {"accuracy": "x"}}',
    "half a character": ROW % b'"\\ud800": 1',
    "step": b'{"step": -1}\n{"step": true}\n{"step": 1e3}\n{"step": 1' + b"0" * 18 + b"}\n",
    "heading": b"## After " + b"9" * 5_000 + b" steps\n\n> x\n\n",
    "not UTF-8": b"\xff\xfe\x00",
    "a table of parts": b'{"x 32": {"knocked_out": NaN}}',
}
FILES = ("config.yaml", "metrics.jsonl", "samples.md", "tokenizer.json", "parts.json", "step-00000004/manifest.json")


@pytest.fixture(scope="module")
def damaged(fables_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(fables_run, tmp_path_factory.mktemp("beside") / "damaged"))


@pytest.fixture(scope="module")
def runs(damaged: Path, fables_run: Path) -> Runs:
    return Runs([damaged, fables_run])


@pytest.fixture(scope="module")
def alone(fables_run: Path) -> list[object]:
    """What is told of the intact run when it is the only one."""
    return [*Runs([fables_run]).described()["runs"], news_of_all({"fables": fables_run}, {})["fables"]]


@given(name=st.sampled_from(FILES), damage=st.sampled_from(sorted(DAMAGES)), is_added=st.booleans())
def test_whatever_a_file_of_one_run_holds_the_other_is_shown_as_if_it_were_alone(
    fables_run, damaged, runs, alone, name, damage, is_added
):
    file = damaged / name
    before = file.read_bytes() if file.exists() else None
    file.write_bytes((before or b"") * is_added + DAMAGES[damage])
    try:
        described = runs.described()["runs"]
        news = news_of_all(runs.folders, {})
        assert [*described[1:], news["fables"]] == alone
        assert "fables" in runs.configs()
        answers = [described, runs.metrics("damaged"), news]
        assert str(damaged) not in json.dumps(answers, ensure_ascii=False, allow_nan=False).encode().decode()
    finally:
        file.unlink() if before is None else file.write_bytes(before)


def test_the_tours_are_those_of_the_runs_whose_configs_can_be_read(fables_run, damaged):
    (damaged / "config.yaml").write_text("model: [")
    try:
        assert Tours(Microscope([damaged, fables_run])).listed() == Tours(Microscope([fables_run])).listed()
    finally:
        shutil.copy(fables_run / "config.yaml", damaged)


def app_of(*runs: Path) -> FastAPI:
    return make_app(runs, host="testserver")


def test_a_page_is_told_the_name_of_a_damaged_run_and_not_its_folder(fables_run, damaged):
    (damaged / "config.yaml").write_text("model: [")
    (damaged / "step-00000004" / "tokenizer.json").write_text("{")
    try:
        with TestClient(app_of(damaged, fables_run)) as client:
            described = client.get("/api/run").json()["runs"][0]
            unreadable = client.post("/api/trace", json={"checkpoint": "damaged@4", "text": ""})
    finally:
        for name in ("config.yaml", "step-00000004/tokenizer.json"):
            shutil.copy(fables_run / name, damaged / name)
    assert described["problem"].startswith("damaged/config.yaml:1: ")
    assert unreadable.status_code == 503
    assert unreadable.json()["error"]["message"].startswith("damaged/step-00000004")


def test_a_fault_of_ours_in_one_run_is_logged_and_told_at_that_run_alone(fables_run, damaged, monkeypatch, caplog):
    def failing(name: str, path: Path) -> object:
        if path == damaged:
            raise ZeroDivisionError("a fault of ours")
        return describe(name, path)

    monkeypatch.setattr("pellucid.web.runs.describe", failing)
    with caplog.at_level(logging.ERROR):
        ours, other = Runs([damaged, fables_run]).described()["runs"]
    assert (ours["problem"], "problem" in other) == ("a fault of ours", False)
    assert [record.getMessage() for record in caplog.records] == [f"{damaged} cannot be shown"]
