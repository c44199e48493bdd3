"""Runs an app with uvicorn, and shuts it down cleanly."""

import errno
import logging
import socket
import sys
from asyncio import CancelledError

import uvicorn
from fastapi import FastAPI

from pellucid.errors import InputOutputError
from pellucid.kernels.freed_memory import return_freed_memory

BACKLOG = 2048  # waiting connections, where the system allows so many
DRAIN_SECONDS = 8.0  # to finish current answers when the server is asked to stop


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 means any free one. InputOutputError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # on Windows it would let two programs share the port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        what = f"cannot listen there ({getattr(error, 'strerror', None) or error})"
        fix = "give another --port, or stop the program that uses it"
        if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
            fix = "give an address of this machine as --host, or 0.0.0.0 for all of them"
        raise InputOutputError(f"{host}:{port}", what, fix) from None
    return listening


def run(app: FastAPI, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish the current requests, accept no more, and raise the signal again.

    So `pellucid` exits with 143 or 130, at most DRAIN_SECONDS later. Call it in the main thread.
    """
    return_freed_memory()
    make_server(app).run(sockets=[listening])


def make_server(app: FastAPI) -> uvicorn.Server:
    """A uvicorn server for the app. It waits for slow clients, as long as they like; a proxy in front need not."""
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.ERROR)
    log.addFilter(is_fault)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=DRAIN_SECONDS,  # type: ignore[arg-type]
    )
    return uvicorn.Server(config)


def is_fault(record: logging.LogRecord) -> bool:
    """Whether to log a record: not an answer that was cut off as the server stopped."""
    if record.getMessage() == "ASGI callable returned without completing response.":
        return False
    return record.exc_info is None or record.exc_info[0] is not CancelledError
