"""Quantizes a model's layers and adds an adapter, as a config says."""

from pellucid.adapters.lora import add_lora
from pellucid.adapters.quantized import quantize
from pellucid.config.run import RunConfig
from pellucid.model.language_model import LanguageModel, gives_logits


def adapt(model: LanguageModel, config: RunConfig) -> None:
    """Quantize the layers that are not yet quantized, then add the adapter, as the config says.

    A scalar head is trained along with the adapter, as the base has none. Raises ConfigError as `add_lora` does.
    """
    if config.quantization != "none":
        quantize(model, config.quantization)
    if config.adapter is not None:
        add_lora(model, config.adapter.rank, config.adapter.alpha, config.adapter.targets)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(parameter.requires_grad or not gives_logits(name))
