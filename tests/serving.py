"""An app on a port of this machine, in a thread of the tests' process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from pellucid.web import server
from pellucid.web.app import make_app
from pellucid.web.openai.api import openai_routes
from pellucid.web.openai.served import served_runs

GIVES_UP_AFTER_SECONDS = 600  # on what never comes, however busy the machine
ENDS_AFTER_SECONDS = 120  # a server that is asked to stop; it gives its answers DRAIN_SECONDS


@contextmanager
def served(app: FastAPI) -> Iterator[tuple[str, int]]:
    """Its address."""
    uvicorn_server, listening = server.make_server(app), server.listen("127.0.0.1", 0)
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()
    finally:
        uvicorn_server.should_exit = True
        thread.join(ENDS_AFTER_SECONDS)
    assert not thread.is_alive(), f"the server still runs {ENDS_AFTER_SECONDS} s after it was asked to stop"


def app_of(*runs: Path) -> FastAPI:
    """What `pellucid serve` serves of runs: the page and OpenAI's API."""
    return make_app(runs, [openai_routes(served_runs(runs))])
