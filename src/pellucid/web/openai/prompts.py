"""Reads the prompt of a request as tokens, or its messages in the chat template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pellucid.errors import DataError
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.chat import prompt_ids
from pellucid.web.errors import ApiError
from pellucid.web.openai.schemas import MOST_NEW_TOKENS, CompletionRequest, Message
from pellucid.web.openai.served import Served

Turns = list[tuple[Literal["user", "assistant"], str]]

DEFAULT_NEW_TOKENS = 16  # of a completion, as in OpenAI's API


@dataclass(frozen=True)
class Prompt:
    """The ids that the model reads, and the text for an echo. warning: about parts that the model does not see."""

    ids: list[int]
    text: str
    max_new_tokens: int
    warning: str | None = None


def read_prompts(body: CompletionRequest, tokenizer: Tokenizer) -> list[Prompt]:
    """The prompts of a completion. ApiError for ids outside the vocabulary and text that it cannot write."""
    n_new = DEFAULT_NEW_TOKENS if body.max_tokens is None else body.max_tokens
    n_new = MOST_NEW_TOKENS if n_new == -1 else n_new
    one_or_more = body.prompt
    is_list = isinstance(one_or_more, list) and not isinstance(one_or_more[0], int)
    prompts = []
    for prompt in one_or_more if is_list else [one_or_more]:
        if isinstance(prompt, str):
            ids, text = [tokenizer.end_of_text, *_encode(tokenizer, prompt, "prompt")], prompt
        else:
            assert isinstance(prompt, list)
            ids = [id_ for id_ in prompt if isinstance(id_, int)]
            if bad := [id_ for id_ in ids if not 0 <= id_ < tokenizer.vocab_size]:
                message = f"prompt: {bad[0]} is no token; ids are 0 to {tokenizer.vocab_size - 1}"
                raise ApiError(400, message, param="prompt")
            text = tokenizer.decode(ids)
        prompts.append(Prompt(ids, text, n_new))
    return prompts


def read_messages(
    messages: Sequence[Message],
    n_requested: int | None,
    served: Served,
    *,
    field: str = "messages",
    instructions: str | None = None,
) -> Prompt:
    """The messages in the chat template; the oldest are left out if there is no room for the answer.

    If the last one is the assistant's, the answer goes on from it. n_requested: new tokens at most; None: as many as
    there is room for. field: where the messages stand in the request.
    """
    tokenizer, model = served.engine.tokenizer, served.trained.model
    if not tokenizer.has_chat_tokens:
        message = f"{served.name} was not trained on conversations; ask /v1/completions, or fine-tune it first: "
        raise ApiError(400, message + "`pellucid train instructions_sft start_from=RUN`", code="no_chat_template")
    turns = _turns(messages, field, instructions)
    begun = _encode(tokenizer, turns.pop()[1], f"{field}.{len(messages) - 1}") if len(turns) % 2 == 0 else []
    n_wanted = max(1, model.context_length * 3 // 4) if n_requested is None else n_requested
    for i, (_, text) in enumerate(turns):
        _encode(tokenizer, text, f"{field}.{i}")
    ids, n_left_out = [*prompt_ids(tokenizer, turns), *begun], 0
    while len(turns) > n_left_out + 2 and len(ids) + n_wanted > model.max_positions + 1:
        n_left_out += 2
        ids = [*prompt_ids(tokenizer, turns[n_left_out:]), *begun]
    n_new = n_wanted if n_requested is not None else max(1, min(n_wanted, model.max_positions + 1 - len(ids)))
    warning = f"the first {n_left_out} messages were not read: the context is too short" if n_left_out else None
    return Prompt(ids, "", n_new, warning)


def _turns(messages: Sequence[Message], field: str, instructions: str | None) -> Turns:
    """The turns of a conversation; instructions, and those of a system message, begin the first one of the user."""
    for i, message in enumerate(messages):
        if message.content is None and message.role != "assistant":
            raise ApiError(400, f"{field}.{i}.content: missing; give a text", param=f"{field}.{i}.content")
        if message.reasoning_content and message.role != "assistant":
            where = f"{field}.{i}.reasoning_content"
            raise ApiError(400, f"{where}: only the assistant has thoughts; leave it out", param=where)
    of_system = [message.text for message in messages[:1] if message.role in ("system", "developer")]
    turns: Turns = []
    for i, message in enumerate(messages[len(of_system) :], start=len(of_system)):
        expected: Literal["user", "assistant"] = "assistant" if len(turns) % 2 else "user"
        if message.role != expected:
            what = f"{field}.{i}.role: {message.role!r} where it is the turn of {expected!r}"
            raise ApiError(400, f"{what}; after at most one system message, user and assistant alternate", param=field)
        turns.append((expected, message.text))
    if not turns:
        raise ApiError(400, f"{field}: none is of the user; add what is to be answered", param=field)
    turns[0] = ("user", "\n\n".join([*filter(None, [instructions]), *of_system, turns[0][1]]))
    return turns


def _encode(tokenizer: Tokenizer, text: str, param: str) -> list[int]:
    try:
        return tokenizer.encode(text)
    except DataError as error:
        raise ApiError(400, f"{param}: {error.what}; {error.fix}", param=param) from None
