"""Knobs of writing: sample texts during training, and the ways to write that an experiment compares (`generation/`)."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from pellucid.config.base import Rule, Section


class DrawingConfig(Section):
    """Settings for drawing each token."""

    temperature: float = Field(1.0, ge=0, description="0 is greedy")
    top_k: int | None = Field(None, ge=1, description="keep only the k most likely tokens")
    top_p: float | None = Field(None, gt=0, le=1, description="keep the fewest tokens with this much probability")
    min_p: float | None = Field(None, ge=0, le=1, description="keep tokens with this share of the highest probability")
    repetition_penalty: float = Field(1.0, gt=0, description="above 1, what has occurred gets less likely")


class SampleConfig(DrawingConfig):
    """Sample texts, written to samples.md at intervals."""

    every_steps: int = Field(500, ge=1)
    n_samples: int = Field(2, ge=1)
    prompt: str = Field("", description="text that each sample continues; empty: the start of a document")
    max_new_tokens: int = Field(256, ge=1)


class WayConfig(DrawingConfig):
    """A named way to write: draw token by token or, with beams, search for the likeliest text."""

    label: str = Field(min_length=1, max_length=30, description="what tables and figures call it")
    beams: int | None = Field(None, ge=1, description="search instead of drawing, with this many texts at once")
    length_penalty: float = Field(1.0, ge=-10, le=10, description="of a search: 0 seeks the likeliest text")

    def _rules(self) -> Iterable[Rule]:
        changed = [name for name, field in DrawingConfig.model_fields.items() if getattr(self, name) != field.default]
        both = self.beams is not None and changed
        yield both, "", "beams search and draw nothing", "leave them out, or the settings of drawing"
