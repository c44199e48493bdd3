"""On worlds so small that every fable can be listed, conditioning is compared with Bayes' rule on the list."""

import math
import random

import pytest

from pellucid.errors import DataError
from pellucid.languages.fables import Fables
from pellucid.languages.fables.about import FablesAbout
from pellucid.languages.fables.world import MORALS
from tiny_fables import N_STORYLINES, all_stories, tiny_fables

FABLES = Fables(24)
CHOICE, INSTRUCTION = (FablesAbout.skills.index(skill) for skill in ("choice", "instruction"))


@pytest.fixture(scope="module", params=[(0, 4), (3, 8), (1,)], ids=str)
def tiny(request):
    return tiny_fables(*request.param, most=300)


@pytest.fixture(scope="module")
def listed(tiny):
    """Each fable with its probability, the kind of its hero and its moral."""
    stories = [(text, p, tiny.examine(text).told) for text, p in all_stories(tiny.grammar.begin())]
    return [(text, p, told["animal"], told["moral"]) for text, p, told in stories]


@pytest.fixture(scope="module", params=["animal", "moral", "both"])
def given(request, tiny, listed):
    """A condition: the fables under it, and those of the list that fulfil it, with p(fable) / P(condition)."""
    animals = ["crow"] if request.param != "moral" else None
    morals = [listed[-1][3]] if request.param != "animal" else None
    about = FablesAbout(tiny, animals, morals)
    selected = {
        text: p for text, p, animal, moral in listed if animal in (animals or [animal]) and moral in (morals or [moral])
    }
    share = math.fsum(selected.values())
    assert about.share == pytest.approx(share, abs=1e-12)
    return about, {text: p / share for text, p in selected.items()}


def test_a_fable_has_its_probability_over_that_of_the_condition_and_all_others_none(listed, given, soak):
    about, conditional = given
    for text, *_ in listed if soak else random.Random(3).sample(listed, 60):
        if text in conditional:
            assert about.log_probability(text) == pytest.approx(math.log(conditional[text]), abs=1e-9)
        else:
            assert about.log_probability(text) == -math.inf


def test_the_stories_of_the_conditioned_grammar_are_those_that_fulfil_the_condition(given):
    about, conditional = given
    assert dict(all_stories(about.grammar.begin())) == pytest.approx(conditional, abs=1e-12)
    assert about.n_texts == len(conditional)


def test_entropy_is_that_of_the_conditional_distribution(given):
    about, conditional = given
    assert about.entropy_nats == pytest.approx(-math.fsum(p * math.log(p) for p in conditional.values()), abs=1e-9)


def test_next_characters_chained_give_the_conditional_probability(given, soak):
    about, conditional = given
    for text in random.Random(0).sample(sorted(conditional), 3 if soak else 1):
        chained = 1.0
        for i in range(len(text) + 1):
            chained *= about.next_character_distribution(text[:i])[text[i : i + 1]]
        assert chained == pytest.approx(conditional[text])


def test_all_of_several_are_equally_probable_and_known_to_be_so(tiny, listed):
    animals, morals = ["fox", "hare"], sorted({moral for *_, moral in listed})
    about = FablesAbout(tiny, animals, morals)
    masses = dict.fromkeys([(animal, moral) for animal in animals for moral in morals], 0.0)
    for text, p in all_stories(about.grammar.begin()):
        told = about.examine(text).told
        masses[told["animal"], told["moral"]] += p
    assert masses == pytest.approx(dict.fromkeys(masses, 1 / len(masses)), abs=1e-9)


@pytest.mark.parametrize("storyline", range(N_STORYLINES))
def test_shared_parts_of_the_entropy_are_those_of_a_grammar_of_its_own(storyline):
    tiny = tiny_fables(storyline, most=250)
    for moral in tiny.morals_of("fable"):
        about = FablesAbout(tiny, ["fox"], [moral])
        alone = Fables(tiny.world_size, about.grammar.source)
        assert about.entropy_nats == pytest.approx(alone.entropy_nats, abs=1e-12)
        assert about.n_texts == alone.n_texts


def test_in_the_shipped_world_every_condition_is_obeyed_and_its_probability_is_bayes():
    rng = random.Random(1)
    for moral in MORALS:
        about = FablesAbout(FABLES, ["otter"], [moral])
        text = about.write(rng)
        assert FABLES.examine(text).told.items() >= {"animal": "otter", "moral": moral}.items()
        assert about.log_probability(text) == pytest.approx(FABLES.log_probability(text) - math.log(about.share))


def test_what_the_condition_tells_is_a_skill_of_its_own():
    about, rng = FablesAbout(FABLES, ["fox"], ["trust"]), random.Random(2)
    for _ in range(2):
        text = about.write(rng)
        anywhere, here = FABLES.skills_of(text), about.skills_of(text)
        for i, (before, now) in enumerate(zip(anywhere, here, strict=True)):
            alternatives = about.next_character_distribution(text[:i])
            assert (now == CHOICE) == (len(alternatives) > 1)
            assert now == (INSTRUCTION if before == CHOICE and len(alternatives) == 1 else before)
        decided = "".join(character for character, skill in zip(text, here, strict=True) if skill == INSTRUCTION)
        assert "o" in decided, "a hero that begins with f might be a frog"


def test_impossible_conditions_are_refused():
    with pytest.raises(DataError, match=r"no hero is of the kind \['dragon'\]"):
        FablesAbout(FABLES, ["dragon"])
    with pytest.raises(DataError, match=r"no fable has the moral \['revenge'\]"):
        FablesAbout(FABLES, None, ["revenge"])
    with pytest.raises(DataError, match="no hero"):
        FablesAbout(FABLES, [])
