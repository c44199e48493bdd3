"""One layer of a decoder, step by step: the tensors in the equations of docs/equations.md, for one text.

Each layer lists its steps in its own file in model/. They are shown only if they agree with what was recorded in a real
forward pass. If somebody has added or edited a layer, so that they do not agree, the recording is shown.

Shapes: T positions as queries, S as keys, D model, H heads, G key/value heads, K head width, F feed-forward.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from pellucid.errors import ConfigError, is_out_of_memory
from pellucid.inspection.interventions import SUBLAYERS, Place, attention_of, feed_forward_of, residual_of
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.decoder import Decoder
from pellucid.model.kv_cache import NoCache
from pellucid.model.language_model import Step, eval_mode
from pellucid.model.one_token import is_close

Gather = Callable[[Tensor, Tensor, Tensor, NoCache], Tensor]


class Recording(NamedTuple):
    """A recorded forward pass over one text: inputs and outputs of modules, and what else they were given.

    For each attention also the values (G, S, K) and their weights (H, T, S).
    """

    inputs: dict[nn.Module, Tensor]
    others: dict[nn.Module, tuple[Any, ...]]
    outputs: dict[nn.Module, Tensor]
    values: dict[nn.Module, Tensor]
    weights: dict[nn.Module, Tensor]


@contextmanager
def recorded(model: Decoder) -> Iterator[Recording]:
    """Inside, a forward pass over one text is recorded; its results do not change.

    ConfigError for an attention that does not weigh values in `gather` and then mix its heads by W_O.
    """
    record = Recording({}, {}, {}, {}, {})

    def keep(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, y = inputs[0], output
        record.inputs[module], record.outputs[module] = (x[0], y[0]) if x.dim() == 3 else (x, y)
        record.others[module] = inputs[1:]

    attentions = [attention_of(model, layer) for layer in range(model.n_layers)]
    with ExitStack() as hooks:
        for layer, attention in enumerate(attentions):
            if not all(hasattr(attention, name) for name in ("gather", "W_O", "n_heads", "head_width")):
                raise _no_heads(attention)
            residuals = [residual_of(model, layer, name) for name in SUBLAYERS]
            feed_forward = feed_forward_of(model, layer)
            for module in (*residuals, attention, attention.W_O, feed_forward, *_last_matrix(feed_forward)):
                hooks.enter_context(module.register_forward_hook(keep))
            hooks.callback(delattr, attention, "gather")
            attention.gather = _recorded_gather(attention, record)  # type: ignore[method-assign, assignment]
        yield record
    for attention in attentions:
        if attention not in record.weights or attention.W_O not in record.inputs:
            raise _no_heads(attention)


def _last_matrix(feed_forward: nn.Module) -> list[nn.Module]:
    return [feed_forward.W_2] if hasattr(feed_forward, "W_2") else []  # type: ignore[list-item]


def _no_heads(attention: nn.Module) -> ConfigError:
    what = f"{type(attention).__name__} does not weigh values in `gather` and then mix its heads by W_O"
    return ConfigError("trace", what, "write it like MultiHeadAttention in model/attention.py")


def _recorded_gather(attention: MultiHeadAttention, record: Recording) -> Gather:
    """Attention that also records its weights: with unit vectors as values, its output Σ weight_s v_s equals them."""
    gather = attention.gather

    def gather_and_keep(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, cache: NoCache) -> Tensor:
        heads_BHTK = gather(q_BHTK, k_BGTK, v_BGTK, cache)
        unit_vectors_TT = torch.eye(k_BGTK.size(2), dtype=v_BGTK.dtype, device=v_BGTK.device)
        try:
            weights_HTS = gather(q_BHTK, k_BGTK, unit_vectors_TT.expand(*k_BGTK.shape[:2], -1, -1), cache)[0]
        except RuntimeError as error:  # as of an attention of one's own that takes only values of the width K
            if is_out_of_memory(error):
                raise
            return heads_BHTK
        if is_close(gather(q_BHTK, k_BGTK, -2 * v_BGTK, cache), -2 * heads_BHTK):  # it is linear in the values
            record.values[attention], record.weights[attention] = v_BGTK[0], weights_HTS
        return heads_BHTK

    return gather_and_keep


def heads_of(attention: MultiHeadAttention, record: Recording) -> Tensor:
    """The output of each head, (H, T, K), before W_O mixes them."""
    concatenated_TD = record.inputs[attention.W_O]
    return concatenated_TD.view(len(concatenated_TD), attention.n_heads, attention.head_width).transpose(0, 1)


def has_experts(model: nn.Module) -> TypeGuard[Decoder]:
    """Whether tokens are routed to experts in this decoder, so that a step says their shares."""
    return isinstance(model, Decoder) and bool(model.sparse_layers())


@torch.no_grad()
def steps_inside(model: Decoder, record: Recording, changed: Collection[Place], layer: int) -> list[Step]:
    """The tensors that a layer computed, in order, on the CPU. changed: the places of which others were put in."""
    attention, feed_forward = attention_of(model, layer), feed_forward_of(model, layer)
    seen = {
        "attention": [
            Step("v", "GSK", (), record.values[attention]),
            Step("weights", "HTS", (), record.weights[attention]),
            Step("heads", "HTK", (), heads_of(attention, record)),
        ],
        "feed_forward": [Step("hidden", "TF", (), record.inputs[W_2]) for W_2 in _last_matrix(feed_forward)],
    }
    is_changed = any(place[1] == layer for place in changed)
    steps = []
    with eval_mode(model):
        for name in SUBLAYERS:
            in_stream = _in_stream(residual_of(model, layer, name), seen[name], record, is_changed)
            steps += [step._replace(sublayer=name, values=step.values.cpu()) for step in in_stream]
    return steps


def _in_stream(residual: nn.Module, seen: list[Step], record: Recording, is_changed: bool) -> list[Step]:
    """The steps of a sublayer, with the residual stream before and after them."""
    x_TD, new_x_TD = record.inputs[residual], record.outputs[residual]
    steps = _in_sublayer(residual.sublayer, seen, record, is_changed)  # type: ignore[arg-type]
    computed = {"norm(x)": record.inputs[residual.sublayer], "new x": new_x_TD}  # type: ignore[index]
    seen = [Step("x", "TD", (), x_TD), *steps, Step("new x", "TD", (), new_x_TD)]
    return _proved(lambda: residual.steps(x_TD, steps, *record.others[residual]), computed) or seen  # type: ignore[operator]


def _in_sublayer(sublayer: nn.Module, seen: list[Step], record: Recording, is_changed: bool) -> list[Step]:
    """The steps that a sublayer says, with the values that were recorded; or these alone."""
    seen = [*seen, Step("output", "TD", (), record.outputs[sublayer])]
    x_TD, values = record.inputs[sublayer], {step.name: step.values for step in seen}
    computed = dict(values)
    if is_changed:  # what was recorded of heads and output is not what the layer computes
        computed["output"] = sublayer(x_TD[None], *record.others[sublayer])[0]
        computed.pop("heads", None)
    steps = _proved(lambda: sublayer.steps(x_TD), computed)  # type: ignore[operator]
    return [step._replace(values=values.get(step.name, step.values)) for step in steps] or seen


def _proved(say: Callable[[], list[Step]], computed: Mapping[str, Tensor]) -> list[Step]:
    """The steps that a layer says, if they are what it computed, as far as that is known; or none."""
    try:
        steps = say()
        known = [step for step in steps if step.name in computed]
        is_proved = known[-1] is steps[-1] and all(is_close(step.values, computed[step.name]) for step in known)
    except Exception:  # it has no steps, or has inherited what does not fit
        return []
    return steps if is_proved else []
