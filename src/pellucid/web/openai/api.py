"""The routes of OpenAI's completions API, for any of its clients; docs/server.md shows calls.

Each answer consists of the pieces that the engine writes: as a stream of events, or all at the end.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pellucid.errors import DataError, PellucidError
from pellucid.generation.stream import TextStream
from pellucid.generation.writing import Writing
from pellucid.inspection.embed import embed
from pellucid.web.errors import ApiError
from pellucid.web.openai.answers import ChatFormat, ChoicesFormat, CompletionFormat, embeddings_answer
from pellucid.web.openai.constrained import constraint_for, read_form
from pellucid.web.openai.engine_thread import EngineThread, Job
from pellucid.web.openai.metrics import CONTENT_TYPE, metrics_page
from pellucid.web.openai.prompts import Prompt, read_messages, read_prompts
from pellucid.web.openai.responses import ResponseFormat
from pellucid.web.openai.schemas import (
    ChatRequest,
    ChoicesRequest,
    CompletionRequest,
    EmbeddingRequest,
    GenerationRequest,
    ResponseRequest,
)
from pellucid.web.openai.served import Served, ServedRun

Json = dict[str, Any]


def openai_routes(runs: Mapping[str, ServedRun]) -> APIRouter:
    """Models, completions, chats, responses and embeddings; `model` is the name of a run, each with its own engine."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        yield
        for run in runs.values():
            run.close()

    async def named(model: str) -> Served:
        if model not in runs:
            message = f"model: {model[:80]!r} is not here; ask for {' or '.join(map(repr, runs))}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return await runs[model].current()

    routes = APIRouter(lifespan=lifespan)

    @routes.get("/metrics")
    async def metrics() -> Response:
        page = metrics_page({name: run.totals for name, run in runs.items()})
        return Response(page, headers={"Content-Type": CONTENT_TYPE})

    @routes.get("/v1/models")
    async def models() -> JSONResponse:
        """List the available models. If there is none, say why not."""
        available: list[Json] = []
        problem: PellucidError | None = None
        for name in runs:
            try:
                available.append(_described(await named(name)))
            except PellucidError as error:
                problem = error
        if problem and not available:
            raise problem
        return JSONResponse({"object": "list", "data": available})

    @routes.get("/v1/models/{model}")
    async def model(model: str) -> JSONResponse:
        return JSONResponse(_described(await named(model)))

    @routes.post("/v1/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        served = await named(body.model)
        prompts = read_prompts(body, served.engine.tokenizer)
        return await _answer(request, served, body, prompts, CompletionFormat(served.engine.tokenizer, body, prompts))

    @routes.post("/v1/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        served = await named(body.model)
        prompt = read_messages(body.messages, body.most_new_tokens, served)
        if body.top_logprobs and not body.logprobs:
            raise ApiError(400, 'top_logprobs: only with "logprobs": true', param="top_logprobs")
        return await _answer(request, served, body, [prompt], ChatFormat(served.engine.tokenizer, body))

    @routes.post("/v1/responses")
    async def responses(body: ResponseRequest, request: Request) -> Response:
        served, asked = await named(body.model), body.max_output_tokens
        if body.previous_response_id is not None:
            message = "previous_response_id: no answers are kept here; send the turns so far, and this one, in input"
            raise ApiError(400, message, param="previous_response_id")
        prompt = read_messages(body.messages, asked, served, field="input", instructions=body.instructions)
        return await _answer(request, served, body, [prompt], ResponseFormat(body))

    @routes.post("/v1/embeddings")
    async def embeddings(body: EmbeddingRequest) -> JSONResponse:
        """The mean of the last layer's vectors over the tokens of a text, as `pellucid embed` computes it."""
        served, started = await named(body.model), time.perf_counter()
        model, tokenizer = served.engine.model, served.engine.tokenizer
        try:
            embedded = await served.engine.call(partial(embed, model, tokenizer, body.texts))
        except DataError as error:
            raise ApiError(400, f"input: {error}", param="input") from None
        n_tokens = sum(1 + len(tokenizer.encode(text)) for text in body.texts)
        served.engine.totals.add(time.perf_counter() - started, n_tokens, 0)
        is_base64 = body.encoding_format == "base64"
        return JSONResponse(embeddings_answer(embedded.vectors, served.name, is_base64, n_tokens))

    return routes


async def _answer(
    request: Request,
    served: Served,
    body: GenerationRequest,
    prompts: Sequence[Prompt],
    form: ChoicesFormat | ResponseFormat,
) -> Response:
    """n texts after each prompt; generation stops when the client disconnects."""
    if isinstance(body, ChoicesRequest) and body.wants_usage and not body.stream:
        raise ApiError(400, 'stream_options: only with "stream": true', param="stream_options")
    for prompt in prompts:
        if (body.min_tokens or 0) > prompt.max_new_tokens:
            message = f"min_tokens: {body.min_tokens} are more than the {prompt.max_new_tokens} of max_tokens"
            raise ApiError(400, message, param="min_tokens")
    sampling, tokenizer = body.sampling, served.engine.tokenizer
    wanted = await asyncio.to_thread(read_form, body, tokenizer)  # a large one takes a second
    writings = [
        Writing(
            prompt.ids,
            prompt.max_new_tokens,
            sampling,
            body.seed_of(choice),
            TextStream(tokenizer, body.stops, goes_on=prompt.ids[-1] not in tokenizer.control_ids),
            n_likeliest=form.n_likeliest,
            scores_prompt=form.scores_prompt,
            stop_ids=body.stop_token_ids or (),
            min_new_tokens=body.min_tokens or 0,
            constraint=constraint_for(wanted, body, choice),
        )
        for prompt in prompts
        for choice in range(form.n_choices)
    ]
    job = served.engine.submit(writings, is_streamed=bool(body.stream))
    about, n_prompt_tokens = {"model": served.name, **_warning(prompts, served)}, sum(len(p.ids) for p in prompts)
    if body.stream:
        return EventStream(form.events(job, about, n_prompt_tokens), served.engine, job)
    try:
        if not await _ends_before_the_client_goes(job, request):
            return Response(status_code=499)  # never read
    finally:
        served.engine.release(job)
    return JSONResponse(form.whole(job, about, n_prompt_tokens))


class EventStream(StreamingResponse):
    """A stream whose end also ends the job, even if the client disconnects before the first event."""

    def __init__(self, events: AsyncIterator[bytes], engine: EngineThread, job: Job) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._engine, self._job = engine, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._engine.release(self._job)


async def _ends_before_the_client_goes(job: Job, request: Request) -> bool:
    ending, going = asyncio.ensure_future(job.end()), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({ending, going}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
        return ending.done()
    finally:
        ending.cancel()
        going.cancel()


def _warning(prompts: Sequence[Prompt], served: Served) -> Json:
    """The field `warning`, which OpenAI's answers lack, for a prompt that was too long for the context."""
    room = served.trained.model.max_positions
    n_unread = max(len(prompt.ids) for prompt in prompts) - room
    cut = f"the prompt is longer than the context; its first {n_unread} tokens were not read" if n_unread > 0 else None
    warnings = [warning for warning in (*(prompt.warning for prompt in prompts), cut) if warning]
    return {"warning": "; ".join(warnings)} if warnings else {}


def _described(served: Served) -> Json:
    return {
        "id": served.name,
        "object": "model",
        "created": served.loaded_at,
        "owned_by": "pellucid",
        "step": served.trained.step,
        "context_length": served.trained.model.context_length,
        "has_chat_template": served.engine.tokenizer.has_chat_tokens,
    }
