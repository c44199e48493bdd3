"""The readers of experiments/trees.py: their tables are those of all texts of a small grammar, one by one."""

import random
from collections import Counter

import numpy as np
import pytest

from experiments.conftest import own_code
from pellucid.languages.trees import RandomGrammar, Trees, random_grammar


def all_texts(grammar: RandomGrammar, a: int = 0) -> Counter:
    texts = Counter({(int(x),): grammar.leaves[a, x] for x in np.flatnonzero(grammar.leaves[a])})
    for b, c in np.argwhere(grammar.pairs[a]):
        for first, p in all_texts(grammar, b).items():
            for second, q in all_texts(grammar, c).items():
                texts[first + second] += grammar.pairs[a, b, c] * p * q
    return texts


@pytest.mark.parametrize("k", range(5))
def test_the_tables_of_a_reader_are_sums_over_all_texts(k):
    grammar = random_grammar(levels=3, width=2, symbols=3, rules=2, seed=1)
    expected = [np.zeros((3 ** min(place, k), 4)) for place in range(9)]
    for text, p in all_texts(grammar).items():
        for place, symbol in enumerate([*text, 3]):
            window = 0
            for known in text[max(0, place - k) : place]:
                window = 3 * window + known
            expected[place][window, symbol] += p
    tables = own_code("trees").place_and_last(grammar, 8, k)
    for place in range(9):
        np.testing.assert_allclose(tables[place], expected[place], atol=1e-14)


def test_who_knows_more_pays_less_and_who_knows_all_pays_the_floor():
    language, trees = Trees(random_grammar(levels=3, width=2, symbols=3, rules=2, seed=1)), own_code("trees")
    texts = [language.write(rng) for rng in map(random.Random, range(200))]
    nats = [trees.nats_of_reader(language, texts, k) for k in (0, 1, 2, 7)]
    assert nats == sorted(nats, reverse=True)
    assert nats[-1] == pytest.approx(-sum(map(language.log_probability, texts)), rel=1e-9), "a text has 8 at most"
