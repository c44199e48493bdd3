"""The page's requests to the server; docs/microscope.md shows the answers. Unknown keys are refused."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from pellucid.inspection.knock_out import N_DOCUMENTS
from pellucid.web.microscope import Changes

MAX_CHARACTERS = 50_000  # more than any context; a longer request is a mistake
N_FABLES, MOST_FABLES = N_DOCUMENTS, 1000  # held-out texts for one request: as many as `pellucid heads` reads

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Place = tuple[Literal["head"], int, int] | tuple[Literal["attention", "feed_forward"], int]
Switched = Annotated[list[Place], Field(max_length=4096)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoint: str = Field(max_length=300)  # a name from /api/run


class TextRequest(Request):
    text: Text


class TraceRequest(TextRequest):
    """at: the token whose logits are wanted, by default the last. knock_out: places to knock out or patch."""

    at: int | None = Field(default=None, ge=0)
    knock_out: Switched = []
    patch_text: Text | None = None

    @property
    def changes(self) -> Changes:
        return Changes(self.knock_out, self.patch_text)


class InsideRequest(TraceRequest):
    layer: int = Field(ge=0)


class KnockOutRequest(Request):
    """n: the number of held-out fables to read with each part knocked out."""

    n: int = Field(default=N_FABLES, ge=2, le=MOST_FABLES)
