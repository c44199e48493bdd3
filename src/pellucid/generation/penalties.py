"""A bias and penalties, which change logits before a token is drawn (equations 44 and 51).

Shapes: B samples, V vocabulary, S slots, R rows that write.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.generation.sampling import Sampling


class Past:
    """The tokens that have occurred in each slot: whether at all, and how often after the prompt."""

    def __init__(self, n_slots: int, vocab_size: int, device: torch.device) -> None:
        self._counts_SV = torch.zeros(n_slots, vocab_size, device=device)
        self._seen_SV = self._counts_SV > 0

    def begin(self, slot: int, prompt_ids: Sequence[int]) -> None:
        self._counts_SV[slot] = 0
        self._seen_SV[slot] = False
        self._seen_SV[slot, prompt_ids] = True

    def of(self, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """For these slots, (B, V), as `next_token` asks for it."""
        return self._seen_SV[slots], self._counts_SV[slots]

    def add(self, slots: Sequence[int], drawn_R: Tensor) -> None:
        self._counts_SV[slots, drawn_R] += 1
        self._seen_SV[slots, drawn_R] = True


def with_bias_and_penalties(logits_BV: Tensor, sampling: Sampling, past: tuple[Tensor, Tensor] | None) -> Tensor:
    """The logits that `next_token` draws from, with a `past` as it explains."""
    if sampling.logit_bias:
        logits_BV = add_bias(logits_BV, sampling.logit_bias)
    if sampling.looks_back:
        assert past is not None, "penalties need the tokens so far"
        seen_BV, counts_BV = past
        logits_BV = penalize_repetition(logits_BV, seen_BV, sampling.repetition_penalty)
        logits_BV = penalize_written(logits_BV, counts_BV, sampling.presence_penalty, sampling.frequency_penalty)
    return logits_BV


def add_bias(logits_BV: Tensor, bias: Mapping[int, float]) -> Tensor:
    """Add to the logits of these token ids (equation 51): a bias b multiplies the odds of a token by e^b."""
    require_tokens("logit_bias", bias, logits_BV.shape[-1])
    if bad := [by for by in bias.values() if not abs(by) <= 100]:
        fix = "-100 all but forbids a token, 100 all but forces it"
        raise ConfigError("logit_bias", f"{bad[0]} is not in [-100, 100]", fix)
    ids, biases = torch.tensor(list(bias)), torch.tensor(list(bias.values()), dtype=torch.float32)
    ids, biases = ids.to(logits_BV.device), biases.to(logits_BV.device)
    return logits_BV.index_add(-1, ids, biases.expand(len(logits_BV), -1))


def penalize_repetition(logits_BV: Tensor, seen_BV: Tensor, penalty: float) -> Tensor:
    """Make the tokens that have occurred less likely (equation 44; Keskar et al. 2019). Below 1 they get likelier.

    A logit above 0 is divided by the penalty, one below is multiplied by it, so that both fall. However often a token
    has occurred, it is penalized once.
    """
    float32 = torch.finfo(torch.float32)
    penalty = min(max(penalty, float32.tiny), float32.max)
    penalized_BV = torch.where(logits_BV < 0, logits_BV * penalty, logits_BV / penalty)
    is_possible_BV = logits_BV > -math.inf  # a forbidden token stays forbidden
    return torch.where(seen_BV & is_possible_BV, penalized_BV.clamp(float32.min, float32.max), logits_BV)


def penalize_written(logits_BV: Tensor, counts_BV: Tensor, presence: float, frequency: float) -> Tensor:
    """Make the tokens that were written less likely: once for all times, and once for each time (equation 51).

    https://platform.openai.com/docs/guides/text-generation, "Frequency and presence penalties".
    """
    return logits_BV - presence * (counts_BV > 0) - frequency * counts_BV


def require_tokens(name: str, ids: Iterable[int], vocab_size: int) -> None:
    """Raise ConfigError if one of the ids in this setting is no token."""
    if bad := [id_ for id_ in ids if not 0 <= id_ < vocab_size]:
        raise ConfigError(name, f"{bad[0]} is no token", f"ids are 0 to {vocab_size - 1}")
