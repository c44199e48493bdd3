import random
from itertools import groupby
from operator import itemgetter

import pytest

from pellucid.languages.fables import SKILLS, Fables
from pellucid.languages.grammar.skills import differing

FABLES = Fables(24)


def skills_of(text):
    """The skill of each character."""
    return [SKILLS[index] for index in FABLES.skills_of(text)]


def of_skill(text, skill):
    runs = groupby(zip(text, skills_of(text), strict=True), key=itemgetter(1))
    return ["".join(character for character, _ in run) for each, run in runs if each == skill]


@pytest.mark.parametrize("seed", range(6))
def test_a_character_is_choice_where_and_only_where_several_can_follow(seed):
    text = FABLES.write(random.Random(seed))
    for i, skill in enumerate(skills_of(text)):
        several = len(FABLES.next_character_distribution(text[:i])) > 1
        assert several == (skill == "choice"), text[:i]


def test_every_character_has_a_skill_and_every_skill_is_needed():
    rng = random.Random(1)
    met = set()
    for _ in range(15):
        text = FABLES.write(rng)
        assert len(FABLES.skills_of(text)) == len(text)
        met.update(skills_of(text))
    assert met == set(SKILLS)


def test_a_name_said_again_is_recalled():
    rng = random.Random(2)
    for _ in range(20):
        fable = FABLES.write(rng)
        for text in of_skill(fable, "recall"):
            assert text in fable[: fable.rindex(text)]


def test_the_moral_is_told_apart_by_its_first_characters():
    text = FABLES.write(random.Random(3))
    skills = skills_of(text)
    assert skills[text.index("Moral: ") + len("Moral: ")] == "moral"
    assert skills[-1] == "spelling"


def test_differing_marks_where_alternatives_part():
    assert differing("Hazel", {"Hazel", "Hugo", "Bramble"}) == [True, True, False, False, False]
    assert differing("Hazel", {"Hazel"}) == [False] * 5
    assert differing("an ", {"a ", "an "}) == [False, True, False]
