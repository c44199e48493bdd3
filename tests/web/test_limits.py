"""What a server refuses before it looks at a request. Rows F26 and F30 of docs/reliability.md say it of a whole one."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request
from pydantic import BaseModel

from pellucid.errors import CheckpointError, ConfigError
from pellucid.web.app import make_app
from pellucid.web.limits import install_limits

OURS = {"host": "127.0.0.1:8000"}


class Number(BaseModel, extra="forbid", strict=True):
    number: int


def small_app(host: str = "127.0.0.1", allow_origins: Sequence[str] = ()) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.post("/double")
    def double(body: Number) -> int:
        return 2 * body.number

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.get("/health")
    def health() -> str:
        return "ok"

    @app.get("/gone")
    def gone() -> None:
        raise CheckpointError("checkpoints/fables", "is gone", "bring it back")

    @app.get("/vanished")
    def vanished() -> None:
        Path("checkpoints/none").read_bytes()

    install_limits(app, host, allow_origins)
    return app


def ask(app: FastAPI, method: str, path: str, headers: dict[str, str] = OURS, **options: object) -> httpx.Response:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            return await client.request(method, path, headers=headers, **options)

    return asyncio.run(once())


def code_of(response: httpx.Response) -> str | None:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    return error["code"]


def test_a_monitor_may_ask_for_the_head_alone():
    answer = ask(make_app([]), "HEAD", "/health")
    assert (answer.status_code, answer.content) == (200, b"")


def test_a_body_may_be_64_kibibytes_and_no_more_whether_it_says_its_length_or_not():
    async def pieces(n_bytes: int) -> AsyncIterator[bytes]:
        for start in range(0, n_bytes, 4096):
            yield b"x" * min(4096, n_bytes - start)

    app = small_app()
    for n_bytes, length in ((65536, 65536), (65537, None)):
        for content in (b"x" * n_bytes, pieces(n_bytes)):
            response = ask(app, "POST", "/length", content=content)
            if length:
                assert response.json() == length
            else:
                assert (response.status_code, code_of(response)) == (413, "body_too_large")


@pytest.mark.parametrize("where", ["header", "path", "query"])
def test_long_headers_paths_and_queries_are_refused(where):
    long = "x" * 20_000
    headers = {**OURS, "x-long": long} if where == "header" else OURS
    path = {"header": "/health", "path": f"/{long}", "query": f"/health?q={long}"}[where]
    response = ask(small_app(), "GET", path, headers)
    assert (response.status_code, code_of(response)) == (431, "headers_too_large")


def test_names_of_this_machine_and_its_own_pages_are_answered():
    app = small_app()
    for host in ("127.0.0.1", "localhost:80", "[::1]:8000", "[::1]", "LOCALHOST"):
        assert ask(app, "GET", "/health", {"host": host}).status_code == 200
    for scheme in ("http", "HTTP"):
        assert ask(app, "GET", "/health", {**OURS, "origin": f"{scheme}://127.0.0.1:8000"}).status_code == 200


def test_pages_of_a_site_that_is_let_in_may_ask_and_no_others():
    app = small_app(allow_origins=["http://localhost:3000"])
    site = {**OURS, "origin": "http://localhost:3000"}
    wants = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    asked = ask(app, "OPTIONS", "/double", {**site, **wants})
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-headers"] == "authorization,content-type"
    answer = ask(app, "POST", "/double", site, json={"number": 4})
    assert (answer.json(), answer.headers["access-control-allow-origin"]) == (8, "http://localhost:3000")
    refused = ask(app, "POST", "/double", {**site, "origin": "http://localhost:3001"}, json={"number": 4})
    assert (refused.status_code, code_of(refused)) == (403, "foreign_origin")
    for wrong in ("localhost:3000", "http://localhost:3000/", "*", "null", "http://Localhost", ""):
        with pytest.raises(ConfigError, match="--allow-origin: .* is no origin; give one as http"):
            small_app(allow_origins=[wrong])


def test_a_server_for_others_is_asked_by_an_address_or_the_name_of_its_machine():
    app = small_app(host="0.0.0.0")
    for host, status in (("192.168.1.7:8000", 200), (f"{socket.gethostname()}:8000", 200), ("evil.example", 403)):
        assert ask(app, "GET", "/health", {"host": host}).status_code == status


NO_JSON = "body: no JSON at character 1; check quotes, commas and braces"
NO_BODY = "body: no JSON object; send one, with the header Content-Type: application/json"


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        *(("{", None, NO_JSON), ("[" * 30_000, None, "POST /double: "), ("", None, NO_BODY)),
        *(('{"number": NaN}', "number", "number: "), ('{"number": "4"}', "number", "number: ")),
        ('{"number": 1, "nunber": 2}', "nunber", "nunber: unknown field; leave it out"),
    ],
)
def test_a_wrong_body_gets_400_in_the_shape_of_openai(body, param, message):
    response = ask(small_app(), "POST", "/double", content=body, headers={**OURS, "content-type": "application/json"})
    assert response.status_code == 400
    assert code_of(response)
    assert response.json()["error"]["param"] == param
    assert response.json()["error"]["message"].startswith(message)


def test_unknown_paths_and_methods_and_a_run_that_is_gone_have_that_shape_too():
    app = small_app()
    assert code_of(ask(app, "GET", "/../../etc/passwd")) == "not_found"
    assert code_of(ask(app, "GET", "/double")) == "method_not_allowed"
    gone = ask(app, "GET", "/gone")
    assert (gone.status_code, gone.headers["retry-after"]) == (503, "1")
    assert gone.json()["error"]["message"] == "checkpoints/fables: is gone; bring it back"
    vanished = ask(app, "GET", "/vanished")
    assert (vanished.status_code, code_of(vanished)) == (503, None)
