"""What a decoder computes on the way to its logits: attention weights, the residual stream, and the logit lens.

Hooks listen while the model's own forward pass runs, so a trace shows what the model does, whatever its parts.

Shapes: L layers, H heads, T positions as queries, S as keys, N points of the residual stream, D model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from pellucid.errors import ConfigError
from pellucid.evaluation.explain import token_text
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.decoder import Decoder
from pellucid.model.kv_cache import NoCache
from pellucid.model.language_model import LanguageModel, eval_mode
from pellucid.tokenizer import Tokenizer

Gather = Callable[[Tensor, Tensor, Tensor, NoCache], Tensor]


@dataclass(frozen=True)
class Trace:
    """One text on its way through the model; all tensors are on the CPU.

    ids, texts: the T tokens read; the first is the end_of_text that stands before a document.
    attention (L, H, T, S): what share of key s goes into query t; rows sum to 1, but for linear attention with RoPE.
    residuals (N, T, D): the stream x after the embedding and after each sublayer; `points` names the N places.
    """

    ids: list[int]
    texts: list[str]
    attention: Tensor
    points: list[str]
    residuals: Tensor
    unembed: Callable[[Tensor], Tensor] = field(repr=False)

    @cached_property
    def logits(self) -> Tensor:
        """The logit lens (nostalgebraist 2020): final norm and unembedding at each point, (N, T, V). The last is the
        output of the model."""
        return torch.stack([self.unembed(x_TD) for x_TD in self.residuals])

    def _repr_html_(self) -> str:
        """In a notebook: the attention maps of all heads."""
        from pellucid.evaluation.attention_maps import attention_maps
        from pellucid.evaluation.explain_page import framed, page

        return framed(page("trace", "".join(self.texts[1:]), attention_maps(self)))


@torch.no_grad()
def trace(model: Decoder, ids: Sequence[int], texts: Sequence[str] | None = None) -> Trace:
    """Runs the model over the tokens and keeps what it computed. `texts` are how the tokens are shown, if not as ids.

    The model is unchanged afterwards. ValueError for more tokens than the context_length.
    """
    device = model.embeddings.embedding_VD.device
    attention: list[Tensor] = []
    residuals: dict[str, Tensor] = {}
    with eval_mode(model), _recorded(model, attention, residuals):
        model(torch.tensor([ids], device=device))

    @torch.no_grad()
    def unembed(x_TD: Tensor) -> Tensor:
        logits_BTV = model.soft_cap(model.embeddings.unembed(model.final_norm(x_TD[None].to(device))))
        return logits_BTV[0].cpu()

    return Trace(
        ids=list(ids),
        texts=list(texts or map(str, ids)),
        attention=torch.cat(attention).cpu(),
        points=list(residuals),
        residuals=torch.cat(list(residuals.values())).cpu(),
        unembed=unembed,
    )


def trace_text(model: LanguageModel, tokenizer: Tokenizer, text: str) -> Trace:
    """The trace of a text from the start of a document.

    DataError if the tokenizer cannot encode it, ConfigError if the model is no decoder: others have nothing to show.
    """
    if not isinstance(model, Decoder):
        what = "this kind of model has no attention and no residual stream"
        raise ConfigError("model.type", what, "trace a run of type decoder")
    ids = [tokenizer.end_of_text, *tokenizer.encode(text)]
    return trace(model, ids, [token_text(tokenizer, id_) for id_ in ids])


@contextmanager
def _recorded(model: Decoder, attention: list[Tensor], residuals: dict[str, Tensor]) -> Iterator[None]:
    """Inside this context, a forward pass stores its attention weights and residual stream in the two arguments."""

    def keep(point: str, x_BTD: Tensor) -> None:  # hooks change the stream if they return anything but None
        residuals[point] = x_BTD

    with ExitStack() as undo:
        first = model.blocks[0]
        undo.enter_context(first.register_forward_pre_hook(lambda _, inputs: keep("embedding", inputs[0])))
        for layer, block in enumerate(model.blocks):
            for name, sublayer in block.named_children():
                point = f"{layer}.{name}"
                undo.enter_context(sublayer.register_forward_hook(lambda _, __, x_BTD, at=point: keep(at, x_BTD)))
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                undo.callback(delattr, module, "gather")
                module.gather = _recording(module.gather, attention)  # type: ignore[method-assign, assignment]
        yield


def _recording(gather: Gather, attention: list[Tensor]) -> Gather:
    """The same attention, which also gives its weights: Σ over s of weight_s v_s is weight, if v_s is unit vector s."""

    def gather_and_record(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: NoCache) -> Tensor:
        unit_vectors_TT = torch.eye(k_BGTK.size(2), dtype=v_BGTK.dtype, device=v_BGTK.device)
        attention.append(gather(q_BHTK, k_BGTK, unit_vectors_TT.expand(*k_BGTK.shape[:2], -1, -1), cache))
        return gather(q_BHTK, k_BGTK, v_BGTK, cache)

    return gather_and_record
