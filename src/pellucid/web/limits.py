"""Limits of a server: it refuses large bodies and headers, and requests from other sites.

A page of any site can send requests to 127.0.0.1 from your browser, and by a name that resolves to 127.0.0.1 even make
them look like requests of the same site ("DNS rebinding"). The headers Origin and Host give both away.
"""

import re
import socket
from collections.abc import Collection, MutableMapping
from ipaddress import ip_address
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.errors import ConfigError
from pellucid.web.errors import ApiError, error_response, install_errors

MAX_BODY_BYTES = 64 * 1024
MAX_HEADER_BYTES = 16 * 1024
MOST_DISCARDED_BYTES = 16 * 1024 * 1024  # of too large a body, as a client that still sends does not read the answer
HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:,\s]+))(?::[0-9]+)?")  # [IPv6] or a name, and perhaps a port
ORIGIN = re.compile(r"https?://[^\s/?#@A-Z*]+")  # as browsers send it
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def install_limits(app: FastAPI, host: str = "127.0.0.1", allow_origins: Collection[str] = ()) -> None:
    """Add limits, and errors in OpenAI's shape, to an app, once, after its routes.

    host: the server's address. allow_origins: other sites, as https://example.org, whose pages may ask. Too large a
    body gets 413, headers 431, a foreign Host or Origin 403. Make the app with FastAPI(docs_url=None, redoc_url=None),
    as those pages load scripts from other sites. Then `server.run(app, …)`.
    """
    install_errors(app)
    app.router.redirect_slashes = False  # paths must be exact
    for origin in allow_origins:
        if not ORIGIN.fullmatch(origin):
            raise ConfigError("--allow-origin", f"{origin!r} is no origin", "give one as http://localhost:3000")
    if allow_origins:
        app.add_middleware(CORSMiddleware, allow_origins=allow_origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Limits, host=host, allow_origins=allow_origins)


class Limits:
    """Middleware that reads the complete body first; later, `receive` only reports that the client disconnects."""

    def __init__(self, app: ASGIApp, host: str, allow_origins: Collection[str]) -> None:
        self._app, self._origins = app, allow_origins
        self._names = LOOPBACK | {host.lower()}
        self._is_open = host in ("0.0.0.0", "::")  # listens on all addresses of this machine
        if self._is_open:
            self._names |= {socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_headers(scope)
            body = await self._read_body(receive)
        except ApiError as error:
            response = error_response(error.status, error.message, code=error.code, headers={"Connection": "close"})
            await response(scope, receive, send)
            return
        if body is None:  # the client has disconnected
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, receive_body, send)

    def _check_headers(self, scope: MutableMapping[str, Any]) -> None:
        n_bytes = len(scope.get("raw_path", b"")) + len(scope["query_string"])
        n_bytes += sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # with ": " and the line's end
        if n_bytes > MAX_HEADER_BYTES:
            message = f"headers of {n_bytes:,} bytes, over the limit of {MAX_HEADER_BYTES:,}; send fewer"
            raise ApiError(431, message, code="headers_too_large")
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_ours(host):
            message = f"Host {host!r} is not this server; ask it by the address it printed, as http://127.0.0.1:PORT"
            raise ApiError(403, message, code="foreign_host")
        origin = headers.get("origin")
        ours = {f"{scope['scheme']}://{host}".lower(), *self._origins}
        if origin is not None and origin.lower() not in ours:
            message = f"Origin {origin!r} is another site; call from a program, or serve with --allow-origin"
            raise ApiError(403, message, code="foreign_origin")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > MOST_DISCARDED_BYTES:
            raise _too_large()

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. A bare address is safe: no site has one as its name."""
        match = HOST.fullmatch(host.lower())
        name = (match[1] or match[2]) if match else ""
        return name in self._names or (self._is_open and _is_address(name))

    async def _read_body(self, receive: Receive) -> bytes | None:
        body, n_bytes, more = b"", 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece, more = message.get("body", b""), message.get("more_body", False)
            n_bytes += len(piece)
            if n_bytes <= MAX_BODY_BYTES:
                body += piece
            elif n_bytes > MOST_DISCARDED_BYTES:
                break
        if n_bytes > MAX_BODY_BYTES:
            raise _too_large()
        return body


def _too_large() -> ApiError:
    return ApiError(413, f"the body is over {MAX_BODY_BYTES:,} bytes; send less", code="body_too_large")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
