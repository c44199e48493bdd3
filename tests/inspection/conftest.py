"""A small world of fables, a tokenizer of its words, and three held-out fables, for tests of knock-outs and heads."""

import pytest

from pellucid.corpora.drawn import Drawn
from pellucid.inspection.knock_out import HeldOut, held_out_documents
from pellucid.languages.fables import Fables
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs
from tiny_fables import tiny_fables

CONTEXT = 400  # no fable here is longer


@pytest.fixture(scope="session")
def language() -> Fables:
    return tiny_fables(0, most=500)


@pytest.fixture(scope="session")
def corpus(language: Fables) -> Drawn:
    return Drawn(language, size=10, seed=0, validation_fraction=0.5)


@pytest.fixture(scope="session")
def tokenizer(corpus: Drawn) -> Tokenizer:
    return train_byte_pairs(corpus.documents("validation"), vocab_size=600, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="session")
def fables(corpus: Drawn, tokenizer: Tokenizer) -> list[HeldOut]:
    return held_out_documents(corpus, tokenizer, CONTEXT, n=3)
