"""Quantizes a model's layers and adds an adapter, as a config says."""

from pellucid.adapters.lora import add_lora
from pellucid.adapters.quantized import quantize
from pellucid.config.run import RunConfig
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel


def adapt(model: LanguageModel, config: RunConfig) -> None:
    """Quantize the layers that are not yet quantized, then add the adapter, as the config says.

    A scalar head is trained along with the adapter, as the base has none. Raises ConfigError as `add_lora` does.
    """
    if config.quantization != "none":
        quantize(model, config.quantization)
    if config.adapter is not None:
        add_lora(model, config.adapter.rank, config.adapter.alpha, config.adapter.targets)
        if isinstance(model, Decoder) and model.scalar_head is not None:
            model.scalar_head.requires_grad_(True)
