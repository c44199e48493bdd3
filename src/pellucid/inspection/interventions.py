"""Interventions: replace the output of one place of a decoder, to see what it was for.

A place is a head, ("head", LAYER, HEAD), a whole attention, ("attention", LAYER), or a feed-forward layer,
("feed_forward", LAYER). Its output can be replaced by zeros (knock-out; Michel et al. 2019), its mean (Wang et al.
2022), or its output for another text (activation patching; Vig et al. 2020).

A head's output is the K numbers that W_O mixes (equation 9); that of the others is added to the stream (equation 10).

Shapes: B batch, T positions, D model, H heads, K head width.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ConfigError
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.decoder import Decoder

Place = tuple[str, int] | tuple[str, int, int]

SUBLAYERS = ("attention", "feed_forward")


def places_of(model: Decoder) -> list[Place]:
    """All places, layer by layer: the heads, attention as a whole, and the feed-forward layer."""
    places: list[Place] = []
    for layer in range(model.n_layers):
        n_heads = getattr(attention_of(model, layer), "n_heads", 0)  # an attention of one's own may have none
        places += [("head", layer, head) for head in range(n_heads)]
        places += [("attention", layer), ("feed_forward", layer)]
    return places


def place_name(place: Place) -> str:
    """The name of a place in tables: `head 1.3`, `attention 1`, `feed_forward 0`."""
    kind, *numbers = place
    return f"{kind} {'.'.join(map(str, numbers))}"


def check_places(model: Decoder, places: Iterable[Place], where: str) -> None:
    """Raise ConfigError, at `where`, for a place that the model does not have."""
    all_places = places_of(model)
    for place in places:
        if place not in all_places:
            heads = "".join(f"('head', LAYER, HEAD) up to {place}, " for place in all_places[-3:-2] if len(place) == 3)
            fix = f"use {heads}('attention', LAYER) or ('feed_forward', LAYER)"
            raise ConfigError(where, f"the model has no place {place!r}", fix)


def attention_of(model: Decoder, layer: int) -> MultiHeadAttention:
    return residual_of(model, layer, "attention").sublayer  # type: ignore[return-value]


def feed_forward_of(model: Decoder, layer: int) -> nn.Module:
    return residual_of(model, layer, "feed_forward").sublayer  # type: ignore[return-value]


def residual_of(model: Decoder, layer: int, name: str) -> nn.Module:
    """A sublayer with its residual connection. ConfigError for a block of one's own that has none of this name."""
    residual = getattr(model.blocks[layer], name, None)
    if not hasattr(residual, "sublayer"):
        what = f"layer {layer} has no {name} layer with a residual connection, so there is no stream to look at"
        raise ConfigError("trace", what, "write it like Block in model/block.py")
    return residual  # type: ignore[return-value]


@contextmanager
def replaced(model: Decoder, outputs: Mapping[Place, Tensor]) -> Iterator[None]:
    """Inside, the outputs of these places are replaced: (K,) or (T, K) for a head, (D,) or (T, D) for a sublayer."""
    with ExitStack() as hooks:
        for place, output in outputs.items():
            match place:
                case ("head", layer, head):
                    attention = attention_of(model, layer)
                    columns = slice(head * attention.head_width, (head + 1) * attention.head_width)
                    hooks.enter_context(_of_head(attention.W_O, columns, output))
                case (name, layer):
                    sublayer: nn.Module = residual_of(model, layer, name).sublayer  # type: ignore[assignment]
                    hooks.enter_context(_of_sublayer(sublayer, output))
        yield


def _of_head(W_O: nn.Module, columns: slice, output: Tensor) -> Any:
    def change(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        concatenated_BTD = inputs[0].clone()
        concatenated_BTD[..., columns] = output.to(concatenated_BTD)
        return concatenated_BTD

    return W_O.register_forward_pre_hook(change)


def _of_sublayer(sublayer: nn.Module, output: Tensor) -> Any:
    return sublayer.register_forward_hook(lambda _, __, y_BTD: output.to(y_BTD).expand_as(y_BTD))


def nothing(place: Place, model: Decoder) -> Tensor:
    """The output of a place that is knocked out: zeros."""
    width = attention_of(model, place[1]).head_width if place[0] == "head" else model.embeddings.embedding_VD.size(1)
    return torch.zeros(width)
