"""F25 to F30: whatever clients send, however they behave, and whatever becomes of the run, the server goes on."""

import asyncio
import json
import os
import random
import shutil
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

import pellucid
from pellucid.generation.engine import Engine
from pellucid.generation.writing import Writing
from pellucid.web import server
from pellucid.web.openai import served as served_module
from pellucid.web.openai.engine_thread import Job
from processes import HANGS_AFTER_SECONDS, Command
from serving import app_of, served
from tiny_run import TINY_RUN, VERSES

Json = dict[str, Any]
Address = tuple[str, int]

COMPLETION: Json = {"model": "tiny", "prompt": "The fox", "max_tokens": 2}
CHAT: Json = {"model": "tiny", "messages": [{"role": "user", "content": "The fox"}]}
HUGE = [10**400, -(10**30), 1e308, float("nan"), float("inf"), float("-inf")]
WRONG_TYPES = [[], {}, [[[[]]]], {"a": {"b": [None]}}]
WRONG: dict[str, list[Any]] = {  # for each field, besides WRONG_TYPES
    "model": [1, "", "gpt-4", "../tiny", True],
    "prompt": [1, True, ["a", 1], [1, "a"], [[1], "a"], [-1], [10**9], [[]], ["\ud83e"], [None], ["x"] * 99],
    "max_tokens": [*HUGE, "5", 1.5, -2, 5000],
    "temperature": [*HUGE, "1", -0.1, True],
    "top_p": [*HUGE, 0, 1.1, "1"],
    "top_k": [*HUGE, -2, 2**31, 1.5],
    "min_p": [*HUGE, -0.1, 1.1],
    "repetition_penalty": [*HUGE, 0, -1],
    "n": [*HUGE, 0, 17, -1, "1", 1.5],
    "seed": [*HUGE, "1", 1.5, 2**64],
    "stop": [1, "", [""], ["a"] * 5, [1]],
    "stream": ["true", 1, "", 0],
    "stream_options": [1, "usage", {"include": True}],
    "echo": ["yes", 1],
    "logprobs": [*HUGE, -1, 21, "1"],
    "presence_penalty": [*HUGE, 2.1, "0"],
    "frequency_penalty": [*HUGE, -2.1, True],
    "logit_bias": [
        1,
        [5],
        {"a": 1},
        {"-1": 1},
        {"9" * 30: 1},
        {"1": 101},
        {"1": "1"},
        {"1": None},
        {"": 1},
        {"1.5": 1},
    ],
    "min_tokens": [*HUGE, -1, 3, 5000, "1"],
    "stop_token_ids": [1, ["1"], [-1], [10**9], [1.5], [None]],
    "repeat_penalty": [*HUGE, 0, -1],
    "suffix": ["x"],
    "best_of": [2, 0],
    "tools": [[{"type": "function", "function": {"name": "look"}}]],
    "pr\u00f6mpt": ["x"],
}
MAY_BE_EMPTY = ("stop", "stream_options", "tools", "logit_bias", "stop_token_ids")  # [] or {} is harmless
PATHS = ["/v1/complitions", "/v1", "/v1/engines", "/v1/completions/", "/v2/completions", "/\x00", "/%ff%fe", "//v1"]
KINDS = ["missing", "cut", "control", "nested", "bytes", "path", "method", "type"]
NO_HTTP = [
    b"\x00" * 99,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the first bytes of TLS
]
TRACE: Json = {"checkpoint": "tiny@2", "text": "The fox"}
WRONG_OF_THE_PAGE: list[tuple[str, Json | None]] = [  # None: GET
    ("/api/model?checkpoint=tiny", None),
    ("/api/model?checkpoint=tiny@" + "9" * 5_000, None),
    ("/api/model?checkpoint=..%2ftiny@2", None),
    *((f"/api/fable?checkpoint=tiny@2&number={number}", None) for number in (0, -1, 10**9, 10**30, "nan")),
    *(("/api/trace", {**TRACE, "checkpoint": name}) for name in ("tiny@3", "other@2", "\ud83e", 1, None)),
    *(("/api/trace", {**TRACE, "text": text}) for text in ("\ud83e", 1, ["a"], "a" * 60_000)),
    *(("/api/trace", {**TRACE, "at": at}) for at in (*HUGE[1:], -1, "a")),
    *(("/api/trace", {**TRACE, "knock_out": [place]}) for place in (["head", 0], ["head", 0, 99], ["x", 0], 1)),
    *(("/api/inside", {**TRACE, "layer": layer}) for layer in (-1, 10**30, 1.5, None)),
    *(("/api/knock_out", {"checkpoint": "tiny@2", "n": n}) for n in (0, 1, 10**9, "x")),
    ("/api/trace", {**TRACE, "a\nb": 1}),
    ("/api/truth", {**TRACE, "\ud83e": 1}),
]
FOREIGN_HOSTS = [
    *("evil.example", "10.0.0.1:80", "127.0.0.1.evil.example", "169.254.169.254", "localhost.evil.example:80", ""),
    *("[::1].evil.com:1", "127.0.0.1:1, evil.com", "[::1", "127.0.0.1:1:2", "localhost:x", "::1", "localhost@evil.com"),
]
FOREIGN_ORIGINS = [
    *("http://evil.example", "http://localhost.evil.example", "http://localhost:3000", "https://localhost"),
    *("x://localhost", "localhost", "://localhost", "null", ""),
]
EDGES = [5e-324, 1e-300, 1e-46, 1.4e-45, 1e-38, 1e-7, 0.5, 1 - 2**-53, 1]  # of what float32 can hold, and beyond
EXTREME: dict[str, list[float]] = {  # valid all the same
    "temperature": [0, *EDGES, 100],
    "top_p": EDGES,
    "top_k": [1, 2**31 - 1],
    "min_p": [0, *EDGES],
    "repetition_penalty": [*EDGES, 100],
    "presence_penalty": [-2, *EDGES, 2],
    "frequency_penalty": [-2, *EDGES, 2],
    "seed": [-(2**63), 2**64 - 1],
    "logprobs": [0, 20],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "corpus.txt").write_text(VERSES)
    (folder / "tiny.yaml").write_text(TINY_RUN.replace("corpus.txt", (folder / "corpus.txt").as_posix()))
    pellucid.train(folder / "tiny.yaml", folder / "tiny", data_dir=folder / "data", steps=2)
    return folder / "tiny"


@pytest.fixture(scope="module")
def app(run: Path) -> FastAPI:
    return app_of(run)


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[Address]:
    with served(app_of(run)) as address:
        yield address


Reply = tuple[int, dict[bytes, bytes], bytes]


async def call(app: FastAPI, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
    """A request without a network."""
    named = {"host": "localhost", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": path.partition("?")[0].encode(),
        "query_string": path.partition("?")[2].encode(),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }
    sent: list[dict[str, Any]] = []
    has_ended = asyncio.Event()
    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()
        await has_ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            has_ended.set()

    await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


async def exchange(address: Address, request: bytes) -> Reply:
    """A request over the network, as raw bytes; (0, {}, b"") if the server hangs up."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = b""
    with suppress(ConnectionError):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    named = dict(line.lower().split(b": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]) if answer else 0, named, body


def post(body: bytes, *headers: str, path: str = "/v1/completions") -> bytes:
    head = ["Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([f"POST {path} HTTP/1.1", *head, *headers, "", ""]).encode() + body


def malformed(rng: random.Random) -> tuple[str, str, bytes]:
    """Method, path and body of a request that nobody should send."""
    path, body = rng.choice([("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
    text = json.dumps(body)
    match rng.choice(KINDS):
        case "missing":
            field = rng.choice(["model"] if path == "/v1/completions" else list(CHAT))
            return "POST", path, json.dumps({key: value for key, value in body.items() if key != field}).encode()
        case "cut":
            return "POST", path, text[: rng.randrange(len(text))].encode()
        case "control":
            at = rng.randrange(1, len(text))
            return "POST", path, (text[:at] + chr(rng.randrange(1, 9)) + text[at:]).encode()
        case "nested":
            depth, (opening, closing) = rng.choice([3, 50, 1_000, 9_000]), rng.choice([("[", "]"), ('{"a":', "}")])
            nested = opening * depth + "1" + closing * (depth if rng.random() < 0.5 else 0)
            return "POST", path, rng.choice([nested, f'{{"model": "tiny", "prompt": {nested}}}']).encode()
        case "bytes":
            return "POST", path, rng.randbytes(rng.randrange(200)) + b"\xff"
        case "path":
            return rng.choice(["GET", "POST", "DELETE"]), rng.choice(PATHS), text.encode()
        case "method":
            return rng.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"]), path, text.encode()
        case _:
            return "POST", path, rng.choice([b"null", b"1", b'"text"', b"[]", b"", b"model=tiny&prompt=x"])


def assert_refused(status: int, body: bytes) -> None:
    assert 400 <= status < 500, (status, body)
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] in ("invalid_request_error", "rate_limit_error")
    assert error["message"]
    assert "\n" not in error["message"]


async def assert_alive(app: FastAPI) -> None:
    status, _, body = await call(app, "POST", "/v1/completions", json.dumps(COMPLETION).encode())
    assert status == 200, body


def test_f25_malformed_requests_get_an_error_and_the_server_goes_on(app, tally, soak):
    rng = random.Random(0)

    async def send_them() -> None:
        await assert_alive(app)
        for _ in range(5_000 if soak else 150):
            method, path, content = malformed(rng)
            with tally.attempt((method, path, content)):
                status, _, body = await call(app, method, path, content)
                assert_refused(status, body)
        await assert_alive(app)

    asyncio.run(send_them())


def test_f25_a_field_with_a_wrong_value_is_named(app, tally):
    async def send_them() -> None:
        for field, wrong in WRONG.items():
            for value in [*wrong, *([] if field in MAY_BE_EMPTY else WRONG_TYPES)]:
                content = json.dumps({**COMPLETION, field: value}).encode()
                with tally.attempt(content):
                    status, _, body = await call(app, "POST", "/v1/completions", content)
                    assert_refused(status, body)
                    assert json.loads(body)["error"]["param"].partition(".")[0] == field

    asyncio.run(send_them())


def test_f25_what_the_page_would_not_ask_is_refused(app, tally):
    for path, body in WRONG_OF_THE_PAGE:
        with tally.attempt((path, body)):
            content = b"" if body is None else json.dumps(body).encode()
            status, _, answer = asyncio.run(call(app, "GET" if body is None else "POST", path, content))
            assert_refused(status, answer)


def test_f25_what_is_no_http_is_refused(address, tally):
    for request in NO_HTTP:
        with tally.attempt(request):
            status, _, _ = asyncio.run(exchange(address, request))
            assert 400 <= status < 500


def test_f26_what_is_too_long_is_refused_and_a_long_prompt_is_read_from_its_end(address, tally):
    for n_bytes in (65_537, 200_000, 2_000_000):
        with tally.attempt(f"a body of {n_bytes} bytes"):
            status, _, body = asyncio.run(exchange(address, post(b"x" * n_bytes)))
            assert status == 413
            assert_refused(status, body)
    for n_bytes, statuses in ((17_000, {431}), (70_000, {400, 431})):  # uvicorn holds 64 KiB
        with tally.attempt(f"headers of {n_bytes} bytes"):
            status, _, _ = asyncio.run(exchange(address, post(b"", f"X-Long: {'x' * n_bytes}")))
            assert status in statuses
    for n_words in (40, 5_000):
        with tally.attempt(f"a prompt of {n_words} words"):
            long = json.dumps({**COMPLETION, "prompt": "fox " * n_words}).encode()
            status, _, body = asyncio.run(exchange(address, post(long)))
            assert status == 200
            assert "its first" in json.loads(body)["warning"]


def test_f27_while_clients_are_slow_others_are_served(address, tally, soak):
    slow = [post(b"x" * 60_000)[:-1], b"GET /health HTT", post(b"{" * 999, "Expect: 100-continue")[:-998]]

    async def beside_them() -> Reply:
        begun = await asyncio.gather(*(asyncio.open_connection(*address) for _ in range(200 if soak else 20)))
        for i, (_, writer) in enumerate(begun):
            writer.write(slow[i % len(slow)])  # and never the rest
            await writer.drain()
        reply = await exchange(address, post(json.dumps(COMPLETION).encode()))
        for _, writer in begun:
            writer.close()
        return reply

    with tally.attempt("a request beside slow ones"):
        status, _, body = asyncio.run(beside_them())
        assert status == 200, body


def memory_bytes() -> int:
    """Resident memory of this process; on systems without /proc, nothing that grows."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def test_f28_of_a_crowd_each_is_served_or_told_to_come_back_and_a_seed_is_a_seed(address, tally, soak):
    n_clients, n_rounds = (1_000, 5) if soak else (200, 1)

    def request(i: int) -> bytes:
        return post(json.dumps({"model": "tiny", "prompt": "The", "max_tokens": 12, "seed": i % 30, "n": 1}).encode())

    async def crowd() -> list[Reply]:
        return await asyncio.gather(*(exchange(address, request(i)) for i in range(n_clients)))

    alone = [json.loads(asyncio.run(exchange(address, request(i)))[2])["choices"][0]["text"] for i in range(30)]
    memory = 0
    statuses = set()
    for _ in range(n_rounds):
        for i, (status, headers, body) in enumerate(asyncio.run(crowd())):
            with tally.attempt(f"request {i} of {n_clients}"):
                statuses.add(status)
                assert status in (200, 429, 503)
                if status == 200:
                    assert json.loads(body)["choices"][0]["text"] == alone[i % 30]
                else:
                    assert int(headers[b"retry-after"]) >= 1
        memory = memory or memory_bytes()
    assert statuses >= {200, 429}
    assert memory_bytes() < memory + 64 * 2**20


def test_f29_nothing_is_written_for_a_client_that_has_gone(address, tally, soak, monkeypatch):
    at_cancel: list[tuple[Job, int]] = []
    cancel = Job.cancel

    def noted(job: Job) -> None:
        at_cancel.append((job, sum(len(writing.token_ids) for writing in job.writings)))
        cancel(job)

    monkeypatch.setattr(Job, "cancel", noted)
    n_clients = 200 if soak else 24

    async def leave(i: int) -> None:
        body = {**COMPLETION, "max_tokens": 4000, "seed": i, "stream": i % 3 > 0}
        reader, writer = await asyncio.open_connection(*address)
        writer.write(post(json.dumps(body).encode()))
        if body["stream"]:
            await reader.read(300)
        else:
            await asyncio.sleep(0.02)
        writer.transport.abort()

    async def all_leave() -> None:
        await asyncio.gather(*(leave(i) for i in range(n_clients)))
        for _ in range(100 * HANGS_AFTER_SECONDS):
            if len(at_cancel) >= max(1, n_clients - 60):  # those that found the queue full have no job
                break
            await asyncio.sleep(0.01)

    asyncio.run(all_leave())
    n_served, other = 0, post(json.dumps({**COMPLETION, "max_tokens": 20}).encode())
    while n_served < 2:  # each takes twenty steps, in which those who left would have got more
        status, _, _ = asyncio.run(exchange(address, other))
        assert status in (200, 429)
        n_served += status == 200
    assert any(not job.writings[0].pieces or job.writings[0].pieces[-1].finish_reason is None for job, _ in at_cancel)
    for job, n_new in at_cancel:
        with tally.attempt(f"left after {n_new} tokens"):
            assert sum(len(writing.token_ids) for writing in job.writings) <= n_new + 2


def patient() -> None:
    server.DRAIN_SECONDS = HANGS_AFTER_SECONDS


def never_done() -> None:
    """The engine stops once there is something to read: what is being answered is cut off at the end of the drain."""
    server.DRAIN_SECONDS = 0.1
    step, written = Engine.step, []

    def step_until_there_is_text(engine: Engine) -> list[Writing]:
        if any(writing.pieces for writing in written):
            threading.Event().wait()
        written[:] = step(engine)
        return written

    Engine.step = step_until_there_is_text  # type: ignore[method-assign]


@pytest.mark.parametrize("fault", [patient, never_done], ids=["finished", "cut off"])
def test_f29_sigterm_ends_what_is_being_written_and_then_the_server(run, fault):
    """`pellucid serve` finishes what it writes and exits; what would take longer than the drain is cut off."""
    with server.listen("127.0.0.1", 0) as free:
        address = free.getsockname()
    command = Command(run.parent, "serve", run.name, "--port", address[1], fault=fault)

    async def stopped_while_it_answers() -> bytes:
        for _ in range(50 * HANGS_AFTER_SECONDS):
            with suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(*address)
                break
            await asyncio.sleep(0.02)
        body = {**COMPLETION, "max_tokens": 60, "stream": True, "n": 16, "seed": 0}
        writer.write(post(json.dumps(body).encode()))
        answer = await reader.readuntil(b"data: ")
        command.process.terminate()
        with suppress(ConnectionError):
            answer += await reader.read()
        writer.close()
        return answer

    answer = asyncio.run(stopped_while_it_answers())
    done = command.wait()
    assert done.exit_code == 143, done
    assert "Traceback" not in done.stderr, done.stderr
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") == (fault is patient)
    with pytest.raises(ConnectionError):
        socket.create_connection(address)


def test_f30_paths_that_climb_and_callers_from_elsewhere_are_refused(app, tally):
    climbing = ["/../etc/passwd", "/v1/../../config.yaml", "/v1/models/../../x", "/v1/models/..%2f..%2fconfig.yaml"]
    climbing += ["/%2e%2e/%2e%2e/etc/passwd", "/..\\..\\config.yaml", "/v1/models/%00", "/v1/models/tiny%2f..%2f"]

    async def refused(status: int, request: Awaitable[Reply]) -> None:
        found, _, body = await request
        assert found == status
        assert_refused(found, body)

    async def all_of_them() -> None:
        for path in climbing:
            with tally.attempt(path):
                await refused(404, call(app, "GET", path))
        for host in FOREIGN_HOSTS:
            with tally.attempt(f"Host: {host}"):
                await refused(403, call(app, "GET", "/v1/models", host=host))
        for origin in FOREIGN_ORIGINS:
            with tally.attempt(f"Origin: {origin}"):
                await refused(403, call(app, "POST", "/v1/completions", json.dumps(COMPLETION).encode(), origin=origin))

    asyncio.run(all_of_them())


def test_f30_a_run_that_vanishes_or_changes_is_served_again_when_it_is_back(run, tmp_path, tally, monkeypatch):
    monkeypatch.setattr(served_module, "SECONDS_BETWEEN_CHECKS", 0.0)
    copy, away = tmp_path / "tiny", tmp_path / "away"
    shutil.copytree(run, copy)
    app = app_of(copy)

    def weights_damaged() -> None:
        weights = copy / "step-00000002" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        (copy / "step-00000002" / "manifest.json").touch()

    faults: dict[str, Callable[[], object]] = {
        "moved away": lambda: copy.rename(away),
        "emptied": lambda: shutil.rmtree(copy / "step-00000002"),
        "damaged": weights_damaged,
    }

    async def each_fault() -> None:
        await assert_alive(app)
        for name, make in faults.items():
            with tally.attempt(name):
                make()
                status, headers, body = await call(app, "POST", "/v1/completions", json.dumps(COMPLETION).encode())
                assert status == 503
                assert headers[b"retry-after"] == b"1"
                assert "\n" not in json.loads(body)["error"]["message"]
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(run, copy)
                await assert_alive(app)
        with tally.attempt("a damaged config"):
            (copy / "config.yaml").write_text("name: [")
            status, _, body = await call(app, "GET", "/api/run")
            assert status == 503
            assert str(copy) not in body.decode()

    asyncio.run(each_fault())


def extreme(rng: random.Random) -> Json:
    """A valid request whose numbers are as small or as large as numbers get."""
    fields = rng.sample(sorted(EXTREME), rng.randint(1, len(EXTREME)))
    return {**COMPLETION, "max_tokens": 8} | {field: rng.choice(EXTREME[field]) for field in fields}


def test_f34_an_extreme_request_is_answered_and_touches_no_other(app, tally, soak):
    rng = random.Random(0)
    bodies = [{**COMPLETION, "max_tokens": 8, field: value} for field, values in EXTREME.items() for value in values]
    bodies += [extreme(rng) for _ in range(2_000 if soak else 60)]
    sound = [{**COMPLETION, "max_tokens": 12, "seed": seed} for seed in range(4)]

    async def answers(requests: list[Json]) -> list[Reply]:
        return await asyncio.gather(*(call(app, "POST", "/v1/completions", json.dumps(r).encode()) for r in requests))

    def texts(replies: list[Reply]) -> list[str]:
        return [json.loads(body)["choices"][0]["text"] for _, _, body in replies]

    async def send_them() -> None:
        alone = [texts(await answers([request]))[0] for request in sound]
        for start in range(0, len(bodies), 12):
            extremes = bodies[start : start + 12]
            replies = await answers([*extremes, *sound])
            for body, (status, _, answer) in zip([*extremes, *sound], replies, strict=True):
                with tally.attempt(body):
                    assert status == 200, answer
            with tally.attempt(f"others beside {extremes}"):
                assert texts(replies[-len(sound) :]) == alone

    asyncio.run(send_them())
