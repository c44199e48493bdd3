import dataclasses
import math

import pytest
import torch

from pellucid.cost.machine import Machine, measure_machine
from pellucid.cost.meter import Work
from pellucid.cost.step_time import duration, model_flops_utilization, step_seconds

MACHINE = Machine("a machine", flops_per_second=1e12, bytes_per_second=1e10, seconds_per_operation=1e-6)
WORK = Work(flops=10**12, bytes_moved=10**10, operations=10**6)


def test_flops_bytes_and_operations_each_take_their_time():
    assert step_seconds(WORK, MACHINE) == pytest.approx(3)
    for more in ({"flops": 2 * 10**12}, {"bytes_moved": 2 * 10**10}, {"operations": 2 * 10**6}):
        assert step_seconds(dataclasses.replace(WORK, **more), MACHINE) == pytest.approx(4)
    for faster in ({"flops_per_second": 1e15}, {"bytes_per_second": 1e13}, {"seconds_per_operation": 1e-9}):
        assert step_seconds(WORK, dataclasses.replace(MACHINE, **faster)) == pytest.approx(2.001)


def test_a_duration_is_said_in_the_unit_that_a_person_would_choose():
    seconds = [0.0123, 1.5, 119, 600, 4 * 3600, 90 * 86400]
    assert [duration(each) for each in seconds] == ["12.3 ms", "1.5 s", "119 s", "10 min", "4.0 h", "90.0 days"]


def test_a_step_of_products_alone_at_the_peak_makes_full_use_of_the_machine():
    assert model_flops_utilization(3e12, 3.0, MACHINE.flops_per_second) == 1.0
    assert model_flops_utilization(3e12, 6.0, MACHINE.flops_per_second) == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_machine_can_be_measured(dtype):
    machine = measure_machine(torch.device("cpu"), dtype)
    assert min(machine.flops_per_second, machine.bytes_per_second, machine.seconds_per_operation) > 0
    assert str(dtype).removeprefix("torch.") in machine.where

    assert math.isfinite(step_seconds(WORK, machine))


def test_measuring_a_machine_leaves_the_random_numbers_that_training_draws_as_they_were():
    before = torch.get_rng_state()
    measure_machine(torch.device("cpu"), torch.float32)
    assert torch.equal(torch.get_rng_state(), before)
