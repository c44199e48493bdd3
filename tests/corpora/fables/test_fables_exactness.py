"""On worlds so small that every fable can be listed, all that Fables promises is compared with the list."""

import math
import random
from itertools import pairwise

import pytest

from pellucid.corpora.fables import Fables
from pellucid.corpora.fables.distribution import story_rules

N_PLOTS = len(story_rules(3)["plot"])
# Tables whose options depend on each other: they stay whole, so that what is told stays possible.
WHOLE = ("animal", "rival of", "some of")


def tiny_fables(plot: int, most: int = 2000) -> Fables:
    """The shipped story with one plot and, of most rules, one option: two where there are few enough fables."""
    rng = random.Random(plot)
    rules = story_rules(world_size=3)
    rules["plot"] = rules["plot"][plot : plot + 1]
    open_rules = [name for name in rules if not name.startswith(WHOLE)]
    rng.shuffle(open_rules)
    # Both endings and some counting stay; the other rules open up in random order.
    open_rules.sort(key=lambda name: not name.endswith((" outcome", "number")))
    kept = {name: rng.sample(rules[name], min(2, len(rules[name]))) for name in open_rules}
    n_open = len(open_rules)
    while True:
        narrowed = {name: kept[name][: 2 if i < n_open else 1] for i, name in enumerate(open_rules)}
        fables = Fables(3, {**rules, **narrowed})
        if fables.n_fables <= most:
            return fables
        n_open = n_open * 9 // 10 if n_open > 10 else n_open - 1


@pytest.fixture(scope="module", params=range(N_PLOTS))
def tiny(request):
    return tiny_fables(request.param)


@pytest.fixture(scope="module")
def listed(tiny):
    return list(tiny.stories())


def test_listing_finds_as_many_fables_as_are_counted_and_all_differ(tiny, listed):
    assert 100 < tiny.n_fables == len(listed) == len({text for text, _ in listed})


def test_probabilities_of_all_fables_sum_to_one(listed):
    assert math.fsum(p for _, p in listed) == pytest.approx(1, abs=1e-9)


def test_entropy_is_that_of_the_list(tiny, listed):
    assert tiny.entropy_nats == pytest.approx(-math.fsum(p * math.log(p) for _, p in listed), abs=1e-9)


def test_no_fable_begins_another(listed):
    texts = sorted(text for text, _ in listed)
    assert not any(longer.startswith(shorter) for shorter, longer in pairwise(texts))


def test_log_probability_is_that_of_the_list(tiny, listed):
    for text, p in listed:
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


def test_next_characters_chained_give_the_probability(tiny, listed):
    for text, p in random.Random(1).sample(listed, 5):
        chained = 1.0
        for i in range(len(text) + 1):
            chained *= tiny.next_character_distribution(text[:i])[text[i : i + 1]]
        assert chained == pytest.approx(p)
