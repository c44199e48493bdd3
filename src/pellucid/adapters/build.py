"""Quantizes a model's layers and adds an adapter, as a config says."""

from pellucid.adapters.lora import add_lora
from pellucid.adapters.quantized import quantize
from pellucid.config.post_training import LoRAConfig, Quantization
from pellucid.model.language_model import LanguageModel, gives_logits


def adapt(model: LanguageModel, quantization: Quantization, adapter: LoRAConfig | None) -> None:
    """Quantize the layers that are not yet quantized, then add the adapter, if there is one.

    A scalar head is trained along with the adapter, as the base has none. Raises ConfigError as `add_lora` does.
    """
    if quantization != "none":
        quantize(model, quantization)
    if adapter is not None:
        add_lora(model, adapter.rank, adapter.alpha, adapter.targets)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(parameter.requires_grad or not gives_logits(name))
