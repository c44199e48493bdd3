"""From logits to the next token: pure functions, one per idea.

The model gives a logit for each token of the vocabulary. The repetition penalty makes tokens that have occurred less
likely, temperature flattens or sharpens the distribution, top-k, top-p and min-p cut off its unlikely tail, and `draw`
picks one token. `next_token` does all of this in order.

Shapes: B samples, V vocabulary, C candidates (the tokens that top-k and top-p still allow, most likely first).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pellucid.errors import ConfigError, NonFiniteError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. `None` keeps all tokens; temperature 0 takes the likeliest (greedy).

    A repetition_penalty of 1 changes nothing. Raises ConfigError for a value that gives no distribution.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        # Each condition says what is valid, so that NaN, which compares false with everything, is refused.
        if not 0 <= self.temperature < math.inf:
            what = f"{self.temperature} is not a finite number >= 0"
            raise ConfigError("temperature", what, "0 is greedy, 1 is the model's own")
        if self.top_k is not None and not self.top_k >= 1:
            raise ConfigError("top_k", f"{self.top_k} keeps no token", "give at least 1, or leave it out to keep all")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            fix = "give a probability, or leave it out to keep all"
            raise ConfigError("top_p", f"{self.top_p} is not in (0, 1]", fix)
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            fix = "give a share of the highest probability, or leave it out to keep all"
            raise ConfigError("min_p", f"{self.min_p} is not in [0, 1]", fix)
        if not 0 < self.repetition_penalty < math.inf:
            what = f"{self.repetition_penalty} is not a finite number > 0"
            raise ConfigError("repetition_penalty", what, "1 disables it, 1.2 is typical")


def are_distributions(logits_BV: Tensor) -> list[bool]:
    """Whether each row can be drawn from: its largest logit is a number, not NaN or infinity."""
    return [math.isfinite(largest) for largest in logits_BV.amax(dim=-1).tolist()]


def no_distribution() -> NonFiniteError:
    """For a row that cannot be drawn from."""
    fix = "check its weights with `pellucid verify RUN`, or train in another train.precision"
    return NonFiniteError("the model", "its logits are NaN or infinite", fix)


def next_token(
    logits_BV: Tensor, sampling: Sampling, random: torch.Generator | Tensor, seen_BV: Tensor | None = None
) -> Tensor:
    """Choose one token id per row, (B,), as `sampling` says (equations 19, 20, 43 and 44).

    The order is that of Hugging Face (repetition penalty, temperature, top-k, top-p, min-p), but top-k comes
    before temperature: temperature never changes the order of the tokens, and to scale k candidates is cheaper.
    `random`: where random numbers come from, or one in [0, 1) for each row, (B, 1). `seen_BV` marks the tokens that
    have occurred; only a repetition penalty needs it. The rows must be distributions (`are_distributions`).
    """
    if sampling.repetition_penalty != 1:
        assert seen_BV is not None, "a repetition penalty needs the tokens so far"
        logits_BV = penalize_repetition(logits_BV.float(), seen_BV, sampling.repetition_penalty)
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
