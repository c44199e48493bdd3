"""Beam search: not a draw, but a search for the text that the model finds likeliest.

Greedy search takes the likeliest token at each step, and may miss a likelier text that begins with a less likely token.
Beam search keeps the N likeliest beginnings (the *beams*) and goes on with all of them at once.

Shapes: B beams, V vocabulary, C candidates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.generation.in_step import InStep, latest
from pellucid.generation.sampling import are_distributions, no_distribution
from pellucid.model.language_model import LanguageModel, eval_mode

MOST_BEAMS = 1000  # a step of more takes so long that Ctrl-C seems to do nothing


class Beam(NamedTuple):
    """A beginning of a text: its tokens, ln p of them all, and the row of the beam before that it continues."""

    token_ids: list[int]
    log_p: float
    row: int


@dataclass(frozen=True)
class Continuation:
    """A text that the search has finished: its tokens, with the end_of_text that may end it, and its score."""

    token_ids: list[int]
    score: float


@torch.inference_mode()
def beam_search(
    model: LanguageModel,
    prompt_ids: Sequence[int],
    *,
    n_beams: int,
    max_new_tokens: int,
    length_penalty: float,
    has_ended: Callable[[list[int]], bool],
    forbidden_ids: Sequence[int] = (),
) -> list[Continuation]:
    """At most `n_beams` continuations of the prompt, best first: score = sum of ln p / length^length_penalty (eq. 42).

    One ends when `has_ended(its tokens)`, or at the limit; its end_of_text counts. Sequences and scores are those of
    transformers with early_stopping="never". One beam is greedy. Beyond the context `in_step.latest` goes on.
    Raises ConfigError for an invalid number of beams or penalty.
    """
    _check(n_beams, length_penalty)
    beams, best = [Beam([], 0.0, 0)], list[Continuation]()
    unread = [list(prompt_ids[-model.max_positions :])]
    with eval_mode(model):
        memory = InStep(model, n_beams, len(unread[0]) + max_new_tokens)
        for length in range(1, max_new_tokens + 1):
            if memory.length(0) == 0:
                logits_BV = memory.begin(dict(enumerate(unread)))
            else:
                logits_BV = memory.step({beam: ids[0] for beam, ids in enumerate(unread)})
            candidates = likeliest(logits_BV, beams, forbidden_ids, n_beams)
            ends = [length == max_new_tokens or has_ended(each.token_ids) for each in candidates]
            for each, is_end in zip(candidates[:n_beams], ends, strict=False):
                if is_end:
                    best.append(Continuation(each.token_ids, each.log_p / length**length_penalty))
            best = sorted(best, key=lambda each: -each.score)[:n_beams]
            beams = [each for each, is_end in zip(candidates, ends, strict=True) if not is_end][:n_beams]
            if not beams:
                break
            # An open beam gets less likely with every token, but its score may rise as it is divided by more.
            best_length = max_new_tokens if length_penalty > 0 else length + 1
            if len(best) == n_beams and beams[0].log_p / best_length**length_penalty <= best[-1].score:
                break
            memory.reorder([beam.row for beam in beams], range(len(beams)))
            unread = [beam.token_ids[-1:] for beam in beams]
            if memory.length(0) == model.max_positions:
                memory.empty(0)
                unread = [latest([*prompt_ids, *beam.token_ids], model.max_positions) for beam in beams]
    return best or [Continuation([], 0.0)]


def likeliest(logits_BV: Tensor, beams: Sequence[Beam], forbidden_ids: Sequence[int], n_beams: int) -> list[Beam]:
    """The likeliest texts of one token more than these beams, best first. NonFiniteError if there are none.

    They are twice as many as beams: if every beam can end here, as many are left to go on. One beam ends when it can.
    """
    forbidden = torch.tensor(forbidden_ids, dtype=torch.long, device=logits_BV.device)
    logits_BV = logits_BV.float().index_fill(-1, forbidden, -math.inf)
    if not all(are_distributions(logits_BV)):
        raise no_distribution()
    log_p_B1 = torch.tensor([[beam.log_p] for beam in beams], device=logits_BV.device)
    log_p_BV = log_p_B1 + logits_BV.log_softmax(dim=-1)
    top = log_p_BV.flatten().topk(min(2 * n_beams if n_beams > 1 else 1, log_p_BV.numel()))
    rows_C, tokens_C = top.indices // log_p_BV.size(1), top.indices % log_p_BV.size(1)
    candidates = zip(rows_C.tolist(), tokens_C.tolist(), top.values.tolist(), strict=True)
    return [Beam([*beams[row].token_ids, id_], log_p, row) for row, id_, log_p in candidates if log_p > -math.inf]


def _check(n_beams: int, length_penalty: float) -> None:
    if n_beams < 1:
        raise ConfigError("beams", f"{n_beams} keeps no text", "give at least 1")
    if n_beams > MOST_BEAMS:
        raise ConfigError("beams", f"{n_beams:,} are more than {MOST_BEAMS:,}", "give fewer: 4 are usual")
    if not -10 <= length_penalty <= 10:  # beyond, the score would be a matter of length alone
        fix = "0 seeks the likeliest text, 1 the highest mean of ln p per token"
        raise ConfigError("length_penalty", f"{length_penalty} is not in [-10, 10]", fix)
