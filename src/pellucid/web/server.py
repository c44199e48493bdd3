"""Runs an app with uvicorn, which cuts off slow clients and shuts down cleanly."""

import errno
import logging
import socket
import sys
from asyncio import AbstractEventLoop, CancelledError, TimerHandle
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from pellucid.errors import InputOutputError
from pellucid.kernels.freed_memory import return_freed_memory
from pellucid.web.errors import error_response
from pellucid.web.limits import MAX_HEADER_BYTES

REQUEST_SECONDS = 10.0  # to send a request, and to read from a full buffer
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
    """A uvicorn server for the app that cuts off clients which take more than REQUEST_SECONDS to send or read."""
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.ERROR)
    log.addFilter(is_fault)
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=DRAIN_SECONDS,  # type: ignore[arg-type]
    )
    return uvicorn.Server(config)


def is_fault(record: logging.LogRecord) -> bool:
    """Whether to log a record: not what was cut off as the server stopped, an answer or the events of an open page."""
    if record.getMessage() == "ASGI callable returned without completing response.":
        return False
    return record.exc_info is None or record.exc_info[0] is not CancelledError


class TimedProtocol(H11Protocol):
    """A connection of uvicorn's with timeouts while the client has to send bytes, or to read them."""

    loop: AbstractEventLoop

    def connection_made(self, transport: Any) -> None:
        self._until_request_is_whole: TimerHandle | None = None
        self._until_it_reads: TimerHandle | None = None
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        owes_bytes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not owes_bytes and self._until_request_is_whole:
            self._until_request_is_whole.cancel()
            self._until_request_is_whole = None
        elif owes_bytes and self._until_request_is_whole is None:
            self._until_request_is_whole = self.loop.call_later(REQUEST_SECONDS, self._refuse_to_wait)

    def _refuse_to_wait(self) -> None:
        self._until_request_is_whole = None
        if self.cycle is None or self.cycle.response_complete:
            self._answer(408, f"the request was not complete after {REQUEST_SECONDS:g} s; send it again")
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._until_it_reads = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._until_it_reads:
            self._until_it_reads.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._until_request_is_whole, self._until_it_reads):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP, as uvicorn does while it handles the exception, but name headers that are too long."""
        reason = sys.exc_info()[1]
        status = reason.error_status_hint if isinstance(reason, h11.RemoteProtocolError) else 400
        self._answer(status, "headers over the limit; send fewer" if status == 431 else msg)

    def _answer(self, status: int, message: str) -> None:
        """Answer the client directly, without the app, as there is no complete request."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = error_response(status, message, headers={"Connection": "close"})
            events: list[h11.Event] = [
                h11.Response(status_code=status, headers=response.raw_headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ]
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
