import random

import pytest

from pellucid.corpora.fables import SKILLS, Fables
from pellucid.corpora.fables.skills import differing

FABLES = Fables(24)


def of_skill(fable, skill):
    return [fable.text[span.start : span.end] for span in fable.spans if span.skill == skill]


def test_spans_cover_every_character_once():
    rng = random.Random(0)
    for _ in range(50):
        fable = FABLES.sample(rng)
        assert [span.start for span in fable.spans] == [0] + [span.end for span in fable.spans[:-1]]
        assert fable.spans[-1].end == len(fable.text)
        assert {span.skill for span in fable.spans} <= set(SKILLS)


@pytest.mark.parametrize("seed", range(6))
def test_a_character_is_choice_where_and_only_where_several_can_follow(seed):
    fable = FABLES.sample(random.Random(seed))
    for span in fable.spans:
        for i in range(span.start, span.end):
            several = len(FABLES.next_character_distribution(fable.text[:i])) > 1
            assert several == (span.skill == "choice"), fable.text[:i]


def test_every_skill_is_needed():
    rng = random.Random(1)
    met = {span.skill for _ in range(100) for span in FABLES.sample(rng).spans}
    assert met == set(SKILLS)


def test_a_name_said_again_is_recalled():
    rng = random.Random(2)
    for _ in range(20):
        fable = FABLES.sample(rng)
        for text in of_skill(fable, "recall"):
            assert text in fable.text[: fable.text.rindex(text)]


def test_the_moral_is_told_apart_by_its_first_characters():
    fable = FABLES.sample(random.Random(3))
    start = fable.text.index("Moral: ") + len("Moral: ")
    assert next(span.skill for span in fable.spans if span.start <= start < span.end) == "moral"
    assert fable.spans[-1].skill == "spelling"


def test_differing_marks_where_alternatives_part():
    assert differing("Hazel", {"Hazel", "Hugo", "Bramble"}) == [True, True, False, False, False]
    assert differing("Hazel", {"Hazel"}) == [False] * 5
    assert differing("an ", {"a ", "an "}) == [False, True, False]
