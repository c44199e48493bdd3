import dataclasses
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from cost.runs import loss_and_logits, micro_batch, small_config
from pellucid.config.load import load_run_config
from pellucid.cost.activations import FLOAT32
from pellucid.cost.build import predicted_seconds
from pellucid.cost.counts import count_parameters
from pellucid.cost.machine import Machine, measure_machine
from pellucid.cost.step_time import (
    OPTIMIZER_PASSES,
    count_step_work,
    model_flops_utilization,
    orthogonalization_flops,
    step_seconds,
)
from pellucid.model.build import build_model
from pellucid.runtime.precision import Precision
from pellucid.training.build import recompute_activations
from pellucid.training.muon import orthogonalize

VOCAB_SIZE = 60
MACHINE = Machine("a machine", flops_per_second=1e12, bytes_per_second=1e10, seconds_per_operation=1e-6)


class Passes(TorchDispatchMode):
    """Counts operations, and the bytes that they read and write if they are no views."""

    def __init__(self):
        super().__init__()
        self.n_operations = self.bytes_moved = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.n_operations += 1
        if not operation.is_view and not operation.__name__.startswith(
            ("empty", "new_empty", "_unsafe_view", "detach")
        ):
            self.bytes_moved += sum(tensor.nbytes for tensor in tensors_in([args, result]))
        return result


def tensors_in(tree):
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("recomputes_blocks", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize(
    "choices",
    [
        {"attention": "explicit"},
        {"attention": "fused", "activation": "relu"},
        {"attention": "explicit", "activation": "relu_squared", "qk_norm": True},
    ],
    ids=str,
)
def test_bytes_and_operations_are_about_those_that_pytorch_dispatches(choices, dtype, recomputes_blocks):
    config = small_config(**choices, n_layers=3)
    model = build_model(config, VOCAB_SIZE)
    if recomputes_blocks:
        recompute_activations(model.blocks)
    with Passes() as passes:
        loss_and_logits(model, VOCAB_SIZE, dtype)[0].backward()
    batch = micro_batch(config, VOCAB_SIZE, dtype, recomputes_blocks=recomputes_blocks)
    work = count_step_work(batch, "adamw", n_micro_batches=1)
    by_the_optimizer = OPTIMIZER_PASSES["adamw"] * FLOAT32 * count_parameters(batch.shape).total
    assert 0.65 < (work.bytes_moved - by_the_optimizer) / passes.bytes_moved < 1.5
    assert 0.65 < work.operations / passes.n_operations < 1.8


def test_flops_are_those_that_torch_counts_and_a_forward_pass_more_when_blocks_run_again():
    """Nearly: PyTorch spares the last product of a block that runs again, when no gradient needs it."""
    config = small_config(attention="explicit")
    for recomputes_blocks, tolerance in ((False, 0), (True, 0.1)):
        model = build_model(config, VOCAB_SIZE)
        if recomputes_blocks:
            recompute_activations(model.blocks)
        with FlopCounterMode(display=False) as counter:
            loss_and_logits(model, VOCAB_SIZE, torch.float32)[0].backward()
        batch = micro_batch(config, VOCAB_SIZE, recomputes_blocks=recomputes_blocks)
        counted = count_step_work(batch, "adamw", n_micro_batches=1).flops
        assert counted == pytest.approx(counter.get_total_flops(), rel=tolerance)


def test_the_flops_of_muon_are_those_that_torch_counts():
    shape = micro_batch(small_config(n_layers=1), VOCAB_SIZE).shape
    with FlopCounterMode(display=False) as counter:
        for sizes in shape.attention_matrices + shape.feed_forward_matrices:
            orthogonalize([torch.randn(sizes)], torch.float32)
    assert orthogonalization_flops(shape) == counter.get_total_flops()


def test_more_work_takes_longer_and_a_faster_machine_less():
    batch = micro_batch(small_config(), VOCAB_SIZE)
    seconds = step_seconds(count_step_work(batch, "adamw", 1), MACHINE)
    assert seconds > 0
    for change in ({"batch_size": 2 * batch.batch_size}, {"recomputes_blocks": True}, {"number_bytes": 8}):
        assert step_seconds(count_step_work(dataclasses.replace(batch, **change), "adamw", 1), MACHINE) > seconds
    assert step_seconds(count_step_work(batch, "muon", 1), MACHINE) > seconds
    for change in ({"flops_per_second": 1e13}, {"bytes_per_second": 1e11}, {"seconds_per_operation": 1e-7}):
        assert step_seconds(count_step_work(batch, "adamw", 1), dataclasses.replace(MACHINE, **change)) < seconds


def test_micro_batches_add_up_and_the_optimizer_comes_once():
    batch = micro_batch(small_config(), VOCAB_SIZE)
    one, two, three = (step_seconds(count_step_work(batch, "muon", n), MACHINE) for n in (1, 2, 3))
    assert three - two == pytest.approx(two - one)
    assert two < 2 * one


def test_a_step_of_products_alone_at_the_peak_makes_full_use_of_the_machine():
    assert model_flops_utilization(3e12, 3.0, MACHINE.flops_per_second) == 1.0
    assert model_flops_utilization(3e12, 6.0, MACHINE.flops_per_second) == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_machine_can_be_measured(dtype):
    machine = measure_machine(torch.device("cpu"), dtype)
    assert min(machine.flops_per_second, machine.bytes_per_second, machine.seconds_per_operation) > 0
    assert str(dtype).removeprefix("torch.") in machine.where


def test_a_run_of_a_thousand_times_as_many_steps_is_predicted_to_take_a_thousand_times_as_long(monkeypatch):
    monkeypatch.setattr("pellucid.cost.build.measure_machine", lambda device, dtype: MACHINE)
    few, many = (load_run_config(Path("configs/debug.yaml"), [f"train.steps={steps}"]) for steps in (20, 20_000))
    precision = Precision(torch.device("cpu"), torch.float32)
    seconds = predicted_seconds(few, VOCAB_SIZE, precision)
    assert seconds > 0
    assert predicted_seconds(many, VOCAB_SIZE, precision) == pytest.approx(1000 * seconds)
