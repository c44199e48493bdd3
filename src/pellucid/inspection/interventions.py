"""Changing what one place of a decoder gives, and nothing else: to see what it was for.

A place is a head, ("head", LAYER, HEAD), a whole attention, ("attention", LAYER), or a feed-forward layer,
("feed_forward", LAYER). Instead of what it computes it can give nothing (it is knocked out; Michel et al. 2019), its
mean (Wang et al. 2022), or what it gave for another text (activation patching; Vig et al. 2020).

A head gives K of the numbers that W_O mixes (equation 9), the other two what is added to the stream (equation 10).

Shapes: B batch, T positions, D model, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.errors import ConfigError
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.decoder import Decoder

Place = tuple[str, int] | tuple[str, int, int]


def places_of(model: Decoder) -> list[Place]:
    """All that can be changed: layer by layer the heads, attention as a whole, and the feed-forward layer."""
    places: list[Place] = []
    for layer in range(model.n_layers):
        places += [("head", layer, head) for head in range(attention_of(model, layer).n_heads)]
        places += [("attention", layer), ("feed_forward", layer)]
    return places


def place_name(place: Place) -> str:
    """As tables write it: `head 1.3`, `attention 1`, `feed_forward 0`."""
    kind, *numbers = place
    return f"{kind} {'.'.join(map(str, numbers))}"


def check_places(model: Decoder, places: Iterable[Place], where: str) -> None:
    """ConfigError, at `where`, for a place that the model does not have."""
    known = places_of(model)
    for place in places:
        if place not in known:
            fix = f"use ('head', LAYER, HEAD) up to {known[-3]}, ('attention', LAYER) or ('feed_forward', LAYER)"
            raise ConfigError(where, f"the model has no place {place!r}", fix)


def attention_of(model: Decoder, layer: int) -> MultiHeadAttention:
    return model.blocks[layer].attention.sublayer  # type: ignore[union-attr, return-value]


def feed_forward_of(model: Decoder, layer: int) -> nn.Module:
    return model.blocks[layer].feed_forward.sublayer  # type: ignore[union-attr, return-value]


@contextmanager
def replaced(model: Decoder, outputs: Mapping[Place, Tensor]) -> Iterator[None]:
    """Inside this context, these places give these numbers: K of a head, D of a sublayer; (T, K) and (T, D) for each
    position its own."""
    with ExitStack() as undo:
        for place, output in outputs.items():
            match place:
                case ("head", layer, head):
                    attention = attention_of(model, layer)
                    columns = slice(head * attention.head_width, (head + 1) * attention.head_width)
                    undo.enter_context(_of_head(attention.W_O, columns, output))
                case ("attention", layer):
                    undo.enter_context(_of_sublayer(attention_of(model, layer), output))
                case ("feed_forward", layer):
                    undo.enter_context(_of_sublayer(feed_forward_of(model, layer), output))
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
    """What a place gives that is knocked out: zeros."""
    width = attention_of(model, 0).head_width if place[0] == "head" else model.embeddings.embedding_VD.size(1)
    return torch.zeros(width)
