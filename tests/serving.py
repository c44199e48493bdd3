"""An app on a port of this machine, in a thread of the tests' process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from pellucid.generation.continuous import N_SLOTS
from pellucid.web import server
from pellucid.web.limits import install_limits
from pellucid.web.openai_api import openai_routes
from pellucid.web.served import ServedRun


@contextmanager
def served(app: FastAPI) -> Iterator[tuple[str, int]]:
    """Its address."""
    uvicorn_server, listening = server.made(app), server.listen("127.0.0.1", 0)
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname()
    finally:
        uvicorn_server.should_exit = True
        thread.join()


def api_app(run: Path, n_slots: int = N_SLOTS) -> FastAPI:
    """OpenAI's API of a run, and nothing else but /health."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(openai_routes(ServedRun(run, n_slots=n_slots)))
    app.get("/health")(lambda: "ok")
    install_limits(app)
    return app
