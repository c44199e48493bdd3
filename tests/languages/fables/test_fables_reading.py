"""Reading texts that may be no fables."""

import random

import pytest

from pellucid.languages.fables import SKILLS, Fables

FABLES = Fables(24)


@pytest.fixture(scope="module")
def fables():
    rng = random.Random(3)
    return [FABLES.write(rng) for _ in range(20)]


def test_a_fable_is_whole_and_tells_what_told_by_says(fables):
    for text in fables:
        reading = FABLES.examine(text)
        assert reading[:3] == (True, None, None)
        assert reading.told == {name: told.value for name, told in FABLES.told_by(text).items()}


def test_the_beginning_of_a_fable_is_not_whole_but_has_no_fault(fables):
    for text in fables:
        end = random.Random(text).randrange(len(text))
        assert FABLES.examine(text[:end])[:3] == (False, None, None)


def test_the_fault_is_the_first_character_that_cannot_follow(fables):
    for text in fables[:8]:
        rng = random.Random(text)
        place = rng.randrange(len(text))
        broken = text[:place] + rng.choice("~aeT") + text[place + 1 :]
        expected = next(
            (i for i in range(len(broken)) if not FABLES.next_character_distribution(broken[: i + 1])), None
        )
        assert FABLES.examine(broken).broken_at == expected


def test_a_wrong_character_is_blamed_on_the_skill_of_the_right_one(fables):
    for text in fables:
        skills = FABLES.skills_of(text)
        for place in random.Random(text).sample(range(len(text)), 5):
            reading = FABLES.examine(text[:place] + "~" + text[place + 1 :])
            assert (reading.whole, reading.broken_at, reading.broken_by) == (False, place, SKILLS[skills[place]])


def test_text_after_the_end_is_a_fault_there(fables):
    text = fables[0]
    assert FABLES.examine(text + " Good night.")[:3] == (False, len(text), "spelling")


def test_what_was_told_before_the_fault_counts(fables):
    for text in fables:
        moral = FABLES.told_by(text)["moral"]
        assert FABLES.examine(text.partition("\nMoral: ")[0] + "~").told["moral"] == moral.value
        assert "moral" not in FABLES.examine(text[: moral.decided_at - 1] + "~").told


def test_an_empty_text_is_the_beginning_of_a_fable():
    assert FABLES.examine("") == (False, None, None, {})
