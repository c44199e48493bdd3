"""From config to a way of drawing: the one place where generation reads config."""

from pellucid.config.generation import DrawingConfig
from pellucid.generation.sampling import Sampling


def build_sampling(config: DrawingConfig) -> Sampling:
    return Sampling(**config.model_dump(include=set(DrawingConfig.model_fields)))
