"""Tokens per second of the server: 16 clients beside one, and beside transformers behind FastAPI on the same weights.

Remakes: server
Takes: some minutes
Needs: checkpoints/fables, transformers

The run is exported for transformers, and both servers start, each in a process of its own. Then clients ask for texts
after the same prompt, one client or 16 at once, streamed or not; the servers take turns, and every figure is the median
over --pairs of them. transformers writes one text at a time, as `model.generate` in a route does; more at once share
the same cores.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from socket import socket
from statistics import median
from threading import Lock, Thread
from typing import Any

from results import Entry
from runs import served
from timing import median_ratio, take_turns

import pellucid

PROMPT = "Once upon a time"
N_CLIENTS = 16
TEXTS_EACH = {1: 4, N_CLIENTS: 1}  # texts that each client asks for in a turn
KINDS = {"": False, ", streamed": True}

Speeds = dict[tuple[int, str, str], list[float]]  # of so many clients, of a kind, by a server


def measure(run: Path, *, pairs: int = 3, tokens: int = 128) -> Iterator[Entry]:
    """tokens: of a text, at most."""
    pellucid.load(run).export(folder := Path("exported"))
    with served(serve_pellucid, run) as ours, served(serve_transformers, folder) as theirs:
        works = {
            (n_clients, kind, server): partial(tokens_per_second, port, run.name, n_clients, tokens, streamed)
            for n_clients in TEXTS_EACH
            for kind, streamed in KINDS.items()
            for server, port in (("Pellucid", ours), ("transformers", theirs))
        }
        speeds = take_turns({case: lambda work=work: asyncio.run(work()) for case, work in works.items()}, pairs)
    yield Entry("server", {"speeds": rows_of(speeds), "ratios": ratios_of(speeds)}, ["fables/shape"], numbers="fp32")


def rows_of(speeds: Speeds) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for n_clients in TEXTS_EACH:
        for kind in KINDS:
            ours, theirs = (speeds[n_clients, kind, server] for server in ("Pellucid", "transformers"))
            rows[f"{n_clients} client{'s' * (n_clients > 1)}{kind}"] = {
                "Pellucid (tokens/s)": median(ours),
                "transformers (tokens/s)": median(theirs),
                "ratio": median_ratio(ours, theirs),
            }
    return rows


def ratios_of(speeds: Speeds) -> dict[str, float]:
    """How many times as much Pellucid writes for many clients as for one."""
    one, many = TEXTS_EACH
    return {
        f"{many} clients to {one}{kind}": median_ratio(speeds[many, kind, "Pellucid"], speeds[one, kind, "Pellucid"])
        for kind in KINDS
    }


def serve_pellucid(run: Path, listening: socket) -> None:
    from pellucid.web import server
    from pellucid.web.app import make_app
    from pellucid.web.openai.api import openai_routes
    from pellucid.web.openai.served import served_runs

    server.run(make_app([run], [openai_routes(served_runs([run]))]), listening)


def serve_transformers(folder: Path, listening: socket) -> None:
    from uvicorn import Config, Server

    Server(Config(app_of_transformers(folder), log_level="error")).run(sockets=[listening])


def app_of_transformers(folder: Path) -> Any:
    """A server as one writes it in an afternoon: a lock, `generate`, and for a stream a thread that it writes into."""
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextIteratorStreamer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    app, one_at_a_time = FastAPI(), Lock()

    @app.post("/v1/completions")
    def completions(body: dict[str, Any]) -> Any:
        ids = tokenizer(tokenizer.bos_token + body["prompt"], return_tensors="pt", add_special_tokens=False)
        options: dict[str, Any] = {"do_sample": True, "max_new_tokens": body["max_tokens"], "top_k": 0}

        def generate(**more: Any) -> int:
            with one_at_a_time:
                written = model.generate(**ids, **options, **more, pad_token_id=tokenizer.eos_token_id)[0]
            new = written[ids["input_ids"].shape[1] :].tolist()
            return len(new) - (new[-1] == tokenizer.eos_token_id)

        if not body["stream"]:
            return {"usage": {"completion_tokens": generate()}}
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
        counts: list[int] = []
        thread = Thread(target=lambda: counts.append(generate(streamer=streamer)))

        def events() -> Iterator[str]:
            thread.start()
            for text in streamer:
                yield f"data: {json.dumps({'choices': [{'text': text}]})}\n\n"
            thread.join()
            yield f"data: {json.dumps({'usage': {'completion_tokens': counts[0]}})}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return app


async def ask(port: int, model: str, n_tokens: int, is_streamed: bool) -> int:
    """How many tokens the server has written. As little work as can be, for clients and servers share the cores."""
    body: dict[str, Any] = {"model": model, "prompt": PROMPT, "max_tokens": n_tokens, "stream": is_streamed}
    if is_streamed:
        body["stream_options"] = {"include_usage": True}
    content = json.dumps(body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n{content}".encode())
    answer = await reader.read()
    writer.close()
    usage = re.search(rb'"completion_tokens": ?(\d+)', answer)
    assert usage, answer[:500]
    return int(usage[1])


async def tokens_per_second(port: int, model: str, n_clients: int, n_tokens: int, is_streamed: bool) -> float:
    async def client() -> int:
        return sum([await ask(port, model, n_tokens, is_streamed) for _ in range(TEXTS_EACH[n_clients])])

    started = time.perf_counter()
    n_written = sum(await asyncio.gather(*(client() for _ in range(n_clients))))
    return n_written / (time.perf_counter() - started)
