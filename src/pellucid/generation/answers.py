"""Answers to many prompts at once, with the log-probability of every token that is drawn: what rollouts are made of.

The prompts differ in length, and yet nothing is padded and nothing masked: all rows begin at position 0 and go on in
step. What all have of their prompts is read in one pass. After that each step feeds one token to each row: the next of
its prompt while it still reads, else the one that it drew. So row 1 may be writing while row 2 is still reading.

Shapes: N rows, L live rows (those not done yet), P positions, T tokens of an answer, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.generation.decoding import TOKENS_READ_AT_ONCE
from pellucid.generation.sampling import apply_temperature, token_at
from pellucid.generation.single_token import reader_of_one_token
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel, State, eval_mode

LIVE_SHARE = 0.75  # when fewer of the rows are still live, the others are dropped: that copies the state


@dataclass(frozen=True)
class Answers:
    """Row by row: the tokens drawn, with the one that ends the answer; ln p of each; whether it ended by itself."""

    token_ids: list[list[int]]
    log_probabilities: list[Tensor]  # float32, one number per token, on the CPU
    has_ended: list[bool]


def row_uniforms(seeds: Iterable[Sequence[int]], n_uniforms: int) -> Tensor:
    """Numbers in [0, 1), (N, n_uniforms): those of a row are a function of its own seed, as (run, step, row), alone."""
    rows = [np.random.Generator(np.random.Philox(list(seed))).random(n_uniforms, np.float32) for seed in seeds]
    return torch.from_numpy(np.stack(rows))


@torch.inference_mode()
def write_answers(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    uniforms_NT: Tensor,
    *,
    stop_ids: Sequence[int],
    temperature: float = 1.0,
) -> Answers:
    """An answer to each prompt: at most T tokens, and no more than the context holds after the prompt.

    Token t of row i is the one that the point uniforms_NT[i, t] hits (`sampling.token_at`), so that an answer depends
    on its own row alone, up to rounding. Log-probabilities are those of the distribution that was drawn from, at this
    temperature. The caller opens autocast. Raises ConfigError for a prompt without room.
    """
    device = next(model.parameters()).device
    n_rows, n_read = len(prompts), min(map(len, prompts)) - 1
    tokens_NP, points_NP, starts_N, ends_N = (
        tensor.to(device) for tensor in _laid_out(prompts, uniforms_NT, model.max_positions)
    )
    n_positions = tokens_NP.size(1)
    log_p_NP = torch.zeros_like(points_NP)
    is_stop_V = torch.zeros(model.vocab_size, dtype=torch.bool, device=device)
    is_stop_V[list(stop_ids)] = True

    live_L = torch.arange(n_rows, device=device)
    is_done_L = torch.zeros(n_rows, dtype=torch.bool, device=device)
    lengths_N = ends_N.clone()  # of prompt and answer; shorter for those that end by themselves
    with eval_mode(model):
        state = model.new_state(n_rows, n_positions)
        read_one = reader_of_one_token(model)
        _read(model, tokens_NP[:, :n_read], state)
        for position in range(n_read, n_positions - 1):
            logits_LV = read_one(tokens_NP[live_L, position], state).float()
            p_LV = apply_temperature(logits_LV, temperature).softmax(dim=-1)
            drawn_L = token_at(p_LV, points_NP[live_L, position + 1, None])
            log_p_L = p_LV.gather(-1, drawn_L[:, None])[:, 0].log()

            is_writing_L = position + 1 >= starts_N[live_L]
            tokens_NP[live_L, position + 1] = torch.where(is_writing_L, drawn_L, tokens_NP[live_L, position + 1])
            log_p_NP[live_L, position + 1] = log_p_L
            stops_L = is_stop_V[drawn_L] & is_writing_L & ~is_done_L
            lengths_N[live_L[stops_L]] = position + 2
            is_done_L |= stops_L | (position + 2 >= ends_N[live_L])
            n_live = len(live_L) - int(is_done_L.sum())
            if n_live == 0:
                break
            if n_live <= LIVE_SHARE * len(live_L):
                rows_L = torch.nonzero(~is_done_L)[:, 0]
                state.reorder(rows_L)
                live_L, is_done_L = live_L[rows_L], is_done_L[rows_L]

    spans = list(zip(starts_N.tolist(), lengths_N.tolist(), strict=True))
    token_ids = [row[start:end] for row, (start, end) in zip(tokens_NP.tolist(), spans, strict=True)]
    log_p = [row_P[start:end].clone() for row_P, (start, end) in zip(log_p_NP.cpu(), spans, strict=True)]
    return Answers(token_ids, log_p, [bool(ids) and ids[-1] in stop_ids for ids in token_ids])


def _laid_out(
    prompts: Sequence[Sequence[int]], uniforms_NT: Tensor, max_positions: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """By position, (N, P): the prompts' tokens, and the numbers to draw the answers with. And where each answer begins,
    and is cut off at the latest, (N,).
    """
    starts_N = torch.tensor([len(prompt) for prompt in prompts])
    if (longest := int(starts_N.max())) >= max_positions:
        what = f"a prompt of {longest} tokens leaves no room for an answer in {max_positions}"
        raise ConfigError("model.context_length", what, "use a model with a longer context, or shorter prompts")
    ends_N = (starts_N + uniforms_NT.size(1)).clamp(max=max_positions)
    tokens_NP = torch.zeros(len(prompts), int(ends_N.max()), dtype=torch.long)
    points_NP = torch.zeros(tokens_NP.shape)
    for row, (prompt, end) in enumerate(zip(prompts, ends_N.tolist(), strict=True)):
        start = len(prompt)
        tokens_NP[row, :start] = torch.tensor(prompt)
        points_NP[row, start:end] = uniforms_NT[row, : end - start]
    return tokens_NP, points_NP, starts_N, ends_N


def _read(model: LanguageModel, tokens_NP: Tensor, state: State) -> None:
    """Let the state see these tokens; their logits are not needed."""
    read: Callable[..., Tensor] = model.hidden if isinstance(model, Decoder) else model
    for piece_NP in torch.split(tokens_NP, TOKENS_READ_AT_ONCE, dim=1):
        if piece_NP.size(1):
            read(piece_NP, state)
