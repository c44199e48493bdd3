"""From logits to the next token: pure functions, one per idea.

The model gives a logit for each token of the vocabulary. A bias makes chosen tokens likelier or less likely, penalties
those that have occurred, temperature flattens or sharpens the distribution, top-k, top-p and min-p cut off its unlikely
tail, and `draw` picks one token. `next_token` does all of this in order.

Shapes: B samples, V vocabulary, C candidates (the tokens that top-k and top-p still allow, most likely first).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pellucid.errors import ConfigError, NonFiniteError

FAULTS = {  # of each setting: what is wrong with a value, and what to do
    "temperature": ("is not a finite number >= 0", "0 is greedy, 1 is the model's own"),
    "top_k": ("keeps no token", "give at least 1, or leave it out to keep all"),
    "top_p": ("is not in (0, 1]", "give a probability, or leave it out to keep all"),
    "min_p": ("is not in [0, 1]", "give a share of the highest probability, or leave it out to keep all"),
    "repetition_penalty": ("is not a finite number > 0", "1 disables it, 1.2 is typical"),
    "presence_penalty": ("is not in [-2, 2]", "0 disables it, 0.5 is typical"),
    "frequency_penalty": ("is not in [-2, 2]", "0 disables it, 0.5 is typical"),
}


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. `None` keeps all tokens; temperature 0 takes the likeliest (greedy).

    A repetition_penalty of 1 and other penalties of 0 change nothing. Raises ConfigError for a value out of range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)  # token id: what is added to its logit

    @property
    def looks_back(self) -> bool:
        """Whether it asks which tokens have occurred."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    def __post_init__(self) -> None:
        is_valid = {  # NaN, which compares false with everything, is not
            "temperature": 0 <= self.temperature < math.inf,
            "top_k": self.top_k is None or self.top_k >= 1,
            "top_p": self.top_p is None or 0 < self.top_p <= 1,
            "min_p": self.min_p is None or 0 <= self.min_p <= 1,
            "repetition_penalty": 0 < self.repetition_penalty < math.inf,
            "presence_penalty": abs(self.presence_penalty) <= 2,
            "frequency_penalty": abs(self.frequency_penalty) <= 2,
        }
        for name in [name for name, is_so in is_valid.items() if not is_so]:
            raise ConfigError(name, f"{getattr(self, name)} {FAULTS[name][0]}", FAULTS[name][1])


def are_distributions(logits_BV: Tensor) -> list[bool]:
    """Whether each row can be drawn from: its largest logit is a number, not NaN or infinity."""
    return [math.isfinite(largest) for largest in logits_BV.amax(dim=-1).tolist()]


def no_distribution() -> NonFiniteError:
    """For a row that cannot be drawn from."""
    fix = "check its weights with `pellucid verify RUN`, or train in another train.precision"
    return NonFiniteError("the model", "its logits are NaN or infinite", fix)


def next_token(
    logits_BV: Tensor, sampling: Sampling, random: torch.Generator | Tensor, past: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Choose one token id per row, (B,), as `sampling` says (equations 19, 20, 43, 44 and 51).

    The order is that of vLLM and Hugging Face (bias, penalties, temperature, top-k, top-p, min-p), but top-k comes
    before temperature: temperature never changes the order of the tokens, and to scale k candidates is cheaper.
    `random`: where random numbers come from, or one in [0, 1) for each row, (B, 1). `past`, which penalties need: which
    tokens have occurred, and how often each was written, (B, V). The rows must be distributions (`are_distributions`).
    """
    if sampling.looks_back or sampling.logit_bias:
        from pellucid.generation.penalties import with_bias_and_penalties  # few texts ask for it

        logits_BV = with_bias_and_penalties(logits_BV.float(), sampling, past)
    if sampling.temperature == 0 or sampling.top_k == 1:  # greedy
        return logits_BV.argmax(dim=-1)
    logits_BV = logits_BV.float()
    if sampling.top_k is None and sampling.top_p in (None, 1):
        logits_BV = apply_temperature(logits_BV, sampling.temperature)
        return draw(keep_min_p(logits_BV, sampling.min_p or 0.0), random)
    logits_BC, token_ids_BC = keep_top_k(logits_BV, sampling.top_k or logits_BV.shape[-1])
    logits_BC = apply_temperature(logits_BC, sampling.temperature)
    logits_BC = keep_top_p(logits_BC, sampling.top_p or 1.0)
    choice_B = draw(keep_min_p(logits_BC, sampling.min_p or 0.0), random)
    return token_ids_BC.gather(-1, choice_B[:, None])[:, 0]


def apply_temperature(logits_BV: Tensor, temperature: float) -> Tensor:
    """Divide by the temperature alpha, so that p_i ~ exp(z_i / alpha) (equation 19).

    The largest logit is moved to 0 first, which leaves the distribution as it is: then the smallest temperature
    sends the others to -infinity at worst, never the largest to +infinity, whose softmax would be NaN.
    """
    if temperature == 1:
        return logits_BV
    float32 = torch.finfo(torch.float32)
    divisor = min(max(temperature, float32.tiny), float32.max)
    return (logits_BV - logits_BV.amax(dim=-1, keepdim=True)) / divisor


def keep_top_k(logits_BV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest logits, largest first, and the token ids they belong to: two (B, C) tensors, C = min(k, V)."""
    top = logits_BV.topk(min(k, logits_BV.shape[-1]), dim=-1, sorted=True)
    return top.values, top.indices


def keep_top_p(logits_BC: Tensor, p: float) -> Tensor:
    """Set to -infinity all tokens outside the smallest set with probability >= p (Holtzman et al. 2020).

    Expects the most likely token first. A token stays if those before it do not reach p yet, so the first always stays.
    """
    if p == 1:  # rounding of the sum must not cut the tail
        return logits_BC
    probabilities_BC = logits_BC.softmax(dim=-1)
    mass_before_BC = probabilities_BC.cumsum(dim=-1) - probabilities_BC
    smallest = torch.finfo(torch.float32).tiny  # below it p would be 0, which the first token reaches too
    return logits_BC.masked_fill(mass_before_BC >= max(p, smallest), -math.inf)


def keep_min_p(logits_BC: Tensor, p: float) -> Tensor:
    """Set to -infinity all tokens less than p times as likely as the likeliest (equation 43; Nguyen et al. 2024).

    So the model keeps many tokens where it is unsure, and few where it is sure. In any order; the likeliest stays.
    """
    if p == 0:
        return logits_BC
    probabilities_BC = logits_BC.softmax(dim=-1)
    return logits_BC.masked_fill(probabilities_BC < p * probabilities_BC.amax(dim=-1, keepdim=True), -math.inf)


def draw(logits_BC: Tensor, random: torch.Generator | Tensor) -> Tensor:
    """Draw one index per row, (B,), with probability softmax(logits).

    This needs one random number per row; torch.multinomial draws V of them and was 5 to 20 times slower on a CPU.
    """
    if isinstance(random, torch.Generator):
        random = torch.rand(logits_BC[:, :1].shape, generator=random, device=logits_BC.device)
    return token_at(logits_BC.softmax(dim=-1), random)


def token_at(probabilities_BC: Tensor, uniforms_B1: Tensor) -> Tensor:
    """The index per row, (B,), that a random number in [0, 1) chooses.

    The tokens lie side by side on a line, each as long as its probability. A point thrown on the line hits one of them.
    """
    ends_BC = probabilities_BC.cumsum(dim=-1)
    points_B1 = ends_BC[:, -1:] * uniforms_B1  # the line is as long as 1, up to rounding
    # The first token that ends beyond the point: one of probability 0 ends where it begins, and is never hit.
    return torch.searchsorted(ends_BC, points_B1, right=True)[:, 0]
