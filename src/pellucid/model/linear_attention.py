"""Linear attention: a state of constant size in place of a cache that grows with every token (equation 38).

Softmax attention weighs a key by exp(q·k), which has to be computed for each pair. With φ(q)·φ(k) in its place the sums
can be regrouped: Σ (φ(q)·φ(k)) v = φ(q)ᵀ (Σ φ(k) vᵀ), and the sum in brackets is the same for every later query. It is
a matrix S, to which each token adds φ(k) vᵀ. So there are three ways to compute the same:

    in_parallel      all pairs at once, later keys masked: work grows with the square of the length
    in_chunks        in parallel within a chunk, and S from one chunk to the next: used in training
    step_by_step     S ← S + φ(k) vᵀ, token by token: used to write

Source: Katharopoulos et al. 2020.

Shapes: B batch, G key/value heads, R query heads for each, T positions, K head width, V width of the values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.model.attention import AttentionOnOneToken, MultiHeadAttention
from pellucid.model.kv_cache import NoCache
from pellucid.model.one_token import OnOneToken

CHUNK = 64  # positions
SMALLEST_SUM = 1e-6  # added to the sum of the weights, as in the authors' code, so that it is never zero


def feature_map(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1: x + 1 above zero and e^x below, so that all attention weights are positive."""
    return F.elu(x) + 1


def in_parallel(q_BGRTK: Tensor, k_BG1TK: Tensor, v_BG1TV: Tensor, S_BG1KV: Tensor) -> tuple[Tensor, Tensor]:
    """Each query's sum of (q·k) v up to its position; and S, the sum of k vᵀ over all positions so far."""
    products_BGRTT = (q_BGRTK @ k_BG1TK.mT).tril()
    return products_BGRTT @ v_BG1TV + q_BGRTK @ S_BG1KV, S_BG1KV + k_BG1TK.mT @ v_BG1TV


def in_chunks(
    q_BGRTK: Tensor, k_BG1TK: Tensor, v_BG1TV: Tensor, S_BG1KV: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Equal to `in_parallel`, chunk by chunk: work and memory grow with the length, not with its square."""
    sums_BGRTV = []
    for q, k, v in zip(*(torch.split(x, chunk, dim=-2) for x in (q_BGRTK, k_BG1TK, v_BG1TV)), strict=True):
        sum_of_chunk, S_BG1KV = in_parallel(q, k, v, S_BG1KV)
        sums_BGRTV.append(sum_of_chunk)
    return torch.cat(sums_BGRTV, dim=-2), S_BG1KV


def step_by_step(q_BGRTK: Tensor, k_BG1TK: Tensor, v_BG1TV: Tensor, S_BG1KV: Tensor) -> tuple[Tensor, Tensor]:
    """Equal to `in_parallel`, position by position: a recurrent network whose state is S."""
    sums_BGRV = []
    for q_BGRK, k_BG1K, v_BG1V in zip(*(x.unbind(dim=-2) for x in (q_BGRTK, k_BG1TK, v_BG1TV)), strict=True):
        S_BG1KV = S_BG1KV + k_BG1K[..., :, None] * v_BG1V[..., None, :]
        sums_BGRV.append((q_BGRK[..., None, :] @ S_BG1KV).squeeze(-2))
    return torch.stack(sums_BGRV, dim=-2), S_BG1KV


class RunningSums:
    """The state of linear attention, of constant size: S = Σ φ(k) vᵀ and z = Σ φ(k) of each key/value head.

    In float32 at least: bfloat16 has 8 bits of precision, so a sum of ones would stop growing at 256.
    """

    def __init__(self, S_BGKV: Tensor, z_BGK: Tensor) -> None:
        self.length = 0
        self.S_BGKV = S_BGKV
        self.z_BGK = z_BGK

    def reorder(self, rows_N: Tensor) -> None:
        self.S_BGKV, self.z_BGK = self.S_BGKV[rows_N], self.z_BGK[rows_N]


class LinearAttention(MultiHeadAttention):
    """Multi-head attention with weights φ(q)·φ(k) / Σ φ(q)·φ(k) in place of a softmax.

    RoPE rotates φ(q) and φ(k) in the numerator alone (Su et al. 2021, equation 19): rotated products in the denominator
    could sum to zero. So weights may be negative and need not sum to 1. They are never computed one by one, so
    `dropout` acts on the output only.
    """

    def gather(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: RunningSums | NoCache) -> Tensor:  # type: ignore[override]
        B, G, T, _ = k_BGTK.shape
        before = no_sums(B, G, k_BGTK.size(3), v_BGTK.size(3), v_BGTK) if isinstance(cache, NoCache) else cache
        dtype, start = before.S_BGKV.dtype, before.length
        with torch.autocast(q_BHTK.device.type, enabled=False):
            q_BHTK, k_BGTK = feature_map(q_BHTK.to(dtype)), feature_map(k_BGTK.to(dtype))
            z_BGTK = before.z_BGK[:, :, None] + k_BGTK.cumsum(dim=2)
            sum_of_weights_BGRT = (by_group(q_BHTK, G) * z_BGTK[:, :, None]).sum(dim=-1)

            sums = step_by_step if T == 1 else in_chunks
            weighted_BGRTK, S_BG1KV = sums(
                by_group(self.rotate(q_BHTK, start), G),
                by_group(self.rotate(k_BGTK, start), G),
                by_group(v_BGTK.to(dtype), G),
                before.S_BGKV[:, :, None],
            )
            heads_BGRTK = weighted_BGRTK / (sum_of_weights_BGRT + SMALLEST_SUM)[..., None]
        if before is cache:
            cache.length += T
            cache.S_BGKV = S_BG1KV[:, :, 0].detach()
            cache.z_BGK = z_BGTK[:, :, -1].detach().clone()  # a view would keep the sums of all positions
        return heads_BGRTK.flatten(1, 2).to(v_BGTK.dtype)

    def on_one_token(self) -> OnOneToken:
        lean = AttentionOnOneToken(self)

        def gather(heads_BM1K: Tensor, cache: RunningSums) -> Tensor:
            q_BH1K, k_BG1K, v_BG1K = torch.split_with_sizes(heads_BM1K, lean.n_heads_each, 1)
            return self.gather(q_BH1K, k_BG1K, v_BG1K, cache)  # a step of it is lean already

        lean.gather = gather  # type: ignore[method-assign, assignment]
        return lean

    def new_cache(self, batch_size: int, capacity: int, like: Tensor) -> RunningSums:  # type: ignore[override]
        """The state before the first token; its size does not depend on `capacity`."""
        return no_sums(batch_size, self.n_kv_heads, self.head_width, self.head_width, like)

    equations = (38, 8)

    def compare(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q_BHTK, k_BGSK = feature_map(q_BHTK), feature_map(k_BGSK)
        sum_BHT1 = (q_BHTK @ self.share_among_heads(k_BGSK).mT).tril().sum(dim=-1, keepdim=True)
        q_BHTK, k_BGSK = self.rotate(q_BHTK, 0), self.rotate(k_BGSK, 0)
        scores_BHTS = (q_BHTK @ self.share_among_heads(k_BGSK).mT).tril()
        return q_BHTK, k_BGSK, scores_BHTS, scores_BHTS / (sum_BHT1 + SMALLEST_SUM)


def no_sums(B: int, G: int, K: int, V: int, like: Tensor) -> RunningSums:
    dtype = torch.promote_types(like.dtype, torch.float32)
    return RunningSums(like.new_zeros(B, G, K, V, dtype=dtype), like.new_zeros(B, G, K, dtype=dtype))


def by_group(x_BHTK: Tensor, n_kv_heads: int) -> Tensor:
    """The query heads grouped by the key/value head that they share: (B, H, T, K) to (B, G, R, T, K)."""
    B, _, T, K = x_BHTK.shape
    return x_BHTK.reshape(B, n_kv_heads, -1, T, K)
