"""The requests that clients of OpenAI's API may send. A field that would change the answer is understood or refused.

One that changes nothing is passed over: null, and the values of IDLE. `top_k`, `min_p`, `repetition_penalty`,
`min_tokens` and `stop_token_ids` are not among OpenAI's fields; the Python client sends them with `extra_body`.

Fields and defaults: https://platform.openai.com/docs/api-reference.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field

from pellucid.corpora.thinking import with_thought
from pellucid.generation.sampling import Sampling
from pellucid.web.openai.body import IDLE, IDLE_IN_MESSAGES, IDLE_IN_PARTS, IDLE_IN_RESPONSES, Body
from pellucid.web.openai.forms import AskedForm, AskedFormOfText, Source

MOST_NEW_TOKENS = 4096
MOST_CHOICES = 16

Text = Annotated[str, Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
TokenId = Annotated[int, Field(strict=False)]  # in JSON a key is text

OFF = BeforeValidator(lambda k: None if k in (0, -1) and k is not False else k)  # as vLLM and llama.cpp write it


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class GenerationRequest(Body):
    """The fields that all requests for texts share. null means the default."""

    idle = IDLE
    model: str
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Annotated[int, Field(ge=1, lt=2**31)] | None, OFF] = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None,
        validation_alias=AliasChoices("repetition_penalty", "repeat_penalty"),  # as vLLM and llama.cpp call it
    )
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[TokenId, Annotated[float, Field(ge=-100, le=100)]] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=MOST_NEW_TOKENS)] | None = None
    stop_token_ids: list[int] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Text | Annotated[list[Text], Field(max_length=4)] | None = None
    stream: bool | None = None
    exact: bool | None = None  # whether a text of the form asked for is drawn as the model would write it
    # For the provider's own books:
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def sampling(self) -> Sampling:
        names = {field.name for field in fields(Sampling)}
        return Sampling(**self.model_dump(include=names, exclude_none=True))

    @property
    def form_source(self) -> Source | None:
        """The form that the text must have, in some notation. None: any."""
        return None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def seed_of(self, choice: int) -> tuple[int, int] | None:
        """The seed of a choice: each of several has its own random numbers."""
        return None if self.seed is None else (self.seed % 2**64, choice)


class ChoicesRequest(GenerationRequest):
    """The fields that both kinds of completion share."""

    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=-1, le=MOST_NEW_TOKENS)] | None = None  # -1: until the text ends (llama.cpp)
    response_format: AskedForm | None = None

    @property
    def form_source(self) -> Source | None:
        return None if self.response_format is None else self.response_format.source

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(ChoicesRequest):
    """POST /v1/completions. A prompt is text or token ids; a list of them asks for `n` texts after each."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1, max_length=MOST_CHOICES)]
    ) = ""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None


class EmbeddingRequest(Body):
    """POST /v1/embeddings. Token ids are refused: clients that send some have cut the text by another vocabulary."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class TextPart(Body):
    type: Literal["text"]
    text: str


class Message(Body):
    """A turn of a conversation, also as the server itself answers it. Of an assistant, no content is an empty one."""

    idle = IDLE_IN_MESSAGES
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    reasoning_content: str | None = None  # of an assistant: the thought before its answer
    name: str | None = None  # the chat template has no place for it

    @property
    def text(self) -> str:
        parts = self.content if isinstance(self.content, list) else []
        answer = self.content if isinstance(self.content, str) else "".join(part.text for part in parts)
        return with_thought(self.reasoning_content, answer)


class ChatRequest(ChoicesRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def most_new_tokens(self) -> int | None:
        """None: as many as there is room for."""
        return self.max_completion_tokens or (None if self.max_tokens == -1 else self.max_tokens)


class InputPart(TextPart):
    idle = IDLE_IN_PARTS
    type: Literal["input_text", "output_text"]  # type: ignore[assignment]


class InputMessage(Message):
    """A turn in /v1/responses, also as the server itself answers it."""

    type: Literal["message"] = "message"
    content: str | list[InputPart]  # type: ignore[assignment]
    id: str | None = None
    status: str | None = None


class TextSettings(Body):
    idle = IDLE
    format: AskedFormOfText | None = None


class ResponseRequest(GenerationRequest):
    """POST /v1/responses: text alone. Settings that OpenAI's API lacks there are those of the other routes."""

    idle = IDLE_IN_RESPONSES
    input: str | Annotated[list[InputMessage], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)] | None = None
    previous_response_id: str | None = None
    text: TextSettings | None = None

    @property
    def messages(self) -> Sequence[Message]:
        return [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    @property
    def text_format(self) -> dict[str, Any]:
        asked = None if self.text is None else self.text.format
        return asked.model_dump(by_alias=True, exclude_none=True) if asked else {"type": "text"}

    @property
    def form_source(self) -> Source | None:
        return self.text.format.source if self.text and self.text.format else None
