"""Device and number format: what is chosen, what is refused."""

import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.runtime import precision
from pellucid.runtime.precision import Precision, resolve_precision
from tiny import random_batch, tiny_decoder, tiny_trainer

CPU = torch.device("cpu")


@pytest.mark.parametrize(("has_bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bf16_exactly_where_the_hardware_has_it(monkeypatch, has_bf16, dtype):
    monkeypatch.setattr(precision, "has_bf16_hardware", lambda device: has_bf16)
    assert resolve_precision("cpu", "auto") == Precision(CPU, dtype)


def test_a_cpu_has_bf16_only_if_onednn_may_use_it(monkeypatch):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(precision, "bf16_is_faster", lambda: True)
    for may_use_it, dtype in [(True, torch.bfloat16), (False, torch.float32)]:
        monkeypatch.setattr(precision, "onednn_has_bfloat16", lambda may_use_it=may_use_it: may_use_it)
        assert resolve_precision("cpu", "auto") == Precision(CPU, dtype)


@pytest.mark.parametrize("faster", [torch.bfloat16, torch.float32])
def test_a_cpu_with_units_for_bf16_takes_the_format_whose_product_was_the_faster(monkeypatch, faster):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr(precision, "onednn_has_bfloat16", lambda: True)
    monkeypatch.setattr(precision, "bf16_is_faster", precision.bf16_is_faster.__wrapped__)
    turns = iter([1, 9, 9, 9] if faster == torch.float32 else [9, 9, 9, 1])  # of both, in turns; others slowed some
    monkeypatch.setattr(precision, "timeit", lambda product, number: next(turns, 5))
    assert resolve_precision("cpu", "auto") == Precision(CPU, faster)


def test_what_is_asked_for_is_taken():
    assert resolve_precision("cpu", "fp32") == Precision(CPU, torch.float32)
    assert resolve_precision("cpu", "bf16") == Precision(CPU, torch.bfloat16)


def test_what_this_machine_has_not_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="PyTorch finds no cuda device on this machine; use auto or cpu"):
        resolve_precision("cuda", "auto")
    with pytest.raises(ConfigError, match="fp16 needs CUDA, not cpu"):
        resolve_precision("cpu", "fp16")


def test_bf16_training_computes_in_bf16_and_keeps_weights_and_loss_in_float32():
    decoder = tiny_decoder()
    dtypes = []
    for module in (decoder.blocks[0], decoder.blocks[0].feed_forward.sublayer.W_1):  # the residual stream, a product
        module.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    in_bf16 = tiny_trainer(decoder, precision=Precision(CPU, torch.bfloat16)).update()
    assert dtypes == [torch.bfloat16] * 2
    assert {parameter.dtype for parameter in decoder.parameters()} == {torch.float32}
    in_float32 = tiny_trainer(tiny_decoder()).update()
    assert in_bf16.loss == pytest.approx(in_float32.loss, rel=0.02)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_step_on_cuda_equals_the_step_on_the_cpu(dtype):
    on_cpu = tiny_trainer(tiny_decoder(), get_batch=random_batch).update()
    cuda = Precision(torch.device("cuda"), dtype)
    on_cuda = tiny_trainer(tiny_decoder().to("cuda"), get_batch=random_batch, precision=cuda).update()
    assert on_cuda.loss == pytest.approx(on_cpu.loss, rel=1e-5 if dtype == torch.float32 else 0.02)
