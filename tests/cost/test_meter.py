from functools import cache
from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from cost.runs import BATCH_SIZE, BF16, FP32, VOCAB_SIZE, loss_and_logits, run_config, small_config
from model.model_axes import AXES
from pellucid.checkpoint.training_state import model_tensors, optimizer_tensors
from pellucid.config.training import AdamWConfig, MuonConfig, SGDConfig
from pellucid.cost.counts import count_cost
from pellucid.cost.meter import Meter, measure_update
from pellucid.kernels.large_products import packed_product
from pellucid.kernels.products import has_onednn
from pellucid.model.build import build_model
from pellucid.model.feed_forward import FeedForward
from pellucid.model.recompute import recompute_activations
from pellucid.runs.cost_of_run import cost_of_run
from pellucid.runtime.precision import Precision
from pellucid.training.optimizers import build_optimizers
from profiled_memory import most_bytes_held

OPTIMIZERS = {
    "adamw": AdamWConfig(type="adamw"),
    "muon": MuonConfig(type="muon"),
    "sgd": SGDConfig(type="sgd"),
    "sgd without momentum": SGDConfig(type="sgd", momentum=0.0),
}

choices = st.fixed_dictionaries(
    {axis: st.sampled_from(values) for axis, values in AXES.items()}
    | {"attention": st.sampled_from(["explicit", "fused"]), "dropout": st.sampled_from([0.0, 0.1])}
    | {"n_layers": st.just(1), "n_kv_heads": st.sampled_from([1, 2, 4])}
)


def bytes_that_autograd_saves(model, precision):
    """Between forward and backward, weights and tables apart; and the logits."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    saved = {}

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _, logits = loss_and_logits(model, precision)
    saved[logits.untyped_storage().data_ptr()] = logits
    return sum(tensor.untyped_storage().nbytes() for pointer, tensor in saved.items() if pointer not in own)


def bytes_that_a_fake_layer_norm_lacks(model):
    """Bytes of each row's mean and deviation: under bfloat16 on a CPU, only a real one saves them in float32."""
    lacking = []
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.register_forward_pre_hook(
                lambda _, inputs: lacking.append(4 * inputs[0][..., 0].numel() * (inputs[0].dtype == torch.bfloat16))
            )
    return lacking


@given(choices, st.sampled_from([FP32, BF16]))
@settings(max_examples=6, deadline=None)
def test_a_fake_model_holds_as_many_bytes_for_the_backward_pass_as_autograd_saves_of_a_real_one(choices, precision):
    """To the byte, whatever the model is made of, but for what a fake LayerNorm saves in bfloat16."""
    config = small_config(**choices)
    assert_as_many_bytes_fake_as_real(config, precision)


@pytest.mark.parametrize(("precision", "activation"), [(FP32, "gelu"), (BF16, "swiglu")], ids=["fp32", "bf16"])
def test_the_same_holds_for_experts_though_fake_tokens_choose_none(precision, activation, soak):
    moe = {"type": "moe", "n_experts": 6, "top_k": 2, "shared_experts": 1}
    for each in AXES["activation"] if soak else [activation]:
        assert_as_many_bytes_fake_as_real(small_config(feed_forward=moe, activation=each), precision)


def assert_as_many_bytes_fake_as_real(config, precision):
    with FakeTensorMode():
        model = build_model(config, VOCAB_SIZE)
        with Meter() as meter:
            loss, logits = loss_and_logits(model, precision)
    model = build_model(config, VOCAB_SIZE)
    narrower = bytes_that_a_fake_layer_norm_lacks(model)
    real = bytes_that_autograd_saves(model, precision)
    assert logits.shape[-1] == VOCAB_SIZE
    assert meter.held_bytes - loss.nbytes == real - sum(narrower)


def real_peak_bytes(model, precision):
    """The most that forward and backward hold at once, beyond weights and gradients, which are there before."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def step():
        loss, logits = loss_and_logits(model, precision)  # the logits are held until the step ends
        loss.backward()
        return logits

    return most_bytes_held(step)


@pytest.mark.parametrize(("precision", "recomputes_blocks"), [(FP32, False), (BF16, True)], ids=["kept", "recomputed"])
def test_the_peak_of_a_step_is_nearly_that_of_the_real_one(precision, recomputes_blocks, soak):
    activations = AXES["activation"] if soak else [["gelu", "swiglu"][recomputes_blocks]]
    for activation, attention in zip(activations, cycle(["explicit", "fused"]), strict=False):
        config = small_config(activation=activation, attention=attention, context_length=64, d_model=64, d_ff=256)
        model = build_model(config, VOCAB_SIZE)
        if recomputes_blocks:
            recompute_activations(model.blocks)
        faked = cost_of_run(
            run_config(config, gradient_checkpointing="block" if recomputes_blocks else "none"), VOCAB_SIZE, precision
        )
        # A CPU without instructions for bfloat16 sums each product in float32: `aten::mm` holds such a copy of its
        # result meanwhile, which the meter does not see. Little else is held in the backward pass of a single block.
        tolerance = 0.25 if recomputes_blocks and precision is BF16 else 0.15
        assert faked.memory_bytes.activations == pytest.approx(real_peak_bytes(model, precision), rel=tolerance), config


@pytest.mark.cuda
@pytest.mark.parametrize("recomputes_blocks", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("attention", ["explicit", "fused"])
def test_the_peak_on_a_gpu_is_nearly_the_real_one(attention, recomputes_blocks):
    config = small_config(attention=attention, d_model=512, d_ff=2048, n_heads=8, n_layers=4, context_length=512)
    precision = Precision(torch.device("cuda"), torch.bfloat16)
    model = build_model(config, vocab_size=4096).to("cuda")
    if recomputes_blocks:
        recompute_activations(model.blocks)
    for _ in range(2):  # the first time, libraries reserve what they need; and the gradients come to be
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss, logits = loss_and_logits(model, precision)
        loss.backward()
        del loss, logits
    peak = torch.cuda.max_memory_allocated() - before
    faked = cost_of_run(
        run_config(config, gradient_checkpointing="block" if recomputes_blocks else "none"), 4096, precision
    )
    # CUDA's softmax keeps a product of two matrices in its backward pass, which the meter does not see. Little else is
    # held in the backward pass of a single block.
    tolerance = 0.25 if recomputes_blocks and attention == "explicit" else 0.15
    assert faked.memory_bytes.activations == pytest.approx(peak, rel=tolerance)


def test_recomputing_attention_alone_costs_one_product_per_layer_and_saves_what_grows_with_the_square_of_the_length():
    """Equation 17: less memory than storing all, more than recomputing whole blocks; FLOPs the other way round."""

    T = 512

    def update(what):
        config = small_config(attention="explicit", context_length=T, n_layers=3)
        cost = cost_of_run(run_config(config, gradient_checkpointing=what), VOCAB_SIZE, FP32)
        return cost.micro_batch_work.flops, cost.memory_bytes.activations

    (flops, memory), (of_attention, less), (of_blocks, least) = map(update, ("none", "attention", "block"))
    scores = 3 * 2 * BATCH_SIZE * T**2 * 32  # q k^T; the mean of the values is not needed again
    assert flops + scores == of_attention < of_blocks
    assert least < less < memory
    a_matrix = 4 * BATCH_SIZE * 4 * T**2  # of all heads
    assert memory - less > 1.9 * a_matrix, "of three layers, one at a time"
    assert less - least < a_matrix


def test_recomputing_what_is_cheap_repeats_no_product_with_a_weight_matrix():
    """Equation 17: only the two products of attention are computed again; most of the memory is saved."""

    def update(what):
        config = small_config(attention="explicit", context_length=512, n_layers=3)
        cost = cost_of_run(run_config(config, gradient_checkpointing=what), VOCAB_SIZE, FP32)
        return cost.micro_batch_work.flops, cost.memory_bytes.activations

    (flops, _), (_, of_attention), (of_cheap, less), (_, least) = map(update, ("none", "attention", "cheap", "block"))
    assert of_cheap == flops + 2 * 3 * 2 * BATCH_SIZE * 512**2 * 32
    assert least < less < of_attention


def test_the_fused_kernel_holds_nothing_that_grows_with_the_square_of_the_length():
    @cache
    def activations(attention, context_length):
        config = small_config(attention=attention, context_length=context_length, n_layers=1)
        return cost_of_run(run_config(config), VOCAB_SIZE, FP32).memory_bytes.activations

    def growth(attention, context_length):
        return activations(attention, 2 * context_length) - activations(attention, context_length)

    assert growth("fused", 2048) == pytest.approx(2 * growth("fused", 1024), rel=0.01)
    assert growth("explicit", 2048) > 3.5 * growth("explicit", 1024)


class NewFeedForward(FeedForward):
    """Keeps one tensor more than FeedForward."""

    def forward(self, x_BTD):
        return super().forward(x_BTD).tanh()


@pytest.mark.skipif(not has_onednn(), reason="this CPU, or this PyTorch, has no oneDNN for float32")
def test_a_product_with_a_matrix_that_onednn_has_packed_is_one_operation():
    weight_OI, x_BI = torch.ones(512, 256), torch.ones(8, 256)
    packed = packed_product(weight_OI, None)
    with Meter() as meter:
        packed(x_BI)
    assert meter.work.operations == 1
    assert meter.held_bytes <= 4 * 8 * 512


def test_a_layer_that_nobody_told_the_meter_of_is_measured(monkeypatch):
    config = run_config(small_config())
    before = cost_of_run(config, VOCAB_SIZE, FP32)
    monkeypatch.setattr("pellucid.model.build.FeedForward", NewFeedForward)
    after = cost_of_run(config, VOCAB_SIZE, FP32)
    outputs = config.model.n_layers * BATCH_SIZE * config.model.context_length * config.model.d_model * 4
    assert after.memory_bytes.activations == before.memory_bytes.activations + outputs
    assert after.step_work.bytes_moved > before.step_work.bytes_moved


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("adamw", {"activation": "swiglu", "tied_embeddings": False, "d_ff": 512}),
        *((name, {"bias": True, "qk_norm": True}) for name in OPTIMIZERS if name != "adamw"),
    ],
)
def test_weights_gradients_moments_and_checkpoint_are_those_of_the_tensors(name, choices):
    """Equation 14. A checkpoint's file also holds the names of its tensors."""
    config = run_config(small_config(**choices, d_model=64), OPTIMIZERS[name])
    memory = cost_of_run(config, VOCAB_SIZE, FP32).memory_bytes
    model = build_model(config.model, VOCAB_SIZE)
    optimizers = build_optimizers(config.optimizer, model, FP32)
    loss_and_logits(model, FP32)[0].backward()
    for optimizer in optimizers:
        optimizer.step()
    assert memory.weights == sum(parameter.nbytes for parameter in model.parameters())
    assert memory.gradients == sum(parameter.grad.nbytes for parameter in model.parameters())
    moments = optimizer_tensors(model, optimizers)
    assert memory.optimizer == sum(moment.nbytes for moment in moments.values())
    assert memory.training == memory.weights + memory.gradients + memory.optimizer + memory.activations
    on_disk = len(save(model_tensors(model))) + len(save(moments))
    assert on_disk * 0.95 < memory.checkpoint < on_disk


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_deep_model_costs_what_is_measured_of_all_its_layers(name):
    config = run_config(small_config(n_layers=3, tied_embeddings=False), OPTIMIZERS[name])
    cost = cost_of_run(config, VOCAB_SIZE, BF16)
    with FakeTensorMode():
        model = build_model(config.model, VOCAB_SIZE)
        counted = count_cost(model)
        optimizers = build_optimizers(config.optimizer, model, BF16)
        measured = measure_update(model, optimizers, BF16, batch_size=BATCH_SIZE)
    assert (cost.model, cost.micro_batch_work, cost.optimizer_work, cost.memory_bytes) == (counted, *measured)


def test_the_cache_holds_the_keys_and_values_of_every_position():
    for model in (small_config(n_kv_heads=n, n_layers=n) for n in (1, 4)):
        cache = build_model(model, VOCAB_SIZE).new_state(batch_size=1, capacity=1)
        bytes_held = sum(layer.keys_BGSK.nbytes + layer.values_BGSK.nbytes for layer in cache.layers)
        assert cost_of_run(run_config(model), VOCAB_SIZE, FP32).memory_bytes.kv_cache_per_token == bytes_held


@pytest.mark.parametrize("attention", ["linear", {"type": "sliding_window", "window": 3}], ids=["linear", "window"])
def test_a_state_of_constant_size_is_counted_once_and_not_per_token(attention):
    config = small_config(attention=attention)
    memory = cost_of_run(run_config(config), VOCAB_SIZE, FP32).memory_bytes
    state = build_model(config, VOCAB_SIZE).new_state(batch_size=1)
    tensors = [value for layer in state.layers for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    assert memory.state == sum(tensor.nbytes for tensor in tensors) > 0
    assert memory.kv_cache_per_token == 0


def test_flops_are_those_that_torch_counts_and_micro_batches_add_up():
    config = run_config(small_config(attention="explicit"), OPTIMIZERS["muon"])
    model = build_model(config.model, VOCAB_SIZE)
    optimizers = build_optimizers(config.optimizer, model, FP32)
    with FlopCounterMode(display=False) as micro_batch:
        loss_and_logits(model, FP32)[0].backward()
    with FlopCounterMode(display=False) as update:
        for optimizer in optimizers:
            optimizer.step()
    for n in (1, 3):
        work = cost_of_run(run_config(config.model, config.optimizer, gradient_accumulation_steps=n), VOCAB_SIZE, FP32)
        flops = n * micro_batch.get_total_flops() + update.get_total_flops()
        assert update.get_total_flops() > 0
        assert work.step_work.flops == flops


def test_measuring_draws_no_random_numbers_that_training_would_draw():
    before = torch.get_rng_state()
    cost_of_run(run_config(small_config(dropout=0.1)), VOCAB_SIZE, FP32)
    assert torch.equal(torch.get_rng_state(), before)
