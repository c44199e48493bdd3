"""Positions: how the model knows the order of its tokens.

Attention alone sees a set of keys, not a sequence: permute the tokens and the outputs are permuted with
them. Order enters at one of two places, so every encoding has two methods, the identity by default:

    add_to_embeddings    a vector per position, added once to the embeddings (sinusoidal, learned)
    rotate               a rotation per position, of the queries and keys in every attention (RoPE)

The first takes the position of each token: (T,), or (B, T) where rows hold several documents. The second takes `start`,
the position of the first token: 0, unless a cache holds the tokens before it. Where a document begins within a row does
not matter to it: two tokens meet at an angle that depends on their distance alone.

Shapes: B batch, T query positions, D model, H heads, K head width, I pairs that are rotated: K/2, or fewer.
"""

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Position = int | Tensor
AtPosition = Callable[[Tensor, Position], Tensor]
Stretched = Callable[[Tensor, Tensor], Tensor]  # the new cosines and sines of clocks, by their angles and speeds


class NoPositions(nn.Module):
    """No positions: only the causal mask tells the order (equation 6)."""

    def add_to_embeddings(self, embeddings_BTD: Tensor, positions: Tensor) -> Tensor:
        return embeddings_BTD

    def rotate(self, x_BHTK: Tensor, start: int) -> Tensor:
        return x_BHTK

    def on_one_token(self) -> tuple[AtPosition, AtPosition]:
        """The lean forms of `add_to_embeddings`, on x_BD, and of `rotate`, which changes x_BH1K itself. A row may have
        its own position: they get an int or, as (B,) and (B, 1, 1), a tensor.
        """
        return nowhere, nowhere


class Learned(NoPositions):
    """One learned vector per position, added to the embedding, as in GPT-2 (equation 6)."""

    def __init__(self, context_length: int, d_model: int) -> None:
        super().__init__()
        self.positions_TD = nn.Parameter(torch.empty(context_length, d_model))

    def add_to_embeddings(self, embeddings_BTD: Tensor, positions: Tensor) -> Tensor:
        return embeddings_BTD + F.embedding(positions, self.positions_TD)

    def on_one_token(self) -> tuple[AtPosition, AtPosition]:
        return lambda x_BD, position: x_BD + self.positions_TD[position], nowhere


class Sinusoidal(NoPositions):
    """Fixed waves added to the embedding (equation 4; Vaswani et al. 2017, section 3.5).

    PE[t, 2i] = sin(t / 10000^(2i/D)) and PE[t, 2i+1] = cos(the same angle): each pair of coordinates is the
    hand of a clock, and each clock is slower than the one before.
    """

    def __init__(self, context_length: int, d_model: int) -> None:
        super().__init__()
        angles = clock_angles(context_length, d_model, base=10_000.0)
        table_TD = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=-2)
        self.table_TD = nn.Buffer(table_TD, persistent=False)

    def add_to_embeddings(self, embeddings_BTD: Tensor, positions: Tensor) -> Tensor:
        return embeddings_BTD + self.table_TD[positions]

    def on_one_token(self) -> tuple[AtPosition, AtPosition]:
        cos_TI, sin_TI = cos_and_sin(self.table_TD, self.table_TD.size(1), base=10_000.0)
        table_TD = torch.stack([sin_TI, cos_TI], dim=-1).flatten(start_dim=-2)
        return lambda x_BD, position: x_BD + table_TD[position], nowhere


def rotate_pairs(x_BHTK: Tensor, cos_TI: Tensor, sin_TI: Tensor) -> Tensor:
    """Turn each pair (a, b) of coordinates i and i + I to (a cos - b sin, b cos + a sin).

    Any other coordinates stay.
    """
    n_pairs, width = sin_TI.size(-1), x_BHTK.size(-1)
    a_BHTI, b_BHTI, others = torch.split(x_BHTK, [n_pairs, n_pairs, width - 2 * n_pairs], dim=-1)
    return torch.cat([a_BHTI * cos_TI - b_BHTI * sin_TI, b_BHTI * cos_TI + a_BHTI * sin_TI, others], dim=-1)


class Rotary(NoPositions):
    """RoPE: queries and keys turn with their position (equation 5; Su et al. 2021).

    Pair i of a head's coordinates is rotated by t * base^(-i/I). Then a query at t and a key at s meet at an angle
    that depends on t - s alone. The pairs are (i, i + I), as in Llama, not (2i, 2i+1), as in the paper: the learned
    matrices make up for it. With fewer pairs than K/2, the last coordinates stay (GPT-NeoX; Black et al. 2022).
    """

    def __init__(
        self,
        context_length: int,
        head_width: int,
        base: float = 10_000.0,
        rotated_width: int | None = None,
        stretch: Stretched | None = None,
    ) -> None:
        super().__init__()
        rotated_width = head_width if rotated_width is None else rotated_width
        self.base, self.head_width, self.stretch = base, head_width, stretch
        angles = clock_angles(context_length, rotated_width, base)
        speeds = clock_angles(2, rotated_width, base)[1]
        waves = stretch(angles, speeds) if stretch else (angles.cos(), angles.sin())
        self.cos_TI, self.sin_TI = (nn.Buffer(wave, persistent=False) for wave in waves)
        self.equations = (5, *([31] if rotated_width < head_width else []), *getattr(stretch, "equations", ()))

    def rotate(self, x_BHTK: Tensor, start: int) -> Tensor:
        end = start + x_BHTK.size(2)
        # The angles are float32 (bfloat16 would be too coarse); their sines are rounded as queries and keys are.
        cos_TI, sin_TI = self.cos_TI[start:end].to(x_BHTK.dtype), self.sin_TI[start:end].to(x_BHTK.dtype)
        return rotate_pairs(x_BHTK, cos_TI, sin_TI)

    def on_one_token(self) -> tuple[AtPosition, AtPosition]:
        n_pairs, n_others = self.sin_TI.size(1), self.head_width - 2 * self.sin_TI.size(1)  # turned, not turned
        cos_TI, sin_TI = cos_and_sin(self.sin_TI, 2 * n_pairs, self.base, self.stretch)
        cos_TK = F.pad(cos_TI.repeat(1, 2), (0, n_others), value=1)
        sin_TK = F.pad(torch.cat([-sin_TI, sin_TI], dim=1), (0, n_others))
        partner_K = torch.arange(self.head_width, device=sin_TK.device)
        partner_K[: 2 * n_pairs] = partner_K[: 2 * n_pairs].roll(n_pairs)

        def rotate(x_BH1K: Tensor, position: Position) -> Tensor:
            cos_K, sin_K = cos_TK[position].to(x_BH1K.dtype), sin_TK[position].to(x_BH1K.dtype)
            partners_BH1K = x_BH1K.index_select(-1, partner_K)
            return x_BH1K.mul_(cos_K).addcmul_(partners_BH1K, sin_K)

        return nowhere, rotate


Positions = NoPositions | Learned | Sinusoidal | Rotary


def clock_angles(n_positions: int, width: int, base: float) -> Tensor:
    """The angle of each of the width/2 clocks at each position: t * base^(-2i/width), in radians."""
    speeds = base ** (-torch.arange(0.0, width, 2) / width)
    return torch.outer(torch.arange(float(n_positions)), speeds)


def nowhere(x: Tensor, position: Position) -> Tensor:
    """The lean form of a method that adds or rotates nothing."""
    return x


def cos_and_sin(like_TI: Tensor, width: int, base: float, stretch: Stretched | None = None) -> Tensor:
    """The cosines and sines of all clocks at all positions, (2, T, I), for lean forms: computed again."""
    return _cos_and_sin(len(like_TI), width, base, stretch, like_TI.dtype).to(like_TI.device)


@cache
@torch.inference_mode(mode=False)  # or who asks first in inference mode would decide for those who need gradients
def _cos_and_sin(n_positions: int, width: int, base: float, stretch: Stretched | None, dtype: torch.dtype) -> Tensor:
    """In the same order of operations as `clock_angles`, so that they are equal to the last bit."""
    speeds_I = torch.pow(base, torch.arange(0, width, 2, dtype=dtype, device="cpu").neg() / width)
    angles_TI = torch.arange(n_positions, dtype=dtype, device="cpu")[:, None] * speeds_I
    return stretch(angles_TI, speeds_I) if stretch else torch.stack([angles_TI.cos(), angles_TI.sin()])
