"""Each part of a decoder adds something to a logit (direct logit attribution; Elhage et al. 2021), exactly.

The stream at a token is a sum: its embedding, and what each sublayer added to it. Its last norm divides it by one
number; with that number held as it is, the norm and the unembedding are linear, so they take each summand alone.

Shapes: N points of the residual stream, L layers, H heads, K head width, D model, M tokens whose logits are explained.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.inspection.interventions import attention_of
from pellucid.inspection.trace import Trace
from pellucid.model.decoder import Decoder
from pellucid.model.one_token import is_close


class LogitParts(NamedTuple):
    """Summands of the logits of M tokens at one place: `parts.sum(0) + bias`, before a soft cap.

    parts (N, M): of the embedding and of each sublayer, as in `Trace.points`. bias (M,): of the last norm's bias.
    heads (L, H, M): of each head, which with a bias of W_O add up to their attention's part; in post-norm, whose norms
    rescale them, or where attention itself was replaced, they do not, and are NaN.
    """

    parts: Tensor
    heads: Tensor
    bias: Tensor


@torch.no_grad()
def logit_parts(model: Decoder, traced: Trace, place: int, ids: Sequence[int]) -> LogitParts | None:
    """Summands of these tokens' logits at a place of a text; None if an edited model computes logits otherwise."""
    device = model.embeddings.embedding_VD.device
    x_ND = traced.residuals[:, place].to(device)
    norm = _held(model.final_norm, x_ND[-1])
    rows_MD = model.embeddings.unembedding_VD[list(ids)].to(x_ND.dtype)
    added_ND = torch.cat([x_ND[:1], x_ND.diff(dim=0)])
    bias_M = norm(torch.zeros_like(x_ND[0])) @ rows_MD.T
    parts_NM = norm(added_ND) @ rows_MD.T - bias_M
    logits_M = traced.unembed(traced.residuals[-1, place])[list(ids)]
    if not is_close(model.soft_cap(parts_NM.sum(0) + bias_M).cpu(), logits_M):
        return None
    heads_LHM = []
    for layer, heads_HK in enumerate(traced.heads[:, :, place].to(device)):
        W_O = attention_of(model, layer).W_O
        bias_D = W_O(torch.zeros_like(heads_HK).flatten())
        alone_HD = W_O(torch.block_diag(*heads_HK)) - bias_D  # type: ignore[no-untyped-call]
        is_sum = is_close(alone_HD.sum(0) + bias_D, added_ND[1 + 2 * layer])
        heads_LHM.append((norm(alone_HD) @ rows_MD.T - bias_M).where(torch.tensor(is_sum, device=device), torch.nan))
    return LogitParts(parts_NM.cpu(), torch.stack(heads_LHM).cpu(), bias_M.cpu())


def _held(norm: Callable[[Tensor], Tensor], x_D: Tensor) -> Callable[[Tensor], Tensor]:
    """The norm with its divisor as it is for x: gain * y + bias for any y, less its mean if the norm is a LayerNorm."""
    bias_D = norm(torch.zeros_like(x_D))
    is_centred = is_close(norm(x_D + x_D.abs().max()), norm(x_D))

    def centred(y: Tensor) -> Tensor:
        return y - y.mean(-1, keepdim=True) if is_centred else y

    gain_D = ((norm(x_D) - bias_D) / centred(x_D)).nan_to_num()
    return lambda y: gain_D * centred(y) + bias_D
