"""The answers of /v1/responses: one message of text, whole, or as events whose types say what each adds.

The fields and events are those of https://platform.openai.com/docs/api-reference/responses, as far as text needs them.
"""

import time
from collections.abc import AsyncIterator
from itertools import count
from uuid import uuid4

from pellucid.web.errors import ApiError
from pellucid.web.openai.answers import Json, event, token_counts
from pellucid.web.openai.engine_thread import Job
from pellucid.web.openai.schemas import ResponseRequest


class ResponseFormat:
    """The answer to one request. What was asked for comes back in it, as OpenAI's API has it."""

    n_choices, n_likeliest, scores_prompt = 1, None, False

    def __init__(self, body: ResponseRequest) -> None:
        self._id, self._message_id = f"resp_{uuid4().hex}", f"msg_{uuid4().hex}"
        self._head: Json = {"id": self._id, "object": "response", "created_at": int(time.time())}
        asked = {"instructions", "max_output_tokens", "metadata", "previous_response_id", "temperature", "top_p"}
        self._asked = {**body.model_dump(include=asked), "text": {"format": body.text_format}, "truncation": "auto"}
        self._asked |= {"tools": [], "tool_choice": "none", "parallel_tool_calls": False, "store": False}

    def whole(self, job: Job, about: Json, n_prompt_tokens: int) -> Json:
        """The answer to a job that has ended. about: the model's name, and perhaps a warning."""
        [writing] = job.writings
        is_cut = writing.finish_reason == "length"
        status = "incomplete" if is_cut else "completed"
        read, new, total = token_counts(job, n_prompt_tokens)
        message = self._message(status, [_part("".join(piece.text for piece in writing.pieces))])
        return {
            **self._response(about, status, [message]),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {
                "input_tokens": read,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": new,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": total,
            },
        }

    async def events(self, job: Job, about: Json, n_prompt_tokens: int) -> AsyncIterator[bytes]:
        """The answer as it is written: what begins, each piece of the text, and what is complete."""
        numbers = count()

        def numbered(kind: str, **what: object) -> bytes:
            return event({"type": f"response.{kind}", "sequence_number": next(numbers), **what})

        begun = self._response(about, "in_progress", [])
        place = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        yield numbered("created", response=begun)
        yield numbered("in_progress", response=begun)
        yield numbered("output_item.added", output_index=0, item=self._message("in_progress", []))
        yield numbered("content_part.added", **place, part=_part(""))
        is_open = True
        try:
            while is_open:
                for _, piece in await job.news():
                    if piece.text:
                        yield numbered("output_text.delta", **place, delta=piece.text, logprobs=[])
                    is_open = piece.finish_reason is None
        except ApiError as error:
            why = {"code": "server_error", "message": error.message}
            yield numbered("failed", response={**begun, "status": "failed", "error": why})
            return
        answer = self.whole(job, about, n_prompt_tokens)
        [message] = answer["output"]
        [part] = message["content"]
        yield numbered("output_text.done", **place, text=part["text"], logprobs=[])
        yield numbered("content_part.done", **place, part=part)
        yield numbered("output_item.done", output_index=0, item=message)
        yield numbered(answer["status"], response=answer)

    def _response(self, about: Json, status: str, output: list[Json]) -> Json:
        unknown_yet = {"error": None, "incomplete_details": None, "usage": None}
        return {**self._head, **about, "status": status, "output": output, **unknown_yet, **self._asked}

    def _message(self, status: str, content: list[Json]) -> Json:
        head = {"id": self._message_id, "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
