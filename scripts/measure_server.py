"""Tokens per second of the server: 16 clients beside one, and beside transformers behind FastAPI on the same weights.

    python scripts/measure_server.py checkpoints/fables --record

The run is exported for transformers, and both servers start, each in a process of its own. Then clients ask for texts
after the same prompt, one client or 16 at once, streamed or not; the servers take turns, so that a slow minute of the
machine hits both. Every figure is the median over --pairs turns. transformers writes one text at a time, as
`model.generate` in a route does; more at once share the same cores.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from threading import Lock, Thread
from typing import Any

from results import parser, print_table, record

PROMPT = "Once upon a time"
N_CLIENTS = 16
TEXTS_EACH = {1: 4, N_CLIENTS: 1}  # texts that each client asks for in a turn
KINDS = {"": False, ", streamed": True}


def serve_pellucid(run: Path, port: int) -> None:
    from pellucid.web import server
    from pellucid.web.app import make_app
    from pellucid.web.openai.api import openai_routes
    from pellucid.web.openai.served import served_runs

    server.run(make_app([run], [openai_routes(served_runs([run]))]), server.listen("127.0.0.1", port))


def serve_transformers(folder: Path, port: int) -> None:
    """What one would write in an afternoon: a lock, `generate`, and for a stream a thread that it writes into."""
    import uvicorn
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

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


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
    found = re.search(rb'"completion_tokens": ?(\d+)', answer)
    assert found, answer[:500]
    return int(found[1])


async def tokens_per_second(port: int, model: str, n_clients: int, n_tokens: int, is_streamed: bool) -> float:
    async def client() -> int:
        return sum([await ask(port, model, n_tokens, is_streamed) for _ in range(TEXTS_EACH[n_clients])])

    started = time.perf_counter()
    n_written = sum(await asyncio.gather(*(client() for _ in range(n_clients))))
    return n_written / (time.perf_counter() - started)


async def wait_for(port: int, model: str) -> None:
    for _ in range(600):
        try:
            await ask(port, model, 2, False)
            return
        except OSError:
            await asyncio.sleep(0.2)
    raise TimeoutError(f"no server on port {port}")


async def measure(ports: dict[str, int], model: str, n_pairs: int, n_tokens: int) -> dict[str, Any]:
    for port in ports.values():
        await wait_for(port, model)
    cases = [(n_clients, kind) for n_clients in TEXTS_EACH for kind in KINDS]
    speeds: dict[tuple[int, str], dict[str, list[float]]] = {case: {name: [] for name in ports} for case in cases}
    for _ in range(n_pairs):
        for n_clients, kind in cases:
            for name, port in ports.items():
                speed = await tokens_per_second(port, model, n_clients, n_tokens, KINDS[kind])
                speeds[n_clients, kind][name].append(speed)
    rows, ratios = {}, {}
    for (n_clients, kind), by_server in speeds.items():
        row = f"{n_clients} client{'s' * (n_clients > 1)}{kind}"
        rows[row] = {f"{name} (tokens/s)": median(values) for name, values in by_server.items()}
        ours, theirs = by_server.values()
        rows[row]["ratio"] = median(a / b for a, b in zip(ours, theirs, strict=True))
    for kind in KINDS:
        one, many = (speeds[n, kind]["Pellucid"] for n in TEXTS_EACH)
        ratios[f"{N_CLIENTS} clients to 1{kind}"] = median(b / a for a, b in zip(one, many, strict=True))
    return {"speeds": rows, "ratios": ratios}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("run", type=Path, help="a trained run; a folder of transformers with --serve transformers")
    arguments.add_argument("--pairs", type=int, default=3, help="turns")
    arguments.add_argument("--tokens", type=int, default=128, help="of a text, at most")
    arguments.add_argument("--port", type=int, default=8711)
    arguments.add_argument("--serve", choices=["pellucid", "transformers"], help="only serve, at --port")
    options = arguments.parse_args()
    if options.serve:
        (serve_pellucid if options.serve == "pellucid" else serve_transformers)(options.run, options.port)
        return
    import pellucid

    run = pellucid.load(options.run)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "exported"
        run.export(folder)
        sources = {"Pellucid": options.run, "transformers": folder}
        ports = {name: options.port + i for i, name in enumerate(sources)}
        servers = [
            subprocess.Popen(
                [sys.executable, __file__, str(source), "--serve", name.lower(), "--port", str(ports[name])]
            )
            for name, source in sources.items()
        ]
        try:
            figures = asyncio.run(measure(ports, run.config.name, options.pairs, options.tokens))
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()
    print_table("clients", figures["speeds"])
    for name, ratio in figures["ratios"].items():
        print(f"{name}: {ratio:.1f} times")
    if options.record:
        record("server", figures, ["fables/shape"], numbers="fp32")


if __name__ == "__main__":
    main()
