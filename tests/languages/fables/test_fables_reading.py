"""Reading texts by the grammar: what a fable tells, and when, and where a text is none.

What is decided stays true, whatever the rest of the text.
"""

import random

import pytest

from pellucid.errors import DataError
from pellucid.languages.fables import SKILLS, Fables
from pellucid.languages.fables.reading import PROPERTIES
from pellucid.languages.fables.world import MORALS

FABLES = Fables(24)
DAISY = (
    "Once upon a time, below a snowy hill, there lived a young but kind donkey named Daisy. Every evening she "
    "ambled out with a green flute to look for carrots. Four days after the fair, Daisy needed a brown key and "
    'went to borrow one from a grumpy and quiet fox named Winnie, who lived in a den under an oak. "I will bring '
    'it back in ten days," said Daisy slowly. Winnie trusted her. Then it rained for five days, and the roads '
    'were flooded. But on the tenth day Daisy stood at the door with the key and a painted lantern. "Your word is'
    ' worth gold," cried Winnie. Ever after Daisy and Winnie were the best of friends.\n'
    "Moral: Whoever keeps a small promise is trusted with a great one."
)


def another_end(prefix, rng):
    """A fable that begins with these characters and goes on by chance."""
    _, end, fork = FABLES.grammar.read(prefix)
    text = prefix[:end]
    while fork:
        possible = [i for i in fork.allowed() if fork.write(i)[0].startswith(prefix[len(text) :])]
        written, fork = fork.write(rng.choice(possible))
        text += written
    return text


def test_a_fable_tells_of_its_animals_its_plot_and_its_moral():
    told = FABLES.told_by(DAISY)
    values = ("donkey", "she", "kind", "fox", "promise", "promise")
    assert {name: told[name].value for name in PROPERTIES} == dict(zip(PROPERTIES, values, strict=True))
    ends = {name: DAISY[: told[name].decided_at] for name in PROPERTIES}
    assert ends["animal"].endswith("a young but kind don"), "it might have been a dog"
    assert ends["plot"].endswith("after the fair, Daisy ne")
    assert ends["moral"].endswith("Winnie trusted her. Then"), "broken, it would go on with: The tenth day"


def test_the_beginning_of_a_fable_tells_what_it_has_decided():
    whole = FABLES.told_by(DAISY)
    for end in range(0, len(DAISY), 7):
        told = FABLES.told_by(DAISY[:end])
        assert told.items() <= whole.items()
        assert told.keys() >= {name for name, (_, decided_at) in whole.items() if decided_at + 80 < end}
    assert FABLES.told_by("") == {}
    for impossible in (DAISY + "!", "Once upon a time, far"):
        with pytest.raises(DataError, match="is not the beginning of a fable"):
            FABLES.told_by(impossible)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_decided_stays_so_however_the_fable_goes_on(seed):
    rng = random.Random(seed)
    text = FABLES.write(rng)
    for name, (value, decided_at) in FABLES.told_by(text).items():
        for _ in range(5):
            other = another_end(text[:decided_at], rng)
            assert FABLES.told_by(other)[name] == (value, decided_at), other


def test_before_the_outcome_both_morals_of_a_plot_are_possible():
    rng = random.Random(0)
    told = FABLES.told_by(DAISY)
    others = [FABLES.told_by(another_end(DAISY[: told["moral"].decided_at - 5], rng)) for _ in range(30)]
    assert {other["plot"].value for other in others} == {"promise"}
    assert {other["moral"].value for other in others} == {"promise", "trust"}


def test_every_fable_has_all_properties_and_each_moral_its_plot():
    rng = random.Random(2)
    plots = {}
    for _ in range(100):
        text = FABLES.write(rng)
        told = FABLES.told_by(text)
        assert set(told) == set(PROPERTIES)
        assert text.endswith(f"Moral: {MORALS[told['moral'].value]}")
        plots.setdefault(told["plot"].value, set()).add(told["moral"].value)
    assert {len(morals) for morals in plots.values()} == {2}
    assert len(plots) == 9
    assert set.union(*plots.values()) == set(MORALS)


@pytest.fixture(scope="module")
def fables():
    rng = random.Random(3)
    return [FABLES.write(rng) for _ in range(20)]


def test_a_fable_is_whole_its_beginning_is_not_but_has_no_fault_and_what_follows_its_end_is_one(fables):
    for text in fables:
        reading, end = FABLES.examine(text), random.Random(text).randrange(len(text))
        assert reading[:3] == (True, None, None)
        assert reading.told == {name: told.value for name, told in FABLES.told_by(text).items()}
        assert FABLES.examine(text[:end])[:3] == (False, None, None)
        assert FABLES.examine(text + " Good night.")[:3] == (False, len(text), "spelling")
    assert FABLES.examine("") == (False, None, None, {})


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


def test_what_was_told_before_the_fault_counts(fables):
    for text in fables:
        moral = FABLES.told_by(text)["moral"]
        assert FABLES.examine(text.partition("\nMoral: ")[0] + "~").told["moral"] == moral.value
        assert "moral" not in FABLES.examine(text[: moral.decided_at - 1] + "~").told
