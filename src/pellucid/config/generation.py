"""Knobs of writing: sample texts during training (`generation/`)."""

from pydantic import Field

from pellucid.config.base import Section


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
