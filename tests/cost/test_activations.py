import dataclasses
from itertools import accumulate, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from cost.runs import loss_and_logits, micro_batch, small_config
from model.model_axes import AXES
from pellucid.cost.activations import block_bytes, ends_bytes, kept_bytes, peak_bytes
from pellucid.model.build import build_model
from pellucid.training.build import recompute_activations

DTYPES = [torch.float32, torch.bfloat16]

choices = st.fixed_dictionaries(
    {axis: st.sampled_from(values) for axis, values in AXES.items()}
    | {"attention": st.sampled_from(["explicit", "fused", "auto"]), "dropout": st.sampled_from([0.0, 0.1])}
    | {"n_layers": st.integers(1, 2), "n_kv_heads": st.sampled_from([1, 2, 4])}
)


def measured_bytes_kept(model, vocab_size, dtype):
    """What autograd saves between forward and backward, weights and tables apart; and the logits."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved = {}

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _, logits = loss_and_logits(model, vocab_size, dtype)
    saved[logits.untyped_storage().data_ptr()] = logits
    return sum(tensor.untyped_storage().nbytes() for pointer, tensor in saved.items() if pointer not in own)


@given(choices, st.sampled_from(DTYPES), st.integers(2, 60))
@settings(max_examples=80, deadline=None)
def test_every_combination_of_axes_keeps_as_many_bytes_as_counted(choices, dtype, vocab_size):
    """To the byte, although PyTorch decides what to save."""
    config = small_config(**choices)
    kept = measured_bytes_kept(build_model(config, vocab_size), vocab_size, dtype)
    assert kept == kept_bytes(micro_batch(config, vocab_size, dtype))


def measured_peak_bytes(model, vocab_size, dtype):
    """The most that forward and backward hold at once, beyond weights and gradients, which are there before."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss, logits = loss_and_logits(model, vocab_size, dtype)
        loss.backward()
        del logits
    events = profiler.profiler.kineto_results.events()
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


@pytest.mark.parametrize("recomputes_blocks", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_peak_of_a_step_is_within_15_percent_of_the_counted(dtype, recomputes_blocks):
    for activation, attention in product(AXES["activation"], AXES["attention"]):
        config = small_config(activation=activation, attention=attention, context_length=64, d_model=64, d_ff=256)
        model = build_model(config, vocab_size=60)
        if recomputes_blocks:
            recompute_activations(model.blocks)
        peak = measured_peak_bytes(model, 60, dtype)
        counted = peak_bytes(micro_batch(config, 60, dtype, recomputes_blocks=recomputes_blocks))
        assert counted == pytest.approx(peak, rel=0.15), config


def test_activations_grow_with_the_batch_and_weights_copies_do_not():
    batch = micro_batch(small_config(), 60, torch.bfloat16)
    doubled = dataclasses.replace(batch, batch_size=2 * batch.batch_size)
    for once, twice in zip(
        (block_bytes(batch), ends_bytes(batch)), (block_bytes(doubled), ends_bytes(doubled)), strict=True
    ):
        for name, size in once.items():
            is_of_weights = "shorter" in name or "W_Q" in name or "tables" in name
            assert twice[name] == (1 if is_of_weights else 2) * size, name


def test_the_fused_kernel_keeps_nothing_that_grows_with_the_square_of_the_length():
    def kept(attention, context_length):
        return kept_bytes(micro_batch(small_config(attention=attention, context_length=context_length), 60))

    def growth(attention, context_length):
        return kept(attention, 2 * context_length) - kept(attention, context_length)

    assert growth("fused", 2048) == 2 * growth("fused", 1024)
    assert growth("explicit", 2048) > 3.5 * growth("explicit", 1024)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("recomputes_blocks", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("attention", ["explicit", "fused"])
def test_the_peak_on_a_gpu_is_within_15_percent_of_the_counted(attention, recomputes_blocks):
    config = small_config(attention=attention, d_model=512, d_ff=2048, n_heads=8, n_layers=4, context_length=512)
    dtype, vocab_size = torch.bfloat16, 4096
    model = build_model(config, vocab_size).to("cuda")
    if recomputes_blocks:
        recompute_activations(model.blocks)
    for _ in range(2):  # the first time, libraries reserve what they need; and the gradients come to be
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss, logits = loss_and_logits(model, vocab_size, dtype)
        loss.backward()
        del loss, logits
    peak = torch.cuda.max_memory_allocated() - before
    batch = micro_batch(config, vocab_size, dtype, recomputes_blocks=recomputes_blocks, device_type="cuda")
    assert peak_bytes(batch) == pytest.approx(peak, rel=0.15)
