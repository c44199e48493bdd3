"""Training on a GPU computes what it computes on a CPU. On a CPU that pretends to be a GPU the tests are rehearsed."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from model.family import FAMILY, family_config
from model.model_axes import covering_combinations
from pellucid.adapters.lora import add_lora, merged
from pellucid.adapters.quantized import quantize
from pellucid.config.model import DecoderConfig
from pellucid.config.training import MuonConfig
from pellucid.cost.machine import measure_machine
from pellucid.model.attention import explicit_attention
from pellucid.model.build import build_model
from pellucid.model.fused_attention import fused_attention
from pellucid.model.recompute import recompute_activations
from pellucid.objectives.next_token import choose_objective, cross_entropy, nats_of, next_token
from pellucid.objectives.preference import PairBatch, dpo
from pellucid.post_training.build import answer_log_probabilities
from pellucid.post_training.pair_evaluation import evaluate_pairs
from pellucid.runtime.precision import Precision, resolve_precision
from pellucid.training.optimizers import build_optimizers, sgd
from pellucid.training.trainer import Trainer, Update
from policy_run import PPO, make_policy_place
from tiny import CPU_FLOAT32, VOCAB_SIZE, gradients, random_batch, tiny_decoder, tiny_trainer

# How far losses of order 1 may be apart: by the digits of the format, each rounding of many counted.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
SHORT = [torch.bfloat16, torch.float16]
TF32 = 2e-3  # cuDNN rounds what recurrent layers multiply to 10 bits, unless it is told not to


def three_updates(model: nn.Module, precision: Precision, objective, **options) -> list[Update]:
    trainer = Trainer(
        model,
        model,
        sgd(model, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda step: 1.0,
        lambda i, rows: random_batch(i).part(rows),
        precision,
        objective=objective,
        **{"max_gradient_norm": 1.0, **options},
    )
    return [trainer.update() for _ in range(3)]


KINDS = [(kind, dtype) for kind in FAMILY for dtype in (torch.float32, torch.bfloat16)]
KINDS += [(kind, torch.float16) for kind in ("decoder", "decoder with experts", "lstm")]


@pytest.mark.parametrize(("kind", "dtype"), KINDS, ids=str)
def test_every_kind_of_model_trains_as_on_a_cpu_in_float32(device, kind, dtype):
    def updates(precision: Precision) -> list[Update]:
        torch.manual_seed(0)
        config = family_config(kind)
        model = build_model(config, VOCAB_SIZE).to(precision.device)
        return three_updates(model, precision, choose_objective(config, model))

    expected, found = updates(CPU_FLOAT32), updates(Precision(device, dtype))
    tolerance = max(TOLERANCE[dtype], TF32 if kind in ("rnn", "lstm", "gru") else 0.0)
    for a, b in zip(expected, found, strict=True):
        assert b.loss == pytest.approx(a.loss, rel=tolerance)
    assert found[0].gradient_norm == pytest.approx(expected[0].gradient_norm, rel=10 * tolerance)


def test_every_value_of_the_axes_has_the_gradients_of_a_cpu(device):
    def gradients_on(place: torch.device, config: DecoderConfig) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = build_model(config, VOCAB_SIZE).to(place)
        loss = choose_objective(config, model)(model, random_batch(0).to(place))
        (loss.sum / loss.count).backward()
        return {name: parameter.grad.cpu() for name, parameter in model.named_parameters()}

    for config in covering_combinations(strength=1, feed_forward=[{"type": "dense"}, {"type": "moe", "n_experts": 3}]):
        expected = gradients_on(torch.device("cpu"), config)
        for name, gradient in gradients_on(device, config).items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, *SHORT], ids=str)
@pytest.mark.parametrize("n_queries", [1, 5, 40])
def test_fused_attention_is_the_explicit_one(device, dtype, n_queries):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 3, n_queries, 16), (2, 3, 40, 16), (2, 3, 40, 16)]
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]

    def of(attend, dtype):
        inputs = [x.to(device, dtype).requires_grad_() for x in drawn]
        heads_BHTK = attend(*inputs, 0.0)
        return [heads_BHTK, *torch.autograd.grad(heads_BHTK.float().square().sum(), inputs)]

    for found, expected in zip(of(fused_attention, dtype), of(explicit_attention, torch.float32), strict=True):
        error = torch.linalg.vector_norm(found.detach().cpu().float() - expected.detach().cpu())
        assert float(error) <= 16 * torch.finfo(dtype).eps * float(expected.detach().norm())


@pytest.mark.parametrize("dtype", [torch.float32, *SHORT], ids=str)
def test_the_loss_is_that_of_float64(device, dtype):
    logits_NV = torch.randn(50, VOCAB_SIZE, generator=torch.Generator().manual_seed(0)).to(dtype)
    targets_N = random_batch(0, n_rows=10).targets_BT.flatten()[:50]
    found, expected = logits_NV.to(device).requires_grad_(), logits_NV.double().requires_grad_()
    losses = cross_entropy(found, targets_N.to(device)).mean(), cross_entropy(expected, targets_N).mean()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for loss in losses:
        loss.backward()
    bound = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.grad.cpu().double(), expected.grad, rtol=bound, atol=bound / 50)


def test_an_update_that_overflows_is_left_out_by_all_optimizers_and_lowers_the_scale(device):
    decoder = tiny_decoder().to(device)
    precision = Precision(device, torch.float16)
    optimizers = build_optimizers(MuonConfig(type="muon"), decoder, precision)
    assert len(optimizers) == 2
    trainer = tiny_trainer(decoder, optimizers=optimizers, precision=precision, max_gradient_norm=1.0)
    trainer.update()
    scale = trainer.scaler.get_scale()
    matrix = decoder.blocks[0].attention.sublayer.W_V.weight
    hook = matrix.register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
    before = [parameter.detach().clone() for parameter in decoder.parameters()]
    trainer.update()
    hook.remove()
    assert all(map(torch.equal, before, decoder.parameters()))
    assert trainer.scaler.get_scale() == scale / 2
    trainer.update()
    assert not torch.equal(before[0], next(decoder.parameters()))


def test_the_scale_is_taken_out_of_the_gradient_before_it_is_clipped(device):
    precision = Precision(device, torch.float16)
    in_fp16 = tiny_trainer(tiny_decoder().to(device), precision=precision).update()
    in_fp32 = tiny_trainer(tiny_decoder()).update()
    assert in_fp16.gradient_norm == pytest.approx(in_fp32.gradient_norm, rel=0.01)


# The compiler makes an instance of our autograd functions, and PyTorch warns of that, though nobody else can fix it.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.cuda
@pytest.mark.parametrize("activation", ["gelu", "relu_squared"])
def test_a_compiled_model_takes_the_same_updates(activation):
    device = torch.device("cuda")

    def updates(compiles: bool) -> list[float]:
        decoder = tiny_decoder(activation=activation, position={"type": "rope"}, qk_norm=True).to(device)
        trainer = tiny_trainer(
            decoder,
            forward=torch.compile(decoder) if compiles else decoder,
            objective=partial(next_token, nats=torch.compile(nats_of) if compiles else nats_of),
            precision=Precision(device, torch.bfloat16),
        )
        return [trainer.update().loss for _ in range(5)]

    assert updates(True) == pytest.approx(updates(False), rel=0.03)


@pytest.mark.cuda
def test_recomputed_activations_drop_the_same_on_a_gpu():
    def gradients_of(recomputes: bool) -> dict[str, torch.Tensor]:
        decoder = tiny_decoder(dropout=0.5).to("cuda")
        if recomputes:
            recompute_activations(decoder.blocks)
        trainer = tiny_trainer(decoder, precision=Precision(torch.device("cuda"), torch.float32))
        trainer._backward(random_batch(0), 10, 0)
        return gradients(decoder)

    kept = gradients_of(False)
    for name, gradient in gradients_of(True).items():
        torch.testing.assert_close(gradient, kept[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("to", ["int8", "nf4", "nf4-double"])
def test_an_adapter_over_few_bits_learns_and_is_merged_as_on_a_cpu(device, to):
    def trained_on(place: torch.device) -> tuple[list[float], torch.Tensor]:
        decoder = tiny_decoder()
        quantize(decoder, to)
        add_lora(decoder, rank=2, alpha=4.0)
        decoder.to(place)
        losses = [update.loss for update in three_updates(decoder, Precision(place, torch.float32), next_token)]
        with torch.no_grad(), merged(decoder):
            return losses, decoder(random_batch(9).inputs_BT.to(place)).cpu()

    (losses, logits), (expected, expected_logits) = trained_on(device), trained_on(torch.device("cpu"))
    assert losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["fp16", pytest.param("bf16", marks=pytest.mark.cuda)])
def test_a_run_that_is_resumed_ends_with_the_same_bytes(device, precision, workplace: Path, pellucid):
    """With explicit attention: the gradient of PyTorch's fused one is summed in any order on a GPU."""
    changes = ["train.device=cuda", f"train.precision={precision}", "model.attention=explicit"]
    assert pellucid("train", "tiny.yaml", *changes, "--run-dir", "whole").exit_code == 0
    (workplace / "part").mkdir()
    for name in ("config.yaml", "tokenizer.json", "metrics.jsonl", "samples.md"):
        shutil.copy(workplace / "whole" / name, workplace / "part" / name)
    shutil.copytree(workplace / "whole/step-00000010", workplace / "part/step-00000010")
    assert pellucid("train", "tiny.yaml", *changes, "--run-dir", "part", "--resume").exit_code == 0
    for name in ("model.safetensors", "optimizer.safetensors", "rng.safetensors"):
        whole, part = (workplace / run / "step-00000020" / name for run in ("whole", "part"))
        assert whole.read_bytes() == part.read_bytes(), name
    assert pellucid("evaluate", "whole").exit_code == 0
    written = pellucid("generate", "whole", "--prompt", "The fox", "--max-new-tokens", "40", "--seed", "1")
    assert written.exit_code == 0
    assert written.stdout


@pytest.mark.parametrize(
    "objective", [pytest.param([], id="grpo", marks=pytest.mark.cuda), pytest.param([PPO], id="ppo")]
)
def test_a_model_learns_from_its_rewards(device, objective, tmp_path: Path, monkeypatch, pellucid):
    make_policy_place(tmp_path)
    monkeypatch.chdir(tmp_path)
    changes = ["train.device=cuda", "train.precision=bf16", "train.steps=2", "evaluation.every_steps=1"]
    result = pellucid("train", "policy.yaml", *objective, *changes)
    assert result.exit_code == 0, result.stderr


def test_a_model_learns_from_pairs(device):
    decoder = tiny_decoder().to(device)
    drawn = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCAB_SIZE, (4, 2, 9), generator=drawn)
    precision = Precision(device, torch.bfloat16)
    inputs, targets = tokens[..., :-1], tokens[..., 1:]
    reference_N = answer_log_probabilities(decoder, precision, inputs.flatten(0, 1), targets.flatten(0, 1))
    batch = PairBatch(inputs, targets, reference_N.view(4, 2))
    trainer = tiny_trainer(decoder, precision=precision, objective=partial(dpo, beta=0.5), get_batch=lambda i: batch)
    losses = [trainer.update().loss for _ in range(5)]
    assert losses[-1] < losses[0]
    evaluation = evaluate_pairs(decoder, trainer.objective, [batch], precision)
    assert evaluation.loss < losses[0]


@pytest.mark.cuda
def test_a_gpu_that_is_full_is_one_line_and_exit_code_8(workplace: Path, pellucid):
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-3)  # 80 MB of 80 GB
    try:
        changes = ["train.device=cuda", "train.batch_size=1024", "model.d_model=512", "data.packing=contiguous"]
        result = pellucid("train", "tiny.yaml", *changes)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.exit_code == 8, result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: memory: it does not fit; lower train.batch_size")


@pytest.mark.cuda
def test_a_gpu_is_chosen_with_bf16_where_it_computes_in_that():
    chosen = resolve_precision("auto", "auto")
    assert chosen.device.type == "cuda"
    computes_in_bf16 = torch.cuda.get_device_capability() >= (8, 0)  # Ampere and later
    assert chosen.dtype == (torch.bfloat16 if computes_in_bf16 else torch.float32)


@pytest.mark.cuda
def test_what_a_gpu_can_do_is_measured_and_leaves_the_random_numbers_as_they_were():
    torch.manual_seed(0)
    expected = torch.rand(3, device="cuda")
    torch.manual_seed(0)
    machine = measure_machine(torch.device("cuda"), torch.bfloat16)
    assert torch.equal(torch.rand(3, device="cuda"), expected)
    assert machine.where == "cuda, bfloat16"
    # Between the least and the most that any GPU with bfloat16 does.
    assert 1e13 < machine.flops_per_second < 1e16
    assert 1e11 < machine.bytes_per_second < 1e14
    assert 1e-7 < machine.seconds_per_operation < 1e-3
