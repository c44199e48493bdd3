"""The requests that clients of OpenAI's API may send. Unknown fields are refused, rather than silently ignored.

Fields and defaults: https://platform.openai.com/docs/api-reference. `top_k`, `min_p` and `repetition_penalty` are not
among OpenAI's; the Python client sends them with `extra_body`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pellucid.generation.sampling import Sampling

MOST_NEW_TOKENS = 4096
MOST_CHOICES = 16

Text = Annotated[str, Field(min_length=1)]
Zero = Annotated[float, Field(ge=0, le=0)]  # other values are not supported


class Body(BaseModel):
    """A strict model: values must have their types, so "5" is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool = False


class GenerationRequest(Body):
    """The fields that both kinds of completion share. null means the default."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Text | Annotated[list[Text], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=0, le=MOST_NEW_TOKENS)] | None = None
    user: str | None = None
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            temperature=1.0 if self.temperature is None else float(self.temperature),
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty or 1.0,
        )

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def seed_of(self, choice: int) -> tuple[int, int] | None:
        """The seed of a choice: each of several has its own random numbers."""
        return None if self.seed is None else (self.seed % 2**64, choice)


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. A prompt is text or token ids; a list of them asks for `n` texts after each."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_CHOICES)]
        | Annotated[list[int], Field(min_length=1)]
        | Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1, max_length=MOST_CHOICES)]
    ) = ""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: None = None
    best_of: Literal[1] | None = None


class TextPart(Body):
    type: Literal["text"]
    text: str


class Message(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
