"""`pellucid serve`: what it refuses, what it serves while a run comes and goes, and how it ends."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from pellucid.checkpoint.run_directory import is_locked, steps_in
from pellucid.checkpoint.step_directory import read_checkpoint, step_name
from pellucid.cli import serving
from pellucid.web import server
from pellucid.web.app import STATIC, make_app
from pellucid.web.descriptions import PARTS
from serving import GIVES_UP_AFTER_SECONDS, served


def refused(result, exit_code: int, *words: str) -> None:
    assert (result.exit_code, result.stderr.count("\n")) == (exit_code, 1), result
    for word in ("error: ", *words):
        assert word in result.stderr


def test_a_port_that_is_in_use_is_told_in_one_line(fables_run, pellucid):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(pellucid("serve", fables_run, "--port", port), 5, f"127.0.0.1:{port}", "--port")
    refused(pellucid("serve", fables_run, "--host", "nowhere.invalid"), 5, "nowhere.invalid", "as --host")


def test_what_is_no_run_is_told_in_one_line(tmp_path: Path, fables_run, pellucid):
    refused(pellucid("serve", tmp_path / "none", "--port", 0), 4, "no such run", "--train")
    refused(pellucid("serve", tmp_path, "--port", 0), 4, "no run here")
    refused(pellucid("serve", fables_run, "--checkpoint", "3", "--port", 0), 4, "use best, latest or a step: 2, 4")
    refused(pellucid("serve", fables_run, tmp_path, "--train", "debug"), 2, "--train is for one RUN")


@pytest.mark.parametrize(("options", "shown"), [((), ""), (("--checkpoint", "2"), "#checkpoint=fables%402")])
def test_the_address_is_printed_and_opened_with_the_checkpoint_that_was_asked_for(
    fables_run, pellucid, monkeypatch, options, shown
):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(server, "run", lambda app, listening: listening.close())
    done = pellucid("serve", fables_run, "--port", 0, "--open", *options)
    assert done.exit_code == 0, done
    assert done.stdout.startswith("http://127.0.0.1:")
    assert done.stdout.endswith(f"/{shown}\n")
    assert opened == [done.stdout.strip()]
    assert "there is no password" not in done.stderr


@pytest.mark.parametrize("host", ["", "0", "0.0.0.0"])
def test_all_addresses_however_they_are_written_are_opened_at_this_machine_and_at_its_own_without_a_password(
    fables_run, pellucid, monkeypatch, host
):
    statuses = []
    monkeypatch.setattr(serving, "_own_address", lambda: "192.0.2.7")

    def ask(app, listening):
        asked = {"host": "192.0.2.7:80"}  # another machine knows the server by an address
        statuses.append(TestClient(app, headers=asked).head("/health").status_code)
        listening.close()

    monkeypatch.setattr(server, "run", ask)
    done = pellucid("serve", fables_run, "--port", 0, "--host", host)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", done.stdout), done
    assert "there is no password" in done.stderr
    assert "; others open http://192.0.2.7:" in done.stderr
    assert statuses == [200]


def test_with_class_other_machines_are_sent_to_the_pupils_page(fables_run, pellucid, monkeypatch):
    answers = []
    monkeypatch.setattr(serving, "_own_address", lambda: "192.0.2.7")

    def ask(app, listening):
        assert listening.getsockname()[0] == "0.0.0.0"
        pupil = TestClient(app, headers={"host": "192.0.2.7:80"}, client=("192.0.2.9", 5000))
        answers.extend(pupil.get(path).status_code for path in ("/class", "/"))
        listening.close()

    monkeypatch.setattr(server, "run", ask)
    done = pellucid("serve", fables_run, "--port", 0, "--class")
    port = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", done.stdout)[1]
    said = f"the class opens http://192.0.2.7:{port}/class, and can reach nothing else; its board is "
    assert done.stderr == f"{said}http://127.0.0.1:{port}/class/board\n"
    assert answers == [200, 403]


def test_with_class_an_address_that_is_given_is_kept(fables_run, pellucid, monkeypatch):
    listened = []
    monkeypatch.setattr(server, "run", lambda app, listening: listened.append(listening.getsockname()[0]))
    done = pellucid("serve", fables_run, "--port", 0, "--class", "--host", "127.0.0.1")
    assert done.exit_code == 0, done
    assert listened == ["127.0.0.1"]


def test_what_the_page_leaves_out_of_a_model_of_another_kind_is_said_at_the_start(
    fables_run, lstm_run, pellucid, monkeypatch
):
    monkeypatch.setattr(server, "run", lambda app, listening: None)
    done = pellucid("serve", fables_run, lstm_run, "--port", 0)
    assert done.exit_code == 0, done
    parts = "Attention, Logit lens, Inside one step, Knock out"
    why = "this kind of model (lstm) has no attention heads and no residual stream"
    assert done.stderr == f"{lstm_run}: the page leaves out {parts}: {why}\n"
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert dict(re.findall(r'<h2 id="h-(\w+)"><b>\d?</b> ?(.*?)</h2>', page)).items() >= PARTS.items()


def test_a_run_whose_config_cannot_be_read_leaves_the_others_served(fables_run, tmp_path, pellucid, monkeypatch):
    monkeypatch.setattr(server, "run", lambda app, listening: None)
    (tmp_path / "config.yaml").write_text("name: [")
    done = pellucid("serve", fables_run, tmp_path, "--port", 0)
    assert (done.exit_code, done.stderr) == (0, ""), done


def test_a_run_that_is_trained_already_is_not_trained_again(fables_run, tmp_path, pellucid, monkeypatch):
    """Nor one of fewer steps than its recipe has, as `make demo` makes on a slow machine."""
    monkeypatch.setattr(server, "run", lambda app, listening: None)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text((fables_run / "config.yaml").read_text().replace("steps: 4", "steps: 100000"))
    for config in (fables_run / "config.yaml", recipe):
        done = pellucid("serve", fables_run, "--port", 0, "--train", config)
        assert done.exit_code == 0, done
        assert "trained already, 4 steps" in done.stderr
    assert serving.config_for_page(recipe, fables_run).train.steps == 4, "also if it was interrupted"
    assert serving.config_for_page(recipe, tmp_path).train.steps == 100_000


def test_f30_a_folder_that_goes_is_an_error_in_one_line_until_it_is_back(fables_run, tmp_path: Path):
    run = tmp_path / "fables"
    shutil.copytree(fables_run, run)
    with (
        served(make_app([run])) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", timeout=GIVES_UP_AFTER_SECONDS) as client,
    ):
        asked = {"checkpoint": "fables@4", "text": "There was"}

        def is_there() -> bool:
            return client.get("/api/news").json()["runs"]["fables"]["is_there"]

        assert is_there()
        before = client.post("/api/logits", json=asked).json()
        run.rename(tmp_path / "away")
        assert not is_there()
        for answer in (client.get("/api/run"), client.post("/api/logits", json=asked)):
            assert (answer.status_code, "\n" in answer.text) == (503, False)
            assert "this folder is gone" in answer.json()["error"]["message"]
        (tmp_path / "away").rename(run)
        assert is_there()
        assert client.post("/api/logits", json=asked).json() == before
        assert client.get("/api/run").status_code == 200


def test_a_server_that_is_stopped_while_it_writes_says_nothing_of_it():
    """uvicorn logs this of an answer that it cuts off."""
    said = "ASGI callable returned without completing response."
    assert not server.is_fault(logging.makeLogRecord({"msg": said, "levelno": logging.ERROR}))
    assert server.is_fault(logging.makeLogRecord({"msg": "something else", "levelno": logging.ERROR}))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_server_that_trains_shows_it_from_the_first_step_and_leaves_a_run_to_resume(
    fables_run, tmp_path, number, soak
):
    """Its process is stopped while a page listens, or killed, and with it the training, which saves."""
    if number != signal.SIGTERM and not soak:
        pytest.skip("long: part of `make soak`")
    config = (fables_run / "config.yaml").read_text().replace("steps: 4", "steps: 100000")
    (tmp_path / "long.yaml").write_text(config.replace("snapshots: 0", "snapshots: 9"))
    shutil.copytree(fables_run.parent / "data", tmp_path / "data")
    words = [sys.executable, "-m", "pellucid", "serve", "run", "--port", "0", "--train", "long.yaml"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=errors)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        give_up = time.monotonic() + GIVES_UP_AFTER_SECONDS
        with httpx.Client(base_url=url, timeout=GIVES_UP_AFTER_SECONDS) as page:
            while not (saved := page.get("/api/news").json()["runs"]["run"].get("checkpoints")):
                assert time.monotonic() < give_up, (tmp_path / "errors").read_text()
                time.sleep(0.1)
            assert saved[0] == 0
            assert page.get("/api/run").json()["runs"][0]["checkpoints"][0]["id"] == "run@0"
            process.send_signal(number)
            expected = -number if number == signal.SIGKILL else 128 + number
            assert process.wait(GIVES_UP_AFTER_SECONDS) == expected, (tmp_path / "errors").read_text()
    finally:
        process.kill()
        process.stdout.close()  # not read to its end: the training has it too, and perhaps lives on
        process.wait()
    run, give_up = tmp_path / "run", time.monotonic() + GIVES_UP_AFTER_SECONDS
    while number == signal.SIGKILL and is_locked(run) and time.monotonic() < give_up:
        time.sleep(0.1)  # of a server that was killed, nobody waits for the training
    assert not is_locked(run)
    said = (tmp_path / "errors").read_text()
    assert "run: not trained yet; it is now, as long.yaml says" in said
    last = steps_in(run)[-1]
    assert f"stopped after step {last}, saved" in said
    assert not read_checkpoint(run / step_name(last)).is_snapshot
