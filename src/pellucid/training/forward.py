"""How a model computes in training: sharded, compiled or with another engine for its products; what is recomputed."""

import json
from collections.abc import Callable

import torch
from torch import Tensor

from pellucid.config.training import TrainConfig
from pellucid.kernels.products import CHOSEN, with_faster_products
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.distributed import World
from pellucid.runtime.precision import Precision


def forward_in_training(
    model: LanguageModel, train: TrainConfig, precision: Precision, world: World, end_of_text: int | None = None
) -> tuple[Callable[[Tensor], Tensor], bool]:
    """The function that computes logits in training, and whether the model is now sharded over the ranks.

    end_of_text: the token before each document, if those in a row do not see each other.
    """
    forward: Callable[[Tensor], Tensor] = model
    if end_of_text is not None:
        from pellucid.model.documents import one_by_one

        forward = one_by_one(model, end_of_text)  # type: ignore[arg-type]  # the config is of a decoder
    if train.gradient_checkpointing != "none":
        from pellucid.model.recompute import recompute_activations

        recompute_activations(model.blocks, train.gradient_checkpointing)
    if shards(train, world):
        from pellucid.runtime.sharding import shard  # a second of imports

        if train.compile:  # block by block: a graph cannot span the gathering of parameters
            for block in model.blocks:
                block.compile()
        shard(model, model.blocks)
        return forward, True
    if train.compile:
        return torch.compile(forward), False
    # A block that is run again in the backward pass would be without the faster products then.
    runs_once, in_float32 = train.gradient_checkpointing in ("none", "attention"), precision.dtype == torch.float32
    gains = runs_once and in_float32 and precision.device.type == "cpu"
    return with_faster_products(forward) if gains else forward, False


def agree_on_products(world: World) -> None:
    """From now on all ranks compute each kind of product as the first does, whose choices are saved with the run."""
    if world.is_first:
        world.announce("products", json.dumps(CHOSEN))
    else:
        CHOSEN.update(json.loads(world.wait_for("products")))


def shards(train: TrainConfig, world: World) -> bool:
    return train.parallel == "fsdp" and world.size > 1
