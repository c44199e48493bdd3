"""Beliefs read from vectors: by a linear map, beside the guess from the last symbols."""

from itertools import pairwise

import numpy as np
import pytest

from pellucid.errors import ConfigError
from pellucid.inspection import beliefs as module
from pellucid.inspection.beliefs import read_beliefs
from pellucid.languages.hidden import Hidden, mess3

MESS3 = Hidden(mess3(0.05, 0.85), 12)


def layers(*of_each):
    """In place of a model's layers: functions of a text that give the vectors of its symbols."""
    return lambda model, tokenizer, texts: [[layer(text) for layer in of_each] for text in texts]


def test_a_layer_that_holds_the_beliefs_in_other_coordinates_explains_all_of_them(monkeypatch):
    turned = np.array([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, -1.0, 3.0], [2.0, 0.0, 1.0, 1.0]])
    monkeypatch.setattr(
        module,
        "layers_of_texts",
        layers(lambda text: np.array(MESS3.beliefs(text)) @ turned + 5, lambda text: np.ones((12, 2))),
    )
    read = read_beliefs(None, None, MESS3, 600)
    shares = {name: read.explained(points) for name, points in read.layers.items()}
    assert shares == {"embedding": pytest.approx(1.0), "the last norm": pytest.approx(0.0, abs=0.02)}


def test_the_longer_the_last_symbols_the_more_they_tell(monkeypatch):
    monkeypatch.setattr(module, "layers_of_texts", layers(lambda text: np.ones((12, 1)), lambda text: np.ones((12, 1))))
    read = read_beliefs(None, None, MESS3, 400)
    shares = [read.explained(read.last_symbols[n]) for n in (1, 2, 3, 4)]
    assert all(fewer < more for fewer, more in pairwise(shares))
    assert 0.7 < shares[0] < 0.9


def test_a_linear_filter_is_a_linear_map_of_all_symbols_so_far_by_their_distance(monkeypatch):
    monkeypatch.setattr(module, "layers_of_texts", layers(lambda text: np.ones((12, 1)), lambda text: np.ones((12, 1))))
    read = read_beliefs(None, None, MESS3, 400)
    assert read.explained(read.last_symbols[2]) < read.explained(read.linear_filter) < 1

    def counts(text: str) -> np.ndarray:  # a belief that is linear in them is read wholly
        symbols = text.split()
        return np.array([[symbols[: t + 1].count(name) for name in MESS3.names] for t in range(len(symbols))]) / 12

    monkeypatch.setattr(MESS3, "beliefs", counts)
    read = read_beliefs(None, None, MESS3, 200)
    assert read.explained(read.linear_filter) == pytest.approx(1)


def test_beliefs_are_refused_where_a_symbol_is_more_than_one_token(monkeypatch):
    monkeypatch.setattr(module, "layers_of_texts", layers(lambda text: np.ones((24, 1)), lambda text: np.ones((24, 1))))
    with pytest.raises(ConfigError, match="tokenizer: 12 symbols are 24 tokens"):
        read_beliefs(None, None, MESS3, 4)
