"""F18: NaN and infinity end a run before they reach the weights, and what was saved last is finite."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from pellucid.checkpoint.run_directory import steps_in
from processes import command_line
from reference_run import Trace, trace
from tiny_run import assert_one_error_line

VALUES = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
IN_THE_SHORT_FORM = [(25, "nan"), (26, "inf")]


@pytest.fixture(params=[(micro_batch, value) for micro_batch in (25, 26) for value in VALUES], ids=str)
def poison(request: pytest.FixtureRequest, soak: bool) -> tuple[int, str]:
    """Which value, in the first or the second micro-batch of update 13."""
    if not soak and request.param not in IN_THE_SHORT_FORM:
        pytest.skip("long: part of `make soak`")
    return request.param


def replace_objective(change) -> None:
    """`change(objective)` in place of every objective that this process builds."""
    from pellucid import recipe

    original = recipe.choose_objective
    recipe.choose_objective = lambda *built, **options: change(original(*built, **options))


def poison_loss(micro_batch: int, value: float) -> None:
    """The loss of the nth micro-batch of this process."""
    calls = count(1)

    def poisoned(objective):
        def with_value(forward, batch):
            loss = objective(forward, batch)
            return replace(loss, sum=loss.sum + (value if next(calls) == micro_batch else 0.0))

        return with_value

    replace_objective(poisoned)


def poison_gradient(micro_batch: int, value: float) -> None:
    """One number of one gradient; the loss itself is finite."""
    calls = count(1)

    def poisoned(objective):
        def with_hook(forward, batch):
            def poisoned_forward(inputs):
                logits = forward(inputs)
                mask = torch.zeros_like(logits)
                mask[0, 0, 0] = value if next(calls) == micro_batch else 0.0
                logits.register_hook(lambda gradient: gradient + mask)
                return logits

            return objective(poisoned_forward, batch)

        return with_hook

    replace_objective(poisoned)


def poison_validation(nth: int, value: float) -> None:
    from pellucid.evaluation import loss

    original, calls = loss.evaluation_of, 0

    def poisoned(*arguments):
        nonlocal calls
        calls += 1
        evaluation = original(*arguments)
        return replace(evaluation, nats=value) if calls == nth else evaluation

    loss.evaluation_of = poisoned


@pytest.fixture
def arguments(fault_place: Path, request: pytest.FixtureRequest) -> list[str]:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return ["train", "reference.yaml", "--run-dir", name]


def assert_last_save_is_finite_and_the_run_goes_on(place: Path, arguments: list[str], step: int, reference: Trace):
    run = place / arguments[-1]
    assert steps_in(run)[-1] == step
    assert command_line(place, "verify", run).exit_code == 0
    assert command_line(place, *arguments, "--resume").exit_code == 0
    assert trace(run) == reference


def test_f18_a_loss_that_is_not_finite(fault_place, arguments, reference: Trace, poison):
    micro_batch, value = poison
    done = command_line(fault_place, *arguments, fault=partial(poison_loss, micro_batch, VALUES[value]))
    nth = 1 + (micro_batch - 1) % 2
    assert_one_error_line(done, 6, f"step 13: the loss of micro-batch {nth} of 2 is not finite", "step-00000010")
    assert_last_save_is_finite_and_the_run_goes_on(fault_place, arguments, 10, reference)


def test_f18_a_gradient_that_is_not_finite(fault_place, arguments, reference: Trace, poison):
    micro_batch, value = poison
    done = command_line(fault_place, *arguments, fault=partial(poison_gradient, micro_batch, VALUES[value]))
    assert_one_error_line(done, 6, "step 13: the gradient is not finite", "step-00000010 is good")
    assert_last_save_is_finite_and_the_run_goes_on(fault_place, arguments, 10, reference)


@pytest.mark.parametrize("value", ["nan", "-inf"])
def test_f18_a_validation_loss_that_is_not_finite(fault_place, arguments, reference: Trace, value):
    done = command_line(fault_place, *arguments, fault=partial(poison_validation, 3, VALUES[value]))
    assert_one_error_line(done, 6, "step 30: the validation loss is not finite", "step-00000025 is good")
    assert_last_save_is_finite_and_the_run_goes_on(fault_place, arguments, 25, reference)


def test_f18_before_the_first_save_the_message_says_so(fault_place, arguments):
    done = command_line(fault_place, *arguments, fault=partial(poison_loss, 1, VALUES["nan"]))
    assert_one_error_line(done, 6, "step 1: ", "nothing was saved yet")
    assert steps_in(fault_place / arguments[-1]) == []


def spoil_a_weight(nth_save: int) -> None:
    """No check of loss or gradient sees this: the update itself overflows, right before a save."""
    from pellucid.training import progress

    original, calls = progress.model_tensors, 0

    def spoilt(model):
        nonlocal calls
        calls += 1
        tensors = original(model)
        if calls == nth_save:
            with torch.no_grad():
                next(iter(tensors.values()))[0, 0] = VALUES["inf"]
        return tensors

    progress.model_tensors = spoilt


def test_f18_weights_that_are_not_finite_are_not_saved(fault_place, arguments, reference: Trace):
    done = command_line(fault_place, *arguments, fault=partial(spoil_a_weight, 3))
    assert_one_error_line(done, 6, "step 15: ", "is not finite: not saved", "step-00000010 is good")
    assert_last_save_is_finite_and_the_run_goes_on(fault_place, arguments, 10, reference)
