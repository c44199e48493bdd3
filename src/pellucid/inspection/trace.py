"""Traces of a decoder's forward pass: attention weights, the residual stream, and the logit lens.

Hooks record the model's own forward pass, so a trace is right for any parts.

Shapes: L layers, H heads, T positions as queries, S as keys, N points of the residual stream, D model, K head width,
V vocabulary.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from pellucid.errors import ConfigError, DataError
from pellucid.inspection.inside import Recording, heads_of, recorded, steps_inside
from pellucid.inspection.interventions import (
    SUBLAYERS,
    Place,
    attention_of,
    check_places,
    nothing,
    replaced,
    residual_of,
)
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel, Step, eval_mode
from pellucid.model.one_token import is_close
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.pieces import token_text

NOTHING_INSIDE = "this kind of model has no attention heads and no residual stream"


@dataclass(frozen=True, repr=False)
class Trace:
    """The recorded forward pass over one text; all tensors are on the CPU.

    ids, texts: the T tokens read; the first is the end_of_text before a document.
    attention (L, H, T, S): the weights; rows sum to 1, except for linear attention with RoPE.
    heads (L, H, T, K): the output of each head, before W_O.   outputs (N - 1, T, D): the output of each sublayer.
    residuals (N, T, D): the stream x after the embedding and after each sublayer; `points` names these N points.
    """

    ids: list[int]
    texts: list[str]
    attention: Tensor
    heads: Tensor
    outputs: Tensor
    points: list[str]
    residuals: Tensor
    unembed: Callable[[Tensor], Tensor]
    steps_inside: Callable[[int], list[Step]]

    def __repr__(self) -> str:
        n_layers, n_heads, n_tokens, _ = self.attention.shape
        text = reprlib.repr("".join(self.texts[1:]))
        return f"Trace({text}: {n_tokens} tokens, {n_layers} layers, {n_heads} heads)"

    @cached_property
    def logits(self) -> Tensor:
        """The logit lens (nostalgebraist 2020): final norm and unembedding at each point, (N, T, V)."""
        return self.unembed(self.residuals)

    def shares(self, where: str) -> Tensor:
        """The attention weights. ConfigError, at `where`, if those of a query do not sum to 1."""
        if ((self.attention.sum(dim=-1) - 1).abs() > 0.01).any():
            what = "attention weights do not sum to 1 here, as can happen in linear attention with RoPE"
            raise ConfigError(where, what, "choose a run with softmax attention, or without RoPE")
        return self.attention

    def inside(self, layer: int) -> list[Step]:
        """The steps of one layer: queries, keys, scores ... ConfigError if there is no such layer."""
        n_layers = len(self.attention)
        if not 0 <= layer < n_layers:
            raise ConfigError("inside", f"there is no layer {layer!r}", f"choose one from 0 to {n_layers - 1}")
        return self.steps_inside(layer)

    def shares_of_experts(self) -> Tensor | None:
        """The share of each expert in the output of its layer, at each token (L, T, E); None if no layer says it."""
        steps = [step for layer in range(len(self.attention)) for step in self.inside(layer)]
        shares = [step.values for step in steps if step.name == "shares of experts"]
        return torch.stack(shares) if shares else None

    def output_of(self, place: Place) -> Tensor:
        """The output of a place at each position: (T, K) for a head, (T, D) for a sublayer."""
        if len(place) == 3:
            return self.heads[place[1:]]
        sublayer, layer = place
        return self.outputs[2 * layer + SUBLAYERS.index(sublayer)]


@torch.no_grad()
def trace(
    model: Decoder,
    ids: Sequence[int],
    texts: Sequence[str] | None = None,
    *,
    knock_out: Iterable[Place] = (),
    patch: Mapping[Place, Trace] | None = None,
) -> Trace:
    """Run the model over the tokens and record the forward pass. texts: how to show the tokens; by default as ids.

    knock_out: places whose output is set to zero, such as ("head", 1, 3). patch: places whose output is taken from
    another trace. The model is unchanged afterwards. ValueError for more tokens than the context_length; ConfigError
    for a place that does not exist, or a patch from a text of another length or a model of another shape.
    """
    changed = _changes(model, len(ids), list(knock_out), patch or {})
    device = model.embeddings.embedding_VD.device
    with eval_mode(model), replaced(model, changed), recorded(model) as record:
        hidden_TD = model.hidden(torch.tensor([ids], device=device))[0]
    residuals = {f"{i}.{name}": residual_of(model, i, name) for i in range(model.n_layers) for name in SUBLAYERS}
    _require_one_stream(model, list(residuals.values()), record, hidden_TD)
    heads = [heads_of(attention_of(model, layer), record) for layer in range(model.n_layers)]
    embedding_TD = record.inputs[next(iter(residuals.values()))]

    @torch.no_grad()
    def unembed(x_NTD: Tensor) -> Tensor:
        return model.unembed(model.final_norm(x_NTD.to(device))).cpu()

    return Trace(
        ids=list(ids),
        texts=list(texts or map(str, ids)),
        attention=torch.stack(list(record.weights.values())).cpu(),
        heads=torch.stack(heads).cpu(),
        outputs=torch.stack([record.outputs[part.sublayer] for part in residuals.values()]).cpu(),  # type: ignore[index]
        points=["embedding", *residuals],
        residuals=torch.stack([embedding_TD, *(record.outputs[part] for part in residuals.values())]).cpu(),
        unembed=unembed,
        steps_inside=partial(steps_inside, model, record, changed),
    )


def trace_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    text: str,
    *,
    knock_out: Iterable[Place] = (),
    patch: Mapping[Place, Trace] | None = None,
) -> Trace:
    """The trace of a text from the start of a document.

    DataError if the tokenizer cannot encode it or it is longer than the context; ConfigError if this is not a decoder.
    """
    decoder = require_decoder(model, "trace")
    ids = [tokenizer.end_of_text, *tokenizer.encode(text)]
    if len(ids) > model.context_length:
        what = f"{len(ids) - 1:,} tokens are more than the {model.context_length - 1:,} that the model can read"
        raise DataError("trace", what, "give a shorter text")
    texts = [token_text(tokenizer, id_) for id_ in ids]
    return trace(decoder, ids, texts, knock_out=knock_out, patch=patch)


def require_decoder(model: nn.Module, where: str) -> Decoder:
    """The model as a Decoder. ConfigError, at `where`, if it is another kind, which has nothing to trace."""
    if not isinstance(model, Decoder):
        raise ConfigError(where, NOTHING_INSIDE, "take a run of model.type decoder")
    return model


def trace_outside(model: LanguageModel, ids: Sequence[int]) -> Trace:
    """A trace of any kind of model: without heads, and with the output logits as its only point."""
    with torch.no_grad(), eval_mode(model):
        logits_1TV = model(torch.tensor([ids], device=next(model.parameters()).device)).cpu()
    none = torch.zeros(0, 0, len(ids), len(ids))
    return Trace(list(ids), list(map(str, ids)), none, none, none, ["output"], logits_1TV, lambda x: x, lambda _: [])


def _require_one_stream(model: Decoder, parts: Sequence[nn.Module], record: Recording, hidden_TD: Tensor) -> None:
    """ConfigError unless each sublayer reads what the one before it gave, and the last norm what the last one gave."""
    try:
        links = [(record.outputs[a], record.inputs[b]) for a, b in pairwise(parts)]
        links.append((model.final_norm(record.outputs[parts[-1]]), hidden_TD))
    except KeyError:
        links = []
    if not links or not all(is_close(gave, read) for gave, read in links):
        what = "the sublayers of this model do not read what the one before them gave, so there is no stream to show"
        raise ConfigError("trace", what, "pass x from one to the next, like Block in model/block.py")


def _changes(
    model: Decoder, n_tokens: int, knock_out: Sequence[Place], patch: Mapping[Place, Trace]
) -> dict[Place, Tensor]:
    """The new output of each of these places."""
    check_places(model, knock_out, "knock_out")
    check_places(model, patch, "patch")
    changed = {place: nothing(place, model) for place in knock_out}
    for place, other in patch.items():
        if place in changed:
            raise ConfigError("patch", f"{place} is knocked out, too", "leave it out of one of the two")
        if len(other.ids) != n_tokens:
            what = f"the other text has {len(other.ids)} tokens, this one {n_tokens}"
            raise ConfigError("patch", what, "choose texts of as many tokens: each gives what it gave at that position")
        is_there = all(number < n for number, n in zip(place[1:], other.heads.shape, strict=False))
        if not is_there or other.output_of(place).size(-1) != nothing(place, model).size(0):
            what = "the other trace is of a model of another shape"
            raise ConfigError("patch", what, "trace both texts with one model")
        changed[place] = other.output_of(place)
    return changed
