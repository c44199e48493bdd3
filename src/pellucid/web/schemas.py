"""What the page asks of the server; docs/microscope.md shows what it answers. Unknown keys are refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pellucid.web.microscope import Changes

MAX_CHARACTERS = 50_000  # more than any context here holds; a longer request is a mistake
N_FABLES, MOST_FABLES = 32, 1000  # held-out texts that are read for one request

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Place = tuple[Literal["head"], int, int] | tuple[Literal["attention", "feed_forward"], int]
Switched = Annotated[list[Place], Field(max_length=4096)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: str = Field(max_length=300)  # as /api/run names it


class TextRequest(Request):
    text: Text


class TraceRequest(TextRequest):
    """at: the token whose logits are wanted; the last one, if None. knock_out: places that give nothing or, with
    patch_text, what they gave for that text.
    """

    at: int | None = Field(default=None, ge=0)
    knock_out: Switched = []
    patch_text: Text | None = None

    @property
    def changes(self) -> Changes:
        return Changes(self.knock_out, self.patch_text)


class InsideRequest(TraceRequest):
    layer: int = Field(ge=0)


class KnockOutRequest(Request):
    """n: how many held-out fables are read with each part knocked out, from the first one on."""

    n: int = Field(default=N_FABLES, ge=2, le=MOST_FABLES)
