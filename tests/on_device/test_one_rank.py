"""One rank with the exchanges of many, over NCCL on a GPU: as much of it as one GPU can show. On a CPU over gloo."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from pellucid.checkpoint.training_state import model_tensors
from pellucid.generation.engine import in_step
from pellucid.generation.writing import Writing
from pellucid.runtime.distributed import World, connected
from pellucid.runtime.precision import Precision
from pellucid.training.trainer import Trainer
from tiny import random_batch, tiny_decoder, tiny_trainer

WORLD = World(0, 2, store=dist.HashStore())  # the other of the two never comes


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Where rank 0 of two is connected, to itself alone: sums have no more than its own part."""
    init = dist.init_process_group
    monkeypatch.setattr(
        dist, "init_process_group", lambda *args, **options: init(*args, **{**options, "world_size": 1})
    )
    device = torch.device(request.param)
    with connected(WORLD, device):
        yield device


def trainer_of_rank_0(device: torch.device, dtype: torch.dtype, is_sharded: bool) -> Trainer:
    decoder = tiny_decoder().to(device)
    if is_sharded:
        from pellucid.runtime.sharding import shard  # most of a second of imports

        shard(decoder, decoder.blocks)
    options = {"gradient_accumulation_steps": 2, "batch_size": 4, "max_gradient_norm": 1.0}
    return tiny_trainer(decoder, precision=Precision(device, dtype), world=WORLD, is_sharded=is_sharded, **options)


@pytest.mark.parametrize("is_sharded", [False, True], ids=["ddp", "fsdp"])
def test_a_rank_trains_on_its_share_of_the_rows_as_one_alone_does(device, is_sharded):
    rank = trainer_of_rank_0(device, torch.float32, is_sharded)
    alone = tiny_trainer(tiny_decoder(), get_batch=lambda i: random_batch(2 * i), max_gradient_norm=1.0)
    for _ in range(3):
        found, expected = rank.update(), alone.update()
        assert found.loss == pytest.approx(expected.loss, rel=1e-5)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
    expected_tensors = model_tensors(alone.model)
    for name, tensor in model_tensors(rank.model).items():
        torch.testing.assert_close(tensor.cpu(), expected_tensors[name], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("is_sharded", [False, True], ids=["ddp", "fsdp"])
def test_a_rank_trains_in_bf16_and_writes_with_all_weights(device, is_sharded):
    rank = trainer_of_rank_0(device, torch.bfloat16, is_sharded)
    losses = [rank.update().loss for _ in range(3)]
    expected = [
        trainer.update().loss for trainer in [trainer_of_rank_0(device, torch.float32, False)] for _ in range(3)
    ]
    assert losses == pytest.approx(expected, rel=0.03)
    with rank.whole_model(), rank.precision.for_decoding().autocast():
        assert len(list(in_step(rank.model, [Writing([1], 5, seed=(0, i)) for i in range(2)], stop_ids=()))) == 5


@pytest.mark.cuda
def test_fp16_over_nccl_lowers_its_scale_when_a_shard_overflows(device):
    if device.type == "cpu":
        pytest.skip("needs a GPU")
    rank = trainer_of_rank_0(device, torch.float16, is_sharded=True)
    rank.update()
    rank.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**100)
    before = {name: tensor.clone() for name, tensor in model_tensors(rank.model).items()}
    rank.update()
    assert rank.scaler.get_scale() == 2.0**99
    assert all(torch.equal(tensor, before[name]) for name, tensor in model_tensors(rank.model).items())


def test_numbers_of_all_ranks_are_summed_where_the_tensors_lie(device):
    tensors = [torch.full((3,), 2.0, device=device), torch.ones(2, 2, device=device)]
    WORLD.sum_together(tensors)
    assert [float(tensor.sum()) for tensor in tensors] == [6.0, 4.0]
    assert WORLD.totals([1.0, 2.5]) == [1.0, 2.5]
    assert WORLD.largest(7) == 7
