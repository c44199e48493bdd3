"""One layer of a decoder, step by step: the tensors of the equations of docs/equations.md, with the numbers of a text.

Shapes: T positions as queries, S as keys, D model, H heads, G key/value heads, K head width, F feed-forward,
E experts, shared ones last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pellucid.inspection.interventions import attention_of, feed_forward_of
from pellucid.model.attention import MultiHeadAttention, causal_mask
from pellucid.model.block import Block
from pellucid.model.decoder import Decoder
from pellucid.model.experts import Experts
from pellucid.model.feed_forward import SwiGLU
from pellucid.model.known_parts import unknown_parts
from pellucid.model.kv_cache import NoCache
from pellucid.model.linear_attention import LinearAttention, feature_map
from pellucid.model.norms import RMSNorm
from pellucid.model.positions import Rotary
from pellucid.model.residual import PreNorm
from pellucid.model.sliding_window import SlidingWindowAttention, window_mask

Gather = Callable[[Tensor, Tensor, Tensor, NoCache], Tensor]


class Step(NamedTuple):
    """A tensor on the way through a layer.

    sublayer: "attention" or "feed_forward". axes: a letter for each, as in the names of the code. equations: by which
    it was computed from those before it, as docs/equations.md counts them.
    """

    sublayer: str
    name: str
    axes: str
    equations: tuple[int, ...]
    values: Tensor


class Heard(NamedTuple):
    """What was computed while a model ran over one text: the input and output of its modules, and of each layer the
    queries, keys and values before they are rotated, the weights (H, T, S), and whether its attention is known."""

    inputs: dict[nn.Module, Tensor]
    outputs: dict[nn.Module, Tensor]
    queries_keys_values: list[tuple[Tensor, Tensor, Tensor]]
    weights: list[Tensor]
    is_known: list[bool]


@contextmanager
def listening(model: Decoder) -> Iterator[Heard]:
    """Inside, a forward pass over one text is heard. It computes what it always does."""
    is_known = [not unknown_parts(attention_of(model, layer)) for layer in range(model.n_layers)]
    heard = Heard({}, {}, [], [], is_known)

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, y = inputs[0], output  # an expert gets rows without a batch axis
        heard.inputs[module], heard.outputs[module] = (x[0], y[0]) if x.dim() == 3 else (x, y)

    with ExitStack() as undo:
        for layer, block in enumerate(model.blocks):
            attention, feed_forward = attention_of(model, layer), feed_forward_of(model, layer)
            parts = [*block.children(), attention, attention.W_O, feed_forward, *_routers_and_outputs(feed_forward)]
            for module in parts:
                undo.enter_context(module.register_forward_hook(keep))
            undo.callback(delattr, attention, "gather")
            attention.gather = _heard(attention.gather, heard)  # type: ignore[method-assign, assignment]
        yield heard


def _heard(gather: Gather, heard: Heard) -> Gather:
    """Attention that also keeps its weights: with unit vectors as values, its output Σ weight_s v_s is the weights."""

    def gather_and_keep(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: NoCache) -> Tensor:
        unit_vectors_TT = torch.eye(k_BGTK.size(2), dtype=v_BGTK.dtype, device=v_BGTK.device)
        heard.weights.append(gather(q_BHTK, k_BGTK, unit_vectors_TT.expand(*k_BGTK.shape[:2], -1, -1), cache)[0])
        heard.queries_keys_values.append((q_BHTK, k_BGTK, v_BGTK))
        return gather(q_BHTK, k_BGTK, v_BGTK, cache)

    return gather_and_keep


def _routers_and_outputs(feed_forward: nn.Module) -> list[nn.Module]:
    """The last matrix of a feed-forward layer; if it has experts, the router and the last matrix of each."""
    if isinstance(feed_forward, Experts):
        return [feed_forward.router, *(expert.W_2 for expert in (*feed_forward.experts, *feed_forward.shared))]
    return [feed_forward.W_2]  # type: ignore[list-item]


@torch.no_grad()
def steps_inside(model: Decoder, heard: Heard, layer: int) -> list[Step]:
    """What a layer computed, in order; on the CPU."""
    block = model.blocks[layer]
    assert isinstance(block, Block)
    steps = [
        *_stream(block.attention, heard, "attention", _in_attention(attention_of(model, layer), heard, layer)),
        *_stream(block.feed_forward, heard, "feed_forward", _in_feed_forward(feed_forward_of(model, layer), heard)),
    ]
    return [step._replace(values=step.values.cpu()) for step in steps]


def heads_of(attention: MultiHeadAttention, heard: Heard) -> Tensor:
    """What each head gives, (H, T, K), before W_O mixes them."""
    concatenated_TD = heard.inputs[attention.W_O]
    return concatenated_TD.view(len(concatenated_TD), attention.n_heads, attention.head_width).transpose(0, 1)


def _stream(residual: nn.Module, heard: Heard, sublayer: str, steps: list[Step]) -> list[Step]:
    """The steps of a sublayer, and before and after them the stream that it reads and adds to."""
    norm_equation = 21 if isinstance(residual.norm, RMSNorm) else 10
    x_TD, new_x_TD = heard.inputs[residual], heard.outputs[residual]
    before = [Step(sublayer, "x", "TD", (10,), x_TD)]
    equations: tuple[int, ...] = tuple(dict.fromkeys((10, norm_equation)))
    if isinstance(residual, PreNorm):
        before.append(Step(sublayer, "norm(x)", "TD", (norm_equation,), heard.inputs[residual.sublayer]))  # type: ignore[index]
        equations = (10,)
    return [*before, *steps, Step(sublayer, "new x", "TD", equations, new_x_TD)]


def _in_attention(attention: MultiHeadAttention, heard: Heard, layer: int) -> list[Step]:
    """Queries and keys as they are multiplied: normalised and rotated, where the model does so."""
    q_BHTK, k_BGSK, v_BGSK = heard.queries_keys_values[layer]
    if not heard.is_known[layer]:  # what it makes of queries and keys is not known, only what it gave
        return [Step("attention", "v", "GSK", (7,), v_BGSK[0]), *_given(attention, heard, layer, ())]
    of_all = _equations_of_queries(attention)
    of_keys = () if attention.n_kv_heads == attention.n_heads else (23,)
    if isinstance(attention, LinearAttention):
        q_BHTK, k_BGSK = feature_map(q_BHTK), feature_map(k_BGSK)
    q_BHTK, k_BGSK = attention.rotate(q_BHTK, 0), attention.rotate(k_BGSK, 0)
    products_HTS = (q_BHTK @ attention.share_among_heads(k_BGSK).mT)[0]
    T, by_root = q_BHTK.size(2), 1 / sqrt(attention.head_width)
    mixed: tuple[int, ...] = (7,)
    match attention:
        case LinearAttention():
            scores_HTS, scored, mixed = products_HTS.tril(), (38, 8), (38,)
        case SlidingWindowAttention(window=window):
            scores_HTS, scored = products_HTS * by_root + window_mask(T, T, window, like=q_BHTK), (7, 39)
        case _:
            scores_HTS, scored = products_HTS * by_root + causal_mask(T, T, like=q_BHTK), (7, 8)
    return [
        Step("attention", "q", "HTK", (7, *of_all), q_BHTK[0]),
        Step("attention", "k", "GSK", (7, *of_keys, *of_all), k_BGSK[0]),
        Step("attention", "v", "GSK", (7, *of_keys), v_BGSK[0]),
        Step("attention", "scores", "HTS", scored, scores_HTS),
        *_given(attention, heard, layer, mixed),
    ]


def _given(attention: MultiHeadAttention, heard: Heard, layer: int, mixed: tuple[int, ...]) -> list[Step]:
    """What was heard of the mixing itself, which is by these equations."""
    return [
        Step("attention", "weights", "HTS", mixed, heard.weights[layer]),
        Step("attention", "heads", "HTK", mixed, heads_of(attention, heard)),
        Step("attention", "output", "TD", (9,), heard.outputs[attention]),
    ]


def _equations_of_queries(attention: MultiHeadAttention) -> tuple[int, ...]:
    """What is done to queries and keys after W_Q and W_K: QK-norm, feature map, rotation."""
    equations = [] if isinstance(attention.query_norm, nn.Identity) else [24]
    if isinstance(attention, LinearAttention):
        equations.append(38)
    positions = getattr(attention.rotate, "__self__", None)
    if isinstance(positions, Rotary):
        is_partial = 2 * positions.sin_TI.size(-1) < attention.head_width
        equations += [5, 31] if is_partial else [5]
    return tuple(equations)


def _in_feed_forward(feed_forward: nn.Module, heard: Heard) -> list[Step]:
    """Hidden numbers and output; with experts, also the share of each in the output. Unused experts have zeros."""
    output = Step("feed_forward", "output", "TD", _equations_of(feed_forward), heard.outputs[feed_forward])
    if not isinstance(feed_forward, Experts):
        hidden_TF = heard.inputs[feed_forward.W_2]  # type: ignore[index]
        return [Step("feed_forward", "hidden", "TF", _equations_of(feed_forward), hidden_TF), output]
    probabilities_TC, choices_TC = heard.outputs[feed_forward.router].topk(feed_forward.top_k)
    shares_TC = probabilities_TC / probabilities_TC.sum(dim=-1, keepdim=True)
    shares_TE = torch.zeros_like(heard.outputs[feed_forward.router]).scatter(1, choices_TC, shares_TC)
    is_asked_TE = torch.zeros_like(shares_TE, dtype=torch.bool).scatter(1, choices_TC, True)  # if for a share of 0
    hidden = []
    for expert, is_asked_T in zip(feed_forward.experts, is_asked_TE.T, strict=True):
        rows_RF = heard.inputs[expert.W_2]  # type: ignore[index]
        hidden.append(rows_RF.new_zeros(len(is_asked_T), rows_RF.size(1)).index_put((is_asked_T,), rows_RF))
    hidden += [heard.inputs[expert.W_2] for expert in feed_forward.shared]  # type: ignore[index]
    return [
        Step("feed_forward", "shares of experts", "TE", (40,), shares_TE),
        Step("feed_forward", "hidden", "ETF", _equations_of(feed_forward.experts[0]), torch.stack(hidden)),
        output,
    ]


def _equations_of(feed_forward: nn.Module) -> tuple[int, ...]:
    match feed_forward:
        case Experts():
            return (40,)
        case SwiGLU():
            return (22,)
        case _:
            return (11,)
