"""Scores of heads on random tokens read twice, where only the order of the tokens can guide attention.

At every token of the second half, four positions each stand for one known behaviour of heads, and a head's score is the
mean weight that it puts there:

    previous token   t - 1        copies information about the token before
    induction        t - n + 1    the token after the earlier occurrence (Olsson et al. 2022, prefix matching)
    same token       t - n        the earlier occurrence (duplicate-token heads; Wang et al. 2022)
    first token      0            a sink for attention that is not needed (Xiao et al. 2023)

Shapes: H heads, T positions as queries, S as keys, n tokens that are repeated.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.inspection.interventions import attention_of
from pellucid.inspection.trace import trace
from pellucid.model.decoder import Decoder
from pellucid.tables import table
from pellucid.tokenizer import Tokenizer

SCORES = ("previous token", "induction", "same token", "first token")
UNCLASSIFIED = "unclassified"
LEAST_NAMED_SCORE = 0.4  # over 65 tokens, evenly spread attention gives each of the four about 2 %
LONGEST_REPEATED, FEWEST_REPEATED = 32, 3  # tokens; in fewer, two of the four positions would be the same
N_SEQUENCES = 8


@dataclass(frozen=True)
class HeadScores:
    """The mean weight that a head puts on each of the four positions."""

    layer: int
    head: int
    scores: dict[str, float]

    @property
    def name(self) -> str:
        """The behaviour with the highest score, if that is at least 40 %; else "unclassified"."""
        best = max(self.scores, key=lambda name: self.scores[name])
        return best if self.scores[best] >= LEAST_NAMED_SCORE else UNCLASSIFIED

    def to_json(self) -> dict[str, object]:
        return {"layer": self.layer, "head": self.head, "name": self.name, "scores": self.scores}


def head_scores(
    model: Decoder, tokenizer: Tokenizer, seed: int = 0, tokens: Iterable[int] | None = None
) -> list[HeadScores]:
    """Score all heads, layer by layer, on 8 sequences of random tokens, or of these alone, from this seed.

    ConfigError for a context too short to read three tokens twice, for fewer tokens, or for attention weights that do
    not sum to 1.
    """
    tokens = range(tokenizer.vocab_size) if tokens is None else tokens
    words = sorted({*tokens} - {*tokenizer.control_ids, tokenizer.end_of_text})
    if len(words) < FEWEST_REPEATED:
        what = f"{len(words)} different tokens are too few: {FEWEST_REPEATED} are read twice"
        raise ConfigError("heads", what, "take a run whose text has more")
    in_sight = min(getattr(attention_of(model, layer), "window", sys.maxsize) for layer in range(model.n_layers)) - 1
    n = min(max(FEWEST_REPEATED, in_sight), LONGEST_REPEATED, len(words), (model.context_length - 1) // 2)
    if n < FEWEST_REPEATED:
        what = f"{model.context_length} tokens of context are too few to read {FEWEST_REPEATED} tokens twice"
        raise ConfigError("heads", what, f"take a model with model.context_length of {2 * FEWEST_REPEATED + 1} or more")
    rng = torch.Generator().manual_seed(seed)
    scores_LH4 = torch.zeros(())
    for _ in range(N_SEQUENCES):
        drawn = [words[i] for i in torch.randperm(len(words), generator=rng)[:n].tolist()]
        weights_LHTS = trace(model, [tokenizer.end_of_text, *drawn, *drawn]).shares("heads")
        scores_LH4 = scores_LH4 + scores_of(weights_LHTS, n) / N_SEQUENCES
    return [
        HeadScores(layer, head, dict(zip(SCORES, scores_4, strict=True)))
        for layer, scores_H4 in enumerate(scores_LH4.tolist())
        for head, scores_4 in enumerate(scores_H4)
    ]


def scores_of(weights_LHTS: Tensor, n: int) -> Tensor:
    """The four scores of each head (L, H, 4) on a text of one token followed by n tokens twice."""
    t = torch.arange(n + 1, 2 * n + 1)
    return torch.stack([weights_LHTS[:, :, t, s].mean(dim=-1) for s in (t - 1, t - n + 1, t - n, t * 0)], dim=-1)


def scores_table(heads: Sequence[HeadScores]) -> str:
    """A table with a row for each head."""
    rows = [
        (f"{each.layer}.{each.head}", *(f"{each.scores[name]:.1%}" for name in SCORES), each.name) for each in heads
    ]
    title = "where heads look when random tokens are read twice: mean weight, in the second half, on"
    return table(("head", *SCORES, "so it is"), rows, above=[title])
