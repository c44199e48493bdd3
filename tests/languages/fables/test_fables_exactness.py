"""On worlds so small that every fable can be listed, all that Fables promises is compared with the list."""

import math
import random
from itertools import pairwise

import pytest

from tiny_fables import N_STORYLINES, all_stories, tiny_fables


@pytest.fixture(scope="module", params=range(N_STORYLINES))
def tiny(request, soak):
    return tiny_fables(request.param, most=2000 if soak else 500)


@pytest.fixture(scope="module")
def listed(tiny):
    return list(all_stories(tiny.grammar.begin()))


def test_listing_finds_as_many_fables_as_are_counted_and_all_differ(tiny, listed):
    assert 100 < tiny.n_texts == len(listed) == len({text for text, _ in listed})


def test_probabilities_of_all_fables_sum_to_one(listed):
    assert math.fsum(p for _, p in listed) == pytest.approx(1, abs=1e-9)


def test_entropy_is_that_of_the_list(tiny, listed):
    assert tiny.entropy_nats == pytest.approx(-math.fsum(p * math.log(p) for _, p in listed), abs=1e-9)


def test_morals_are_as_probable_as_in_the_list(tiny, listed):
    masses: dict[str, float] = {}
    for text, p in listed:
        moral = text.rpartition("\nMoral: ")[2]
        masses[moral] = masses.get(moral, 0.0) + p
    assert tiny.moral_probabilities == pytest.approx(masses)


def test_no_fable_begins_another(listed):
    texts = sorted(text for text, _ in listed)
    assert not any(longer.startswith(shorter) for shorter, longer in pairwise(texts))


def test_log_probability_is_that_of_the_list(tiny, listed, soak):
    for text, p in listed if soak else random.Random(2).sample(listed, 100):
        assert tiny.log_probability(text) == pytest.approx(math.log(p), abs=1e-9)


def test_next_characters_agree_with_the_list(tiny, listed):
    rng = random.Random(0)
    for text, _ in rng.sample(listed, 10):
        for _ in range(10):
            prefix = text[: rng.randrange(len(text) + 1)]
            masses: dict[str, float] = {}
            for other, p in listed:
                if other.startswith(prefix):
                    following = other[len(prefix) : len(prefix) + 1]
                    masses[following] = masses.get(following, 0.0) + p
            total = sum(masses.values())
            expected = {character: mass / total for character, mass in masses.items()}
            assert tiny.next_character_distribution(prefix) == pytest.approx(expected)


def test_next_characters_chained_give_the_probability(tiny, listed, soak):
    for text, p in random.Random(1).sample(listed, 5 if soak else 1):
        chained = 1.0
        for i in range(len(text) + 1):
            chained *= tiny.next_character_distribution(text[:i])[text[i : i + 1]]
        assert chained == pytest.approx(p)
