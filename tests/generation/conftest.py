from collections.abc import Callable, Sequence

import pytest
import torch

from pellucid.config.model import DecoderConfig
from pellucid.generation.engine import in_step
from pellucid.generation.writing import Writing
from pellucid.model.build import build_model
from pellucid.model.decoder import Decoder
from pellucid.model.language_model import LanguageModel


@pytest.fixture
def make_decoder() -> Callable[..., Decoder]:
    """Builds a tiny decoder whose weights are large, so that it says different things in different places."""

    def make(*, vocab_size: int = 23, context_length: int = 12, **axes: object) -> Decoder:
        axes = {"tied_embeddings": False, **axes}
        config = DecoderConfig(context_length=context_length, d_model=16, n_layers=2, n_heads=2, **axes)  # type: ignore[arg-type]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = build_model(config, vocab_size)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
        return model

    return make


@pytest.fixture
def write_in_step() -> Callable[..., list[Writing]]:
    """Writes texts together, and gives them back as a list."""

    def write(model: LanguageModel, writings: Sequence[Writing], stop_ids: Sequence[int] = (), **options: object):
        for _ in in_step(model, writings, stop_ids=stop_ids, **options):  # type: ignore[arg-type]
            pass
        return list(writings)

    return write
