"""The formats of OpenAI's answers, complete or streamed, for completions and chats.

A choice is the number of a text; each prompt has `n` of them.
"""

import base64
import codecs
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import accumulate
from typing import Any
from uuid import uuid4

import numpy as np

from pellucid.corpora.thinking import apart
from pellucid.generation.stream import Piece, Token
from pellucid.inspection.embed import Floats
from pellucid.tokenizer import Tokenizer
from pellucid.web.errors import ApiError
from pellucid.web.openai.engine_thread import Job
from pellucid.web.openai.prompts import Prompt
from pellucid.web.openai.schemas import ChatRequest, ChoicesRequest, CompletionRequest

Json = dict[str, Any]

REASONS = {"end_of_text": "stop", "stop": "stop", "length": "length", None: None}


class ChoicesFormat(ABC):
    """An answer of one or several choices."""

    object: str
    chunk_object: str
    scores_prompt = False
    n_likeliest: int | None

    def __init__(self, tokenizer: Tokenizer, body: ChoicesRequest, kind: str) -> None:
        self._head = {"id": f"{kind}-{uuid4().hex}", "created": int(time.time())}
        self._tokenizer, self.n_choices, self._wants_usage = tokenizer, body.n or 1, body.wants_usage

    def whole(self, job: Job, about: Json, n_prompt_tokens: int) -> Json:
        """The answer to a job that has ended. about: the model's name, and perhaps a warning."""
        choices = [self.choice(i, writing.pieces, writing.prompt_tokens) for i, writing in enumerate(job.writings)]
        read, new, total = token_counts(job, n_prompt_tokens)
        usage = {"prompt_tokens": read, "completion_tokens": new, "total_tokens": total}
        return {**self._head, **about, "object": self.object, "choices": choices, "usage": usage}

    async def events(self, job: Job, about: Json, n_prompt_tokens: int) -> AsyncIterator[bytes]:
        """The answer as it is written: an event per piece of a text, and the token counts if they are requested."""
        head = {**self._head, **about, "object": self.chunk_object, **({"usage": None} if self._wants_usage else {})}
        n_open, has_begun = len(job.writings), [False] * len(job.writings)
        try:
            while n_open:
                for number, piece in await job.news():
                    if not has_begun[number]:
                        has_begun[number] = True
                        for chunk in self.first_chunks(number, job.writings[number].prompt_tokens):
                            yield event({**head, "choices": [chunk]})
                    yield event({**head, "choices": [self.chunk(number, piece)]})
                    n_open -= piece.finish_reason is not None
            if self._wants_usage:
                yield event({**head, "choices": [], "usage": self.whole(job, about, n_prompt_tokens)["usage"]})
        except ApiError as error:
            told = {"message": error.message, "type": "server_error", "param": None, "code": error.code}
            yield event({"error": told})
        yield b"data: [DONE]\n\n"

    @abstractmethod
    def choice(self, number: int, pieces: Sequence[Piece], prompt_tokens: Sequence[Token]) -> Json:
        """A complete text."""

    @abstractmethod
    def first_chunks(self, number: int, prompt_tokens: Sequence[Token]) -> Iterator[Json]:
        """The chunks of a stream before the first piece."""

    @abstractmethod
    def chunk(self, number: int, piece: Piece) -> Json:
        """A piece of a text."""


class CompletionFormat(ChoicesFormat):
    """The answers of /v1/completions. With an echo, the prompt comes before each text."""

    object = chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, body: CompletionRequest, prompts: Sequence[Prompt]) -> None:
        super().__init__(tokenizer, body, "cmpl")
        self._prompts = prompts
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
        return self._prompts[number // self.n_choices]

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
        """The likeliest tokens and the chosen one, as OpenAI gives them."""
        both = [*token.likeliest, *([] if token.log_p is None else [(token.id, token.log_p)])]
        return {token_name(self._tokenizer, id_): log_p for id_, log_p in both}

    def _scores_of_prompt(self, number: int, read: Sequence[Token]) -> Json:
        """The scores of the prompt's tokens; unread tokens, and the first one read, have none."""
        ids = self._prompt(number).ids
        tokens = [Token(id_, 0) for id_ in ids[: len(ids) - len(read)]] + list(read)
        scores = self._scores(tokens, 0)
        assert scores is not None
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        lengths = map(len, map(decoder.decode, self._tokenizer.spelled(ids)))
        scores["text_offset"] = list(accumulate(lengths, initial=0))[: len(ids)]
        scores["top_logprobs"] = [likeliest or None for likeliest in scores["top_logprobs"]]
        return scores


class ChatFormat(ChoicesFormat):
    """The answers of /v1/chat/completions. A thought that one begins with stands apart, in `reasoning_content`."""

    object, chunk_object = "chat.completion", "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, body: ChatRequest) -> None:
        super().__init__(tokenizer, body, "chatcmpl")
        self.n_likeliest = (body.top_logprobs or 0) if body.logprobs else None
        self._written = [""] * self.n_choices

    def choice(self, number: int, pieces: Sequence[Piece], prompt_tokens: Sequence[Token]) -> Json:
        thought, answer = apart("".join(piece.text for piece in pieces))
        message = {"role": "assistant", "content": answer, "refusal": None}
        message |= {"reasoning_content": thought} if thought else {}
        scores = self._scores([token for piece in pieces for token in piece.tokens])
        reason = REASONS[pieces[-1].finish_reason]
        return {"index": number, "message": message, "logprobs": scores, "finish_reason": reason}

    def first_chunks(self, number: int, prompt_tokens: Sequence[Token]) -> Iterator[Json]:
        delta = {"role": "assistant", "content": ""}
        yield {"index": number, "delta": delta, "logprobs": None, "finish_reason": None}

    def chunk(self, number: int, piece: Piece) -> Json:
        before, is_last = self._written[number], piece.finish_reason is not None
        self._written[number] += piece.text
        known, now = apart(before, is_whole=False), apart(self._written[number], is_whole=is_last)
        names = "reasoning_content", "content"
        new = {name: text[len(old) :] for name, text, old in zip(names, now, known, strict=True)}
        delta = {name: text for name, text in new.items() if text}
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


def event(data: Json) -> bytes:
    """A server-sent event; its name is the `type` of the data, if they have one."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def token_counts(job: Job, n_prompt_tokens: int) -> tuple[int, int, int]:
    """Tokens read, written and together: without the token that ends a text, but with those of a stop string."""
    ended = sum(writing.pieces[-1].finish_reason == "end_of_text" for writing in job.writings)
    n_new = sum(len(writing.token_ids) for writing in job.writings) - ended
    return n_prompt_tokens, n_new, n_prompt_tokens + n_new


def embeddings_answer(vectors: Floats, model: str, is_base64: bool, n_tokens: int) -> Json:
    """The answer of /v1/embeddings. In base64, as OpenAI's client asks, a number is 4 bytes of float32."""

    def shown(vector: Floats) -> str | list[float]:
        return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode() if is_base64 else vector.tolist()

    data = [{"object": "embedding", "index": i, "embedding": shown(vector)} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def token_name(tokenizer: Tokenizer, id_: int) -> str:
    """A token's text; its bytes, in OpenAI's notation, if they are not complete characters; a control token's name."""
    spelled = tokenizer.token_bytes(id_)
    try:
        return spelled.decode() or tokenizer.control_token(id_)
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
