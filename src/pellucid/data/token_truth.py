"""The truth about the tokens of a validation file, as `truth.py` has computed it: read through a memory map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NATS_FILE, SKILLS_FILE = "val.nats.bin", "val.skills.bin"
CERTAIN_NATS = 1e-9  # below rounding errors: only one token is possible


@dataclass(frozen=True)
class TokenTruth:
    """The truth about each target of a token file, beginning with tokens[1].

    nats: −log p(token | tokens before it) under the corpus's own distribution (n_targets,). 0 in prompts.
    characters: the characters of each skill that count for a token (n_targets, skills); see `skill_characters`.
    """

    skills: tuple[str, ...]
    nats: NDArray[np.float64]
    characters: NDArray[np.uint8]

    @classmethod
    def open(cls, directory: Path, skills: Sequence[str]) -> TokenTruth:
        """Map the files that `write_truth` wrote into memory."""
        nats = np.memmap(directory / NATS_FILE, dtype="<f8", mode="r")
        characters = np.memmap(directory / SKILLS_FILE, dtype=np.uint8, mode="r")
        return cls(tuple(skills), np.asarray(nats), np.asarray(characters).reshape(-1, len(skills)))

    def shares(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The share of each skill in the targets at these places: (places, skills), rows sum to 1."""
        shares = self.characters[places].astype(np.float64)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    @property
    def certain(self) -> NDArray[np.bool_]:
        """Mask of the targets where only one token is possible, so that a model is right or wrong."""
        return self.nats < CERTAIN_NATS
