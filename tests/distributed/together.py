"""Work for the ranks of the tests: training, evaluation and exchange, in float64 so that rounding is no excuse."""

import numpy as np
import torch

from model.family import FAMILY, family_config
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.model import ModelConfig
from pellucid.config.training import AdamWConfig, MuonConfig, OptimizerConfig, SGDConfig
from pellucid.data.batches import Batch
from pellucid.errors import NonFiniteError
from pellucid.evaluation.loss import score
from pellucid.model.build import build_model
from pellucid.model.documents import one_by_one
from pellucid.objectives.next_token import choose_objective
from pellucid.runtime.distributed import ALONE, World
from pellucid.runtime.precision import Precision
from pellucid.training.optimizers import build_optimizers
from pellucid.training.trainer import Trainer, Update
from tiny import VOCAB_SIZE, decoder_config, random_batch, tiny_decoder

FLOAT64 = Precision(torch.device("cpu"), torch.float32)  # no autocast: products are made in the weights' format
OPTIMIZERS: dict[str, OptimizerConfig] = {
    "adamw": AdamWConfig(type="adamw", lr=1e-2),
    "muon": MuonConfig(type="muon"),
    "sgd": SGDConfig(type="sgd"),
}
MODELS: dict[str, ModelConfig] = {
    "dense": decoder_config(),
    # So many experts that on some rank nobody asks one that another rank asks.
    "experts": decoder_config(feed_forward={"type": "moe", "n_experts": 12, "top_k": 2, "load_balance_weight": 0.5}),
    "documents": decoder_config(position={"type": "learned"}),  # that do not see each other
    **{name: family_config(name) for name in FAMILY},
}
N_ROWS = 4


def build_trainer(
    optimizer: str, world: World, n_micro_batches: int, *, is_sharded: bool = False, kind: str = "dense"
) -> Trainer:
    torch.manual_seed(0)
    model = build_model(MODELS[kind], VOCAB_SIZE).double()
    if is_sharded:
        from pellucid.runtime.sharding import shard  # most of a second of imports

        shard(model, model.blocks)
    return Trainer(
        model,
        one_by_one(model, end_of_text=0) if kind == "documents" else model,
        build_optimizers(OPTIMIZERS[optimizer], model, Precision(torch.device("cpu"), torch.float32), world),
        lambda step: 1.0,
        lambda i, rows: random_batch(i).part(rows),
        FLOAT64,
        batch_size=N_ROWS,
        gradient_accumulation_steps=n_micro_batches,
        objective=choose_objective(MODELS[kind], model),
        max_gradient_norm=0.1,
        world=world,
        is_sharded=is_sharded,
    )


def train(
    world: World, optimizer: str, n_micro_batches: int, is_sharded: bool = False, kind: str = "dense"
) -> tuple[list[Update], dict[str, np.ndarray]]:
    """Five updates, and the weights after them."""
    trainer = build_trainer(optimizer, world, n_micro_batches, is_sharded=is_sharded, kind=kind)
    updates = [trainer.update() for _ in range(5)]
    return updates, {name: tensor.detach().numpy() for name, tensor in model_tensors(trainer.model).items()}


def rows_read(world: World, n_micro_batches: int) -> list[list[int]]:
    """The rows that this rank's batches have in the first update, each told by its tokens."""
    trainer = build_trainer("sgd", world, n_micro_batches)
    return [row for i, rows in trainer.share for row in trainer.get_batch(i, rows).inputs_BT.tolist()]


def meet_nan(world: World) -> tuple[str, bool]:
    """One number of a weight is NaN on the last rank alone: the error of this rank, and whether its weights moved."""
    trainer = build_trainer("adamw", world, 2)
    if world.rank == world.size - 1:
        trainer.model.blocks[0].attention.sublayer.W_V.weight.data[0, 0] = torch.nan
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    try:
        trainer.update()
    except NonFiniteError as error:
        same = [
            torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, trainer.model.parameters(), strict=True)
        ]
        return error.what, all(same)
    return "", False


def scores(world: World = ALONE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The scores of five batches, which two or four ranks cannot share equally."""

    def batches():
        for i in range(5):
            batch = random_batch(i)
            counts = batch.targets_BT.numpy() >= 0
            places = np.where(counts, np.arange(counts.size).reshape(counts.shape) + 1000 * i, -1)
            yield Batch(*batch), places

    scored = score(tiny_decoder(), batches(), FLOAT64, world)
    return scored.places, scored.nats, scored.hits


def products(world: World, n_matrices: int) -> list[np.ndarray]:
    """Item by item work on stacks of so many matrices of two shapes, shared out."""
    stacks = [torch.arange(n_matrices * rows * 2.0).reshape(n_matrices, rows, 2) for rows in (2, 3)]
    return [done.numpy() for done in world.share_out(lambda x_NRC: x_NRC @ x_NRC.mT, stacks)]


def sums(world: World) -> tuple[list[float], int, list[list[float]]]:
    tensors = [torch.full((2,), float(world.rank)), torch.full((1, 3), 10.0 * world.rank)]
    world.sum_together(tensors)
    return (
        world.totals([1, world.rank]),
        world.largest(7 * world.rank),
        [tensor.flatten().tolist() for tensor in tensors],
    )
