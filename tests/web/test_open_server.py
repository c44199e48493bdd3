"""What `pellucid serve` says to whoever opens it to others."""

import logging
import socket

import pytest

from pellucid.cli import serving
from pellucid.web import server


@pytest.mark.parametrize(("host", "says"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_server_that_others_reach_says_that_it_has_no_password(fables_run, monkeypatch, capsys, host, says):
    monkeypatch.setattr(server, "run", lambda app, listening: None)
    monkeypatch.setattr(serving, "_own_address", lambda: "192.0.2.7")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        serving._show([fables_run], "best", None, host, listening, opens=False)
        port = listening.getsockname()[1]
    said = capsys.readouterr().err
    assert ("there is no password" in said) == says
    assert (f"http://192.0.2.7:{port}/" in said) == says


def test_a_server_that_is_stopped_while_it_writes_says_nothing_of_it():
    """uvicorn logs this of an answer that it cuts off."""
    said = "ASGI callable returned without completing response."
    assert not server.is_fault(logging.makeLogRecord({"msg": said, "levelno": logging.ERROR}))
    assert server.is_fault(logging.makeLogRecord({"msg": "something else", "levelno": logging.ERROR}))
