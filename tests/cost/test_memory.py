import pytest
import torch
from safetensors.torch import save

from cost.runs import loss_and_logits, micro_batch, small_config
from model.model_axes import combinations
from pellucid.checkpoint.training_state import model_tensors, optimizer_tensors
from pellucid.config.training import AdamWConfig, MuonConfig, SGDConfig
from pellucid.cost.memory import count_memory
from pellucid.model.build import build_model
from pellucid.runtime.precision import Precision
from pellucid.training.build import build_optimizers

VOCAB_SIZE = 60
FP32 = Precision(torch.device("cpu"), torch.float32)

OPTIMIZERS = {
    "adamw": AdamWConfig(type="adamw"),
    "muon": MuonConfig(type="muon"),
    "sgd": SGDConfig(type="sgd"),
    "sgd without momentum": SGDConfig(type="sgd", momentum=0.0),
}


def counted_memory(config, optimizer):
    has_momentum = optimizer.type != "sgd" or optimizer.momentum > 0
    batch = micro_batch(config, VOCAB_SIZE)
    return count_memory(batch, optimizer.type, has_momentum=has_momentum, decoding_number_bytes=4)


def trained_for_a_step(config, optimizer):
    model = build_model(config, VOCAB_SIZE)
    optimizers = build_optimizers(optimizer, model, FP32)
    loss_and_logits(model, VOCAB_SIZE, torch.float32)[0].backward()
    for each in optimizers:
        each.step()
    return model, optimizers


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_gradients_and_moments_are_those_of_the_tensors(name):
    """Equation 14. A moment is as large as its weight; Adam also counts its steps, in a number each."""
    for choices in ({"bias": True, "qk_norm": True}, {"activation": "swiglu", "tied_embeddings": False}):
        config = small_config(**choices)
        memory = counted_memory(config, OPTIMIZERS[name])
        model, optimizers = trained_for_a_step(config, OPTIMIZERS[name])
        assert memory.weights == sum(parameter.nbytes for parameter in model.parameters())
        assert memory.gradients == sum(parameter.grad.nbytes for parameter in model.parameters())
        moments = optimizer_tensors(model, optimizers).values()
        assert memory.optimizer == sum(moment.nbytes for moment in moments if moment.ndim)
        parts = (memory.weights, memory.gradients, memory.optimizer, memory.activations)
        assert memory.training == sum(parts)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_checkpoint_is_as_large_as_counted_besides_the_names_of_its_tensors(name):
    config = small_config(d_model=64, d_ff=256)
    model, optimizers = trained_for_a_step(config, OPTIMIZERS[name])
    files = [save(model_tensors(model)), save(optimizer_tensors(model, optimizers))]
    on_disk = sum(len(file) for file in files)
    assert counted_memory(config, OPTIMIZERS[name]).checkpoint <= on_disk
    assert counted_memory(config, OPTIMIZERS[name]).checkpoint == pytest.approx(on_disk, rel=0.03)


def test_the_cache_holds_the_keys_and_values_of_every_position():
    for config in combinations(attention=["auto"], zero_init_projections=[False], activation=["relu"], bias=[True]):
        cache = build_model(config, VOCAB_SIZE).new_cache(batch_size=1, capacity=1)
        bytes_held = sum(layer.keys_BGSK.nbytes + layer.values_BGSK.nbytes for layer in cache.layers)
        assert counted_memory(config, OPTIMIZERS["adamw"]).kv_cache_per_token == bytes_held
