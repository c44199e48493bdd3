"""OpenAI's completions API in front of a run, so that any client of theirs can call your model.

`openai_routes` makes the routes; docs/server.md shows calls. Each answer is put together from the pieces that the
engine writes: as a stream of events, or all at the end.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Protocol
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pellucid.errors import DataError
from pellucid.generation.continuous import Piece, Token
from pellucid.generation.continuous import Request as TextRequest
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids
from pellucid.web.engine import Engine, Job
from pellucid.web.errors import ApiError
from pellucid.web.openai_schemas import ChatRequest, CompletionRequest, GenerationRequest, Message
from pellucid.web.served import Served, ServedRun

Json = dict[str, Any]
Turns = list[tuple[Literal["user", "assistant"], str]]

DEFAULT_NEW_TOKENS = 16  # of a completion, as OpenAI's
REASONS = {"end_of_text": "stop", "stop": "stop", "length": "length", None: None}


def openai_routes(run: ServedRun) -> APIRouter:
    """/v1/models, /v1/completions and /v1/chat/completions of this run. `install_limits` gives errors their shape."""

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        yield
        run.close()

    routes = APIRouter(prefix="/v1", lifespan=lifespan)

    @routes.get("/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [_about(await run.current())]})

    @routes.get("/models/{model}")
    async def model(model: str) -> JSONResponse:
        served = await run.current()
        _require_name(served, model)
        return JSONResponse(_about(served))

    @routes.post("/completions")
    async def completions(body: CompletionRequest, request: Request) -> Response:
        served = await run.current()
        _require_name(served, body.model)
        prompts = read_prompts(body, served.engine.tokenizer)
        return await _answer(request, served, body, prompts, CompletionFormat(served.engine.tokenizer, body, prompts))

    @routes.post("/chat/completions")
    async def chat(body: ChatRequest, request: Request) -> Response:
        served = await run.current()
        _require_name(served, body.model)
        prompt = read_messages(body, served)
        return await _answer(request, served, body, [prompt], ChatFormat(served.engine.tokenizer, body))

    return routes


@dataclass(frozen=True)
class Prompt:
    """What the model reads, and the text that an echo shows. warning: what of it the model does not see."""

    ids: list[int]
    text: str
    max_new_tokens: int
    warning: str | None = None


def read_prompts(body: CompletionRequest, tokenizer: Tokenizer) -> list[Prompt]:
    """ApiError for ids outside the vocabulary and for text that it cannot write."""
    n_new = DEFAULT_NEW_TOKENS if body.max_tokens is None else body.max_tokens
    given = body.prompt
    several = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    prompts = []
    for each in several:
        if isinstance(each, str):
            ids, text = [tokenizer.end_of_text, *_encode(tokenizer, each, "prompt")], each
        else:
            assert isinstance(each, list)
            ids = [id_ for id_ in each if isinstance(id_, int)]
            if bad := [id_ for id_ in ids if not 0 <= id_ < tokenizer.vocab_size]:
                message = f"prompt: {bad[0]} is no token; ids are 0 to {tokenizer.vocab_size - 1}"
                raise ApiError(400, message, param="prompt")
            text = tokenizer.decode(ids)
        prompts.append(Prompt(ids, text, n_new))
    return prompts


def read_messages(body: ChatRequest, served: Served) -> Prompt:
    """The chat template around the messages: as many of the last as leave room for the answer, the oldest go first."""
    tokenizer, model = served.engine.tokenizer, served.trained.model
    if not tokenizer.has_chat_tokens:
        message = f"{served.name} was not trained on conversations; ask /v1/completions, or fine-tune it first: "
        raise ApiError(400, message + "`pellucid train instructions_sft start_from=RUN`", code="no_chat_template")
    turns = _turns(body.messages)
    asked = body.max_completion_tokens or body.max_tokens
    n_wanted = max(1, model.context_length * 3 // 4) if asked is None else asked
    for i, (_, text) in enumerate(turns):
        _encode(tokenizer, text, f"messages.{i}")
    ids, n_left_out = prompt_ids(tokenizer, turns), 0
    while len(turns) > n_left_out + 2 and len(ids) + n_wanted > model.max_positions + 1:
        n_left_out += 2
        ids = prompt_ids(tokenizer, turns[n_left_out:])
    n_new = n_wanted if asked is not None else max(1, min(n_wanted, model.max_positions + 1 - len(ids)))
    warning = f"the first {n_left_out} messages were not read: the context is too short" if n_left_out else None
    return Prompt(ids, "", n_new, warning)


def _turns(messages: Sequence[Message]) -> Turns:
    """What was said before comes first: instructions of a system are the beginning of what the user says first."""
    instructions = [message.text for message in messages[:1] if message.role in ("system", "developer")]
    turns: Turns = []
    for i, message in enumerate(messages[len(instructions) :], start=len(instructions)):
        expected: Literal["user", "assistant"] = "assistant" if len(turns) % 2 else "user"
        if message.role != expected:
            what = f"messages.{i}.role: {message.role!r} where it is the turn of {expected!r}"
            raise ApiError(
                400, f"{what}; after at most one system message, user and assistant alternate", param="messages"
            )
        turns.append((expected, message.text))
    if len(turns) % 2 == 0:
        raise ApiError(400, "messages: the last one must be of the user; add what is to be answered", param="messages")
    turns[0] = ("user", "\n\n".join([*instructions, turns[0][1]]))
    return turns


def _encode(tokenizer: Tokenizer, text: str, param: str) -> list[int]:
    try:
        return tokenizer.encode(text)
    except DataError as error:
        raise ApiError(400, f"{param}: {error.what}; {error.fix}", param=param) from None


class Format(Protocol):
    """How an answer looks. A choice is the number of a text; several belong to each prompt if `n` says so."""

    id: str
    object: str
    chunk_object: str
    scores_prompt: bool
    n_likeliest: int | None

    def choice(self, number: int, pieces: Sequence[Piece], prompt_tokens: Sequence[Token]) -> Json:
        """A whole text."""

    def first_chunks(self, number: int, prompt_tokens: Sequence[Token]) -> Iterator[Json]:
        """What a stream says before anything is written."""

    def chunk(self, number: int, piece: Piece) -> Json:
        """A piece of a text."""


class CompletionFormat:
    """Of /v1/completions. With an echo, the prompt stands before each text."""

    object = chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, body: CompletionRequest, prompts: Sequence[Prompt]) -> None:
        self.id = f"cmpl-{uuid4().hex}"
        self._tokenizer, self._prompts, self._n = tokenizer, prompts, body.n or 1
        self._echo = bool(body.echo)
        self.n_likeliest = body.logprobs
        self.scores_prompt = self._echo and body.logprobs is not None

    def choice(self, number: int, pieces: Sequence[Piece], prompt_tokens: Sequence[Token]) -> Json:
        echo = self._prompt(number).text if self._echo else ""
        scores = self._scores([token for piece in pieces for token in piece.tokens], len(echo))
        if scores and self._echo:
            before = self._scores_of_prompt(number, prompt_tokens)
            scores = {key: before[key] + scores[key] for key in scores}
        return self._choice(number, echo + "".join(piece.text for piece in pieces), scores, pieces[-1].finish_reason)

    def first_chunks(self, number: int, prompt_tokens: Sequence[Token]) -> Iterator[Json]:
        if self._echo:
            scores = self._scores_of_prompt(number, prompt_tokens) if self.scores_prompt else None
            yield self._choice(number, self._prompt(number).text, scores, None)

    def chunk(self, number: int, piece: Piece) -> Json:
        scores = self._scores(piece.tokens, len(self._prompt(number).text) if self._echo else 0)
        return self._choice(number, piece.text, scores, piece.finish_reason)

    def _choice(self, number: int, text: str, scores: Json | None, reason: str | None) -> Json:
        return {"index": number, "text": text, "logprobs": scores, "finish_reason": REASONS[reason]}

    def _prompt(self, number: int) -> Prompt:
        return self._prompts[number // self._n]

    def _scores(self, tokens: Sequence[Token], offset: int) -> Json | None:
        if self.n_likeliest is None:
            return None
        names = [token_name(self._tokenizer, token.id) for token in tokens]
        return {
            "tokens": names,
            "token_logprobs": [token.log_p for token in tokens],
            "top_logprobs": [self._likeliest(token) for token in tokens],
            "text_offset": [offset + token.offset for token in tokens],
        }

    def _likeliest(self, token: Token) -> dict[str, float | None]:
        """The chosen one too, wherever it stands, as OpenAI's."""
        both = [*token.likeliest, *([] if token.log_p is None else [(token.id, token.log_p)])]
        return {token_name(self._tokenizer, id_): log_p for id_, log_p in both}

    def _scores_of_prompt(self, number: int, read: Sequence[Token]) -> Json:
        """What was not read has no score, nor has the first token that was."""
        ids = self._prompt(number).ids
        tokens = [Token(id_, 0) for id_ in ids[: len(ids) - len(read)]] + list(read)
        found = self._scores(tokens, 0)
        assert found is not None
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        lengths = (len(decoder.decode(self._tokenizer.token_bytes(id_))) for id_ in ids)
        found["text_offset"] = list(accumulate(lengths, initial=0))[: len(ids)]
        found["top_logprobs"] = [each or None for each in found["top_logprobs"]]
        return found


class ChatFormat:
    """Of /v1/chat/completions."""

    object, chunk_object = "chat.completion", "chat.completion.chunk"
    scores_prompt = False

    def __init__(self, tokenizer: Tokenizer, body: ChatRequest) -> None:
        self.id = f"chatcmpl-{uuid4().hex}"
        self._tokenizer = tokenizer
        self.n_likeliest = (body.top_logprobs or 0) if body.logprobs else None

    def choice(self, number: int, pieces: Sequence[Piece], prompt_tokens: Sequence[Token]) -> Json:
        message = {"role": "assistant", "content": "".join(piece.text for piece in pieces), "refusal": None}
        scores = self._scores([token for piece in pieces for token in piece.tokens])
        reason = REASONS[pieces[-1].finish_reason]
        return {"index": number, "message": message, "logprobs": scores, "finish_reason": reason}

    def first_chunks(self, number: int, prompt_tokens: Sequence[Token]) -> Iterator[Json]:
        delta = {"role": "assistant", "content": ""}
        yield {"index": number, "delta": delta, "logprobs": None, "finish_reason": None}

    def chunk(self, number: int, piece: Piece) -> Json:
        delta = {"content": piece.text} if piece.text else {}
        reason = REASONS[piece.finish_reason]
        return {"index": number, "delta": delta, "logprobs": self._scores(piece.tokens), "finish_reason": reason}

    def _scores(self, tokens: Sequence[Token]) -> Json | None:
        if self.n_likeliest is None:
            return None
        return {
            "content": [
                {
                    **self._scored(token.id, token.log_p),
                    "top_logprobs": [self._scored(id_, log_p) for id_, log_p in token.likeliest],
                }
                for token in tokens
            ],
            "refusal": None,
        }

    def _scored(self, id_: int, log_p: float | None) -> Json:
        name, bytes_ = token_name(self._tokenizer, id_), list(self._tokenizer.token_bytes(id_))
        return {"token": name, "logprob": log_p, "bytes": bytes_}


def token_name(tokenizer: Tokenizer, id_: int) -> str:
    """Its text; its bytes, as OpenAI writes them, if they are no whole characters; the number of a control token."""
    spelled = tokenizer.token_bytes(id_)
    try:
        return spelled.decode() or f"<|{id_}|>"
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


async def _answer(
    request: Request, served: Served, body: GenerationRequest, prompts: Sequence[Prompt], form: Format
) -> Response:
    """n texts after each prompt. Whoever has gone gets no more written."""
    texts = [
        TextRequest(
            prompt.ids,
            prompt.max_new_tokens,
            body.sampling,
            body.stops,
            body.seed_of(choice),
            form.n_likeliest,
            form.scores_prompt,
        )
        for prompt in prompts
        for choice in range(body.n or 1)
    ]
    job = served.engine.submit(texts, is_streamed=bool(body.stream))
    head = {"id": form.id, "created": int(time.time()), "model": served.name, **_warning(prompts, served)}
    n_prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
    if body.stream:
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        head["object"] = form.chunk_object
        return EventStream(_events(job, form, head, n_prompt_tokens if wants_usage else None), served.engine, job)
    try:
        if not await _ends_before_the_client_goes(job, request):
            return Response(status_code=499)  # nobody reads it
    finally:
        served.engine.release(job)
    choices = [form.choice(i, writing.pieces, writing.prompt_tokens) for i, writing in enumerate(job.writings)]
    return JSONResponse({**head, "object": form.object, "choices": choices, "usage": _usage(job, n_prompt_tokens)})


async def _events(job: Job, form: Format, head: Json, n_prompt_tokens: int | None) -> AsyncIterator[bytes]:
    """Server-sent events: a piece of a text each, and the count of tokens if it is asked for."""
    n_open, has_begun = len(job.writings), [False] * len(job.writings)
    try:
        while n_open:
            for number, piece in await job.news():
                if not has_begun[number]:
                    has_begun[number] = True
                    for chunk in form.first_chunks(number, job.writings[number].prompt_tokens):
                        yield _event({**head, "choices": [chunk]})
                yield _event({**head, "choices": [form.chunk(number, piece)]})
                n_open -= piece.finish_reason is not None
        if n_prompt_tokens is not None:
            yield _event({**head, "choices": [], "usage": _usage(job, n_prompt_tokens)})
    except ApiError as error:
        yield _event({"error": {"message": error.message, "type": "server_error", "param": None, "code": error.code}})
    yield b"data: [DONE]\n\n"


def _event(data: Json) -> bytes:
    return b"data: %b\n\n" % json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


class EventStream(StreamingResponse):
    """However it ends, the job ends with it: also if the client goes before the first event."""

    def __init__(self, events: AsyncIterator[bytes], engine: Engine, job: Job) -> None:
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


def _usage(job: Job, n_prompt_tokens: int) -> Json:
    """A token that ends a text is not counted; those of a stop string are."""
    ended = sum(writing.pieces[-1].finish_reason == "end_of_text" for writing in job.writings)
    n_new = sum(writing.n_new for writing in job.writings) - ended
    return {"prompt_tokens": n_prompt_tokens, "completion_tokens": n_new, "total_tokens": n_prompt_tokens + n_new}


def _warning(prompts: Sequence[Prompt], served: Served) -> Json:
    """A field that OpenAI's answers do not have: only where a prompt was too long for the context."""
    room = served.trained.model.max_positions
    n_unread = max(len(prompt.ids) for prompt in prompts) - room
    cut = f"the prompt is longer than the context; its first {n_unread} tokens were not read" if n_unread > 0 else None
    warnings = [each for each in (*(prompt.warning for prompt in prompts), cut) if each]
    return {"warning": "; ".join(warnings)} if warnings else {}


def _about(served: Served) -> Json:
    return {
        "id": served.name,
        "object": "model",
        "created": served.loaded_at,
        "owned_by": "pellucid",
        "step": served.trained.step,
        "context_length": served.trained.model.context_length,
        "has_chat_template": served.engine.tokenizer.has_chat_tokens,
    }


def _require_name(served: Served, model: str) -> None:
    if model != served.name:
        message = f"model: {model[:80]!r} is not here; ask for {served.name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")
