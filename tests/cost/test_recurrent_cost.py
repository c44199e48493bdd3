"""The cost of recurrent networks is counted, though PyTorch hides their products in fused kernels."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cost.runs import FP32, VOCAB_SIZE, run_config
from model.test_recurrent import TYPES, tiny_recurrent
from pellucid.cost.build import cost_of
from pellucid.cost.counts import recurrent_backward_flops, recurrent_flops
from pellucid.model.build import build_model
from pellucid.runs.cost_of_run import cost_of_run

N_GATES = {"rnn": 1, "lstm": 4, "gru": 3}
D, L, T = 16, 3, 8

every_type = pytest.mark.parametrize("type_", TYPES)


def small_recurrent(type_, **changes):
    return tiny_recurrent(type_, **{"d_model": D, "n_layers": L, **changes})


@every_type
def test_flops_and_parameters_are_those_of_the_formula(type_):
    """A gate has two D x D matrices, which meet the vectors of every token once, and two biases."""
    cost = cost_of(small_recurrent(type_), VOCAB_SIZE)
    in_matrices = N_GATES[type_] * L * 2 * D**2
    assert cost.forward_flops_per_token.recurrent == 2 * in_matrices
    assert cost.forward_flops_per_token.unembedding == 2 * VOCAB_SIZE * D
    assert cost.forward_flops_per_token.total == 2 * (in_matrices + VOCAB_SIZE * D)
    assert cost.training_flops_per_token.total == 3 * cost.forward_flops_per_token.total
    assert cost.parameters.recurrent == in_matrices + N_GATES[type_] * L * 2 * D
    assert (cost.parameters.embedding, cost.parameters.norms) == (VOCAB_SIZE * D, D)


def test_an_lstm_counts_as_its_products_one_by_one():
    """In float64 PyTorch has no fused LSTM on a CPU: what it then does is counted operation by operation.

    Going back it leaves out what nobody asks for: each layer's gradient with respect to the first hidden state.
    """
    config, tokens = small_recurrent("lstm"), torch.zeros(2, T, dtype=torch.long)
    counts = []
    for dtype in (torch.float32, torch.float64):
        model = build_model(config, VOCAB_SIZE).to(dtype)
        with FlopCounterMode(display=False) as counter:
            logits = model(tokens)
            forward = counter.get_total_flops()
            logits.sum().backward()
        counts.append((forward, counter.get_total_flops()))
    (fused, fused_both), (forward, both) = counts
    assert fused == forward
    assert fused_both == both + L * 2 * 2 * 4 * D**2


def test_the_kernel_of_a_gpu_counts_as_the_one_of_a_cpu():
    """It is given the shapes of all weights in a list, matrices and biases."""
    weights = [(4 * D, D), (4 * D, D), (4 * D,), (4 * D,)]
    one_by_one = recurrent_flops((T, 2, D), *weights)
    assert recurrent_flops((T, 2, D), L * weights, 4, None, out_shape=()) == L * one_by_one == 2 * T * 2 * L * 8 * D**2
    assert recurrent_backward_flops((T, 2, D), L * weights, out_shape=()) == 2 * L * one_by_one


@every_type
def test_the_state_of_a_long_text_is_that_of_a_short_one(type_):
    n_vectors = 2 if type_ == "lstm" else 1
    for context_length in (4, 8):
        config = run_config(small_recurrent(type_, context_length=context_length))
        memory = cost_of_run(config, VOCAB_SIZE, FP32).memory_bytes
        assert memory.kv_cache_per_token == 0
        assert memory.state == 4 * n_vectors * L * D
