"""From the sample section of a config to the settings of the sampler."""

from pellucid.config.generation import SampleConfig
from pellucid.generation.sampling import Sampling


def build_sampling(config: SampleConfig) -> Sampling:
    """How the texts that a run writes while it trains are drawn."""
    return Sampling(temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)
