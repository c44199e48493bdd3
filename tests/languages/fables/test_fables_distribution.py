"""The shipped story: what holds of every fable, checked on many."""

import math
import random
import re
import statistics
import string
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.errors import ConfigError, DataError
from pellucid.languages.fables import MAX_WORLD_SIZE, Fables
from pellucid.languages.fables.world import MORALS, story_rules
from pellucid.languages.grammar.notation import Hole
from pellucid.languages.grammar.skills import values_of_attributes

FABLES = Fables(24)
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(3)
    return [FABLES.write(rng) for _ in range(1000)]


def test_the_likeliest_of_a_beginning_begins_so_and_of_a_whole_one_is_itself(texts):
    for text in texts[:10]:
        for end in (0, 17, len(text) // 2, len(text)):
            fable = FABLES.likeliest(text[:end])
            assert fable.startswith(text[:end])
            assert FABLES.log_probability(fable) > -math.inf
            assert fable == text or end < len(text)
    for other in ("Call me Ishmael.", texts[0] + " The end."):
        with pytest.raises(DataError, match="no fable begins with"):
            FABLES.likeliest(other)


@pytest.mark.parametrize("world_size", [2, 24, 300])
def test_entropy_is_the_mean_surprise_of_many_fables(world_size, soak):
    fables, rng, n = Fables(world_size), random.Random(2), 3000 if soak else 200
    surprises = [-fables.log_probability(fables.write(rng)) for _ in range(n)]
    assert abs(statistics.mean(surprises) - fables.entropy_nats) < 4 * statistics.stdev(surprises) / math.sqrt(n)


def test_a_larger_world_has_more_entropy_and_every_world_is_rich():
    worlds = [Fables(world_size) for world_size in (2, 8, 24, 200)]
    entropies = [fables.entropy_nats for fables in worlds]
    assert entropies == sorted(entropies)
    assert 75 < entropies[2] < 110
    assert all(fables.n_texts > 10**15 for fables in worlds)


def test_a_fable_reads_back_as_the_choices_that_were_drawn():
    rng = random.Random(4)
    for _ in range(100):
        numbers: list[float] = []
        text = FABLES.grammar.derive(lambda numbers=numbers: numbers.append(rng.random()) or numbers[-1])
        read = FABLES.read(text)
        assert [index for _, index in read] == [
            fork.draw(number) for (fork, _), number in zip(read, numbers, strict=True)
        ]
        assert "".join(fork.write(index)[0] for fork, index in read) == text
        assert math.isfinite(FABLES.log_probability(text))


@pytest.mark.parametrize("world_size", [2, 24, 200, 2000])
def test_at_every_choice_no_option_begins_like_another(world_size, soak):
    fables, rng = Fables(world_size), random.Random(6)
    checked = set()
    for _ in range(150 if soak else {200: 10, 2000: 2}.get(world_size, 30)):  # a choice among 2,000 takes long to list
        for fork, _ in fables.read(fables.write(rng)):
            openings = tuple(sorted(fork.write(index)[0] for index in fork.allowed()))
            if openings not in checked:
                checked.add(openings)
                assert len(openings) == 1 or all(openings)
                assert not any(longer.startswith(shorter) for shorter, longer in pairwise(openings))


@pytest.mark.parametrize("world_size", [2, 24, MAX_WORLD_SIZE])
def test_every_fable_has_400_to_900_characters(world_size):
    """Bounds: the shortest and the longest option of every rule, the shortest and the longest text of every hole."""
    rules = story_rules(world_size)
    grammar = Fables(world_size).grammar
    values = values_of_attributes(rules, grammar)

    def of_part(part):
        if isinstance(part, str):
            return len(part), len(part)
        if isinstance(part, Hole):
            texts = [MORALS[part.attribute]] if part.variable == "moral" else values[part.variable, part.attribute]
            lengths = [len(text) for text in texts]
            return min(lengths), max(lengths)
        return of_rule(part.rule)

    @cache
    def of_rule(name):
        families = {"animal=": (0, 0), "some of ": (3, 5)}
        if name in families:
            return families[name]
        options = [[of_part(part) for part in option.parts] for option in grammar.written(name)]
        shortest = min(sum(low for low, _ in option) for option in options)
        return shortest, max(sum(high for _, high in option) for option in options)

    shortest, longest = of_rule("fable")
    assert shortest >= 400
    assert longest <= 900


def test_text_is_plain_and_well_set(texts):
    plain = set(string.ascii_letters + " .,;!?'\"\n:")
    for text in texts:
        assert set(text) <= plain
        assert text[0].isupper()
        assert text.endswith(".")
        assert text.count("\n") == 1
        assert text.count('"') % 2 == 0
        assert not re.search(r"  | \n|\n ", text)
        assert not re.search(r'[.!?] "?[a-z]', text)  # a sentence begins with a capital letter
        assert not re.search(r' [.,!?]|[.,!?][.,!?]|,"? [A-Z][a-z]+ "', text)


def test_articles_numbers_and_verbs_agree(texts):
    number = "|".join(NUMBERS)
    thing = "|".join(option.attributes["name"] for option in story_rules(2)["fruits"])
    for text in texts:
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text, re.IGNORECASE)
        assert not re.search(rf"\bone ({thing})s\b|\b({number[4:]}) ({thing})\b", text)
        for given_away, total, left, verb in re.findall(
            rf"({number}) of the ({number}), so that ({number}) (was|were) left", text
        ):
            assert NUMBERS.index(given_away) + NUMBERS.index(left) + 1 == NUMBERS.index(total)
            assert (verb == "was") == (left == "one")


def test_pronouns_follow_the_name(texts):
    pronouns = {option.attributes["name"]: option.attributes["his"] for option in story_rules(2)["hero name"]}
    seen = set()
    for text in texts:
        hero = min(pronouns, key=lambda name: text.find(name) if name in text else len(text))
        for pronoun in re.findall(r"for (his|her) \w+ \w+\.", text.split(". ")[1] + "."):
            assert pronoun == pronouns[hero]
            seen.add(pronoun)
    assert seen == {"his", "her"}


def test_the_moral_follows_from_how_the_storyline_ends(texts):
    signs = {
        "sharing": "left|kept", "greed": "nothing was left", "patience": "already", "kindness": "cry",
        "honesty": "I took it", "lies": "nobody came", "flattery": "the food was gone", "idleness": "until spring",
        "work": "Next year", "nature": "the bed was", "envy": "What would I not give",
    }  # fmt: skip
    texts_of = {moral: [text for text in texts if text.endswith(f"Moral: {moral}")] for moral in MORALS.values()}
    assert all(texts_of.values())
    for lesson, sign in signs.items():
        assert all(re.search(sign, text) for text in texts_of[MORALS[lesson]])
    assert sum(map(len, texts_of.values())) == len(texts)


@settings(max_examples=15)
@given(st.text())
def test_any_string_can_be_asked_about(text):
    assert FABLES.log_probability(text) == -math.inf
    distribution = FABLES.next_character_distribution(text)
    assert distribution == {} or sum(distribution.values()) == pytest.approx(1)
    with pytest.raises(DataError, match="is not a fable"):
        FABLES.skills_of(text)


@settings(max_examples=10)
@given(st.integers(0, 50), st.integers(0, 600), st.sampled_from(string.ascii_letters + " .,\n\0é"))
def test_a_changed_character_is_impossible_or_another_fable(seed, place, character):
    text = FABLES.write(random.Random(seed))
    place %= len(text)
    changed = text[:place] + character + text[place + 1 :]
    chained = 0.0
    for i in range(len(changed) + 1):
        p = FABLES.next_character_distribution(changed[:i]).get(changed[i : i + 1], 0.0)
        chained += math.log(p) if p else -math.inf
        if not p:
            break
    assert FABLES.log_probability(changed) == pytest.approx(chained)


def test_a_fable_with_more_or_less_text_is_no_fable():
    text = FABLES.write(random.Random(7))
    assert FABLES.log_probability(text + " ") == FABLES.log_probability(text[:-1]) == -math.inf
    assert FABLES.next_character_distribution(text) == {"": 1.0}
    assert FABLES.next_character_distribution(text + " ") == {}


@pytest.mark.parametrize("world_size", [-1, 0, 1, 10**6])
def test_an_impossible_world_is_refused(world_size):
    with pytest.raises(ConfigError, match="choose from 2 to"):
        Fables(world_size)
