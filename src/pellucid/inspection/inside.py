"""One layer of a decoder, step by step: the tensors in the equations of docs/equations.md, for one text.

Shapes: T positions as queries, S as keys, D model, H heads, G key/value heads, K head width, F feed-forward,
E experts, shared ones last.
"""

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

    sublayer: "attention" or "feed_forward". axes: their letters, as in names of the code. equations: those that compute
    it from earlier steps, numbered as in docs/equations.md.
    """

    sublayer: str
    name: str
    axes: str
    equations: tuple[int, ...]
    values: Tensor


class Recording(NamedTuple):
    """A recorded forward pass over one text: inputs and outputs of modules; and for each layer:

    queries, keys and values before rotation, attention weights (H, T, S), and whether its attention is of a known kind.
    """

    inputs: dict[nn.Module, Tensor]
    outputs: dict[nn.Module, Tensor]
    queries_keys_values: list[tuple[Tensor, Tensor, Tensor]]
    weights: list[Tensor]
    is_known: list[bool]


@contextmanager
def recorded(model: Decoder) -> Iterator[Recording]:
    """Inside, a forward pass over one text is recorded; its results do not change."""
    is_known = [not unknown_parts(attention_of(model, layer)) for layer in range(model.n_layers)]
    record = Recording({}, {}, [], [], is_known)

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, y = inputs[0], output  # an expert gets rows without a batch axis
        record.inputs[module], record.outputs[module] = (x[0], y[0]) if x.dim() == 3 else (x, y)

    with ExitStack() as hooks:
        for layer, block in enumerate(model.blocks):
            attention, feed_forward = attention_of(model, layer), feed_forward_of(model, layer)
            parts = [*block.children(), attention, attention.W_O, feed_forward, *_routers_and_outputs(feed_forward)]
            for module in parts:
                hooks.enter_context(module.register_forward_hook(keep))
            hooks.callback(delattr, attention, "gather")
            attention.gather = _recorded_gather(attention.gather, record)  # type: ignore[method-assign, assignment]
        yield record


def _recorded_gather(gather: Gather, record: Recording) -> Gather:
    """Attention that also records its weights: with unit vectors as values, its output Σ weight_s v_s equals them."""

    def gather_and_keep(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: NoCache) -> Tensor:
        unit_vectors_TT = torch.eye(k_BGTK.size(2), dtype=v_BGTK.dtype, device=v_BGTK.device)
        record.weights.append(gather(q_BHTK, k_BGTK, unit_vectors_TT.expand(*k_BGTK.shape[:2], -1, -1), cache)[0])
        record.queries_keys_values.append((q_BHTK, k_BGTK, v_BGTK))
        return gather(q_BHTK, k_BGTK, v_BGTK, cache)

    return gather_and_keep


def _routers_and_outputs(feed_forward: nn.Module) -> list[nn.Module]:
    """The last matrix of a feed-forward layer; if it has experts, the router and the last matrix of each."""
    if isinstance(feed_forward, Experts):
        return [feed_forward.router, *(expert.W_2 for expert in (*feed_forward.experts, *feed_forward.shared))]
    return [feed_forward.W_2]  # type: ignore[list-item]


@torch.no_grad()
def steps_inside(model: Decoder, record: Recording, layer: int) -> list[Step]:
    """The tensors that a layer computed, in order, on the CPU."""
    block = model.blocks[layer]
    assert isinstance(block, Block)
    steps = [
        *_stream(block.attention, record, "attention", _in_attention(attention_of(model, layer), record, layer)),
        *_stream(block.feed_forward, record, "feed_forward", _in_feed_forward(feed_forward_of(model, layer), record)),
    ]
    return [step._replace(values=step.values.cpu()) for step in steps]


def heads_of(attention: MultiHeadAttention, record: Recording) -> Tensor:
    """The output of each head, (H, T, K), before W_O mixes them."""
    concatenated_TD = record.inputs[attention.W_O]
    return concatenated_TD.view(len(concatenated_TD), attention.n_heads, attention.head_width).transpose(0, 1)


def _stream(residual: nn.Module, record: Recording, sublayer: str, steps: list[Step]) -> list[Step]:
    """The steps of a sublayer, with the residual stream before and after them."""
    norm_equation = 21 if isinstance(residual.norm, RMSNorm) else 10
    x_TD, new_x_TD = record.inputs[residual], record.outputs[residual]
    before = [Step(sublayer, "x", "TD", (10,), x_TD)]
    equations: tuple[int, ...] = tuple(dict.fromkeys((10, norm_equation)))
    if isinstance(residual, PreNorm):
        before.append(Step(sublayer, "norm(x)", "TD", (norm_equation,), record.inputs[residual.sublayer]))  # type: ignore[index]
        equations = (10,)
    return [*before, *steps, Step(sublayer, "new x", "TD", equations, new_x_TD)]


def _in_attention(attention: MultiHeadAttention, record: Recording, layer: int) -> list[Step]:
    """The steps of attention; queries and keys are normalised and rotated, where the model does so."""
    q_BHTK, k_BGSK, v_BGSK = record.queries_keys_values[layer]
    if not record.is_known[layer]:  # only its results can be shown, not how it uses queries and keys
        return [Step("attention", "v", "GSK", (7,), v_BGSK[0]), *_after_scores(attention, record, layer, ())]
    equations = _equations_of_queries(attention)
    sharing = () if attention.n_kv_heads == attention.n_heads else (23,)
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
        Step("attention", "q", "HTK", (7, *equations), q_BHTK[0]),
        Step("attention", "k", "GSK", (7, *sharing, *equations), k_BGSK[0]),
        Step("attention", "v", "GSK", (7, *sharing), v_BGSK[0]),
        Step("attention", "scores", "HTS", scored, scores_HTS),
        *_after_scores(attention, record, layer, mixed),
    ]


def _after_scores(attention: MultiHeadAttention, record: Recording, layer: int, mixed: tuple[int, ...]) -> list[Step]:
    """The steps after the scores: weights, heads and output."""
    return [
        Step("attention", "weights", "HTS", mixed, record.weights[layer]),
        Step("attention", "heads", "HTK", mixed, heads_of(attention, record)),
        Step("attention", "output", "TD", (9,), record.outputs[attention]),
    ]


def _equations_of_queries(attention: MultiHeadAttention) -> tuple[int, ...]:
    """The equations applied to queries and keys after W_Q and W_K: QK-norm, feature map, rotation."""
    equations = [] if isinstance(attention.query_norm, nn.Identity) else [24]
    if isinstance(attention, LinearAttention):
        equations.append(38)
    positions = getattr(attention.rotate, "__self__", None)
    if isinstance(positions, Rotary):
        is_partial = 2 * positions.sin_TI.size(-1) < attention.head_width
        equations += [5, 31] if is_partial else [5]
    return tuple(equations)


def _in_feed_forward(feed_forward: nn.Module, record: Recording) -> list[Step]:
    """The steps of a feed-forward layer; with experts, also their shares in the output. Unused experts have zeros."""
    output = Step("feed_forward", "output", "TD", _equations_of(feed_forward), record.outputs[feed_forward])
    if not isinstance(feed_forward, Experts):
        hidden_TF = record.inputs[feed_forward.W_2]  # type: ignore[index]
        return [Step("feed_forward", "hidden", "TF", _equations_of(feed_forward), hidden_TF), output]
    probabilities_TC, choices_TC = record.outputs[feed_forward.router].topk(feed_forward.top_k)
    shares_TC = probabilities_TC / probabilities_TC.sum(dim=-1, keepdim=True)
    shares_TE = torch.zeros_like(record.outputs[feed_forward.router]).scatter(1, choices_TC, shares_TC)
    is_chosen_TE = torch.zeros_like(shares_TE, dtype=torch.bool).scatter(1, choices_TC, True)  # even with a share of 0
    hidden = []
    for expert, is_chosen_T in zip(feed_forward.experts, is_chosen_TE.T, strict=True):
        rows_RF = record.inputs[expert.W_2]  # type: ignore[index]
        hidden.append(rows_RF.new_zeros(len(is_chosen_T), rows_RF.size(1)).index_put((is_chosen_T,), rows_RF))
    hidden += [record.inputs[expert.W_2] for expert in feed_forward.shared]  # type: ignore[index]
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
