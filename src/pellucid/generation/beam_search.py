"""Beam search: not a draw, but a search for the text that the model finds likeliest.

Greedy search takes the likeliest token at each step, and may miss a likelier text that begins with a less likely token.
Beam search keeps the N likeliest beginnings (the *beams*) and goes on with all of them at once.

Shapes: B beams, V vocabulary, C candidates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pellucid.errors import ConfigError
from pellucid.generation.in_step import InStep, latest
from pellucid.generation.sampling import are_distributions, no_distribution
from pellucid.model.language_model import LanguageModel, eval_mode

MOST_BEAMS = 1000  # one step of more takes so long that nobody waits for it, and Ctrl-C has to


@dataclass(frozen=True)
class Found:
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
) -> list[Found]:
    """At most `n_beams` continuations of the prompt, best first: score = sum of ln p / length^length_penalty (eq. 42).

    One ends when `has_ended(its tokens)`, or at the limit; its end_of_text counts. Sequences and scores are those of
    transformers with early_stopping="never". One beam is greedy. Beyond the context `in_step.latest` goes on.
    Raises ConfigError for an invalid number of beams or penalty.
    """
    _check(n_beams, length_penalty)
    device = next(model.parameters()).device
    forbidden = torch.tensor(forbidden_ids, dtype=torch.long, device=device)
    beams: list[list[int]] = [[]]
    log_p_B1 = torch.zeros(1, 1, device=device)
    best: list[Found] = []
    unread = [list(prompt_ids[-model.max_positions :])]

    with eval_mode(model):
        memory = InStep(model, n_beams, len(unread[0]) + max_new_tokens)
        for length in range(1, max_new_tokens + 1):
            if memory.length(0) == 0:
                logits_BV = memory.begin(dict(enumerate(unread)))
            else:
                logits_BV = memory.step({beam: ids[0] for beam, ids in enumerate(unread)})
            logits_BV = logits_BV.float().index_fill(-1, forbidden, -math.inf)
            if not all(are_distributions(logits_BV)):
                raise no_distribution()
            log_p_BV = log_p_B1 + logits_BV.log_softmax(dim=-1)
            # Twice as many as beams: if every beam can end here, as many are left to go on. One beam ends when it can.
            n_candidates = min(2 * n_beams if n_beams > 1 else 1, log_p_BV.numel())
            top = log_p_BV.flatten().topk(n_candidates)
            rows_C, tokens_C = top.indices // log_p_BV.size(1), top.indices % log_p_BV.size(1)

            still_open: list[int] = []  # of the candidates
            texts = [[*beams[row], token] for row, token in zip(rows_C.tolist(), tokens_C.tolist(), strict=True)]
            for i, (token_ids, log_p) in enumerate(zip(texts, top.values.tolist(), strict=True)):
                if log_p == -math.inf:
                    break
                if length == max_new_tokens or has_ended(token_ids):
                    if i < n_beams:
                        best.append(Found(token_ids, log_p / length**length_penalty))
                elif len(still_open) < n_beams:
                    still_open.append(i)
            best = sorted(best, key=lambda beam: -beam.score)[:n_beams]

            if not still_open:
                break
            # An open beam gets less likely with every token, but its score may rise as it is divided by more.
            best_length = max_new_tokens if length_penalty > 0 else length + 1
            attainable = float(top.values[still_open[0]]) / best_length**length_penalty
            if len(best) == n_beams and attainable <= best[-1].score:
                break
            beams, log_p_B1 = [texts[i] for i in still_open], top.values[still_open, None]
            memory.reorder(rows_C[still_open].tolist(), range(len(beams)))
            unread = [beam[-1:] for beam in beams]
            if memory.length(0) == model.max_positions:
                memory.empty(0)
                unread = [latest([*prompt_ids, *beam], model.max_positions) for beam in beams]
    return best or [Found([], 0.0)]


def _check(n_beams: int, length_penalty: float) -> None:
    if n_beams < 1:
        raise ConfigError("beams", f"{n_beams} keeps no text", "give at least 1")
    if n_beams > MOST_BEAMS:
        raise ConfigError("beams", f"{n_beams:,} are more than {MOST_BEAMS:,}", "give fewer: 4 are usual")
    if not -10 <= length_penalty <= 10:  # beyond, the score would be a matter of length alone
        fix = "0 seeks the likeliest text, 1 the highest mean of ln p per token"
        raise ConfigError("length_penalty", f"{length_penalty} is not in [-10, 10]", fix)
