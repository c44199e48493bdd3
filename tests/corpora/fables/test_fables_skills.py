import random

import pytest

from pellucid.corpora.fables import SKILLS, Fables
from pellucid.corpora.fables.skills import differing

FABLES = Fables(24)


def of_skill(text, skill):
    return [text[span.start : span.end] for span in FABLES.spans(text) if span.skill == skill]


def test_spans_cover_every_character_once():
    rng = random.Random(0)
    for _ in range(50):
        text = FABLES.write(rng)
        spans = FABLES.spans(text)
        assert [span.start for span in spans] == [0] + [span.end for span in spans[:-1]]
        assert spans[-1].end == len(text)
        assert {span.skill for span in spans} <= set(SKILLS)


@pytest.mark.parametrize("seed", range(6))
def test_a_character_is_choice_where_and_only_where_several_can_follow(seed):
    text = FABLES.write(random.Random(seed))
    for span in FABLES.spans(text):
        for i in range(span.start, span.end):
            several = len(FABLES.next_character_distribution(text[:i])) > 1
            assert several == (span.skill == "choice"), text[:i]


def test_every_skill_is_needed():
    rng = random.Random(1)
    met = {span.skill for _ in range(100) for span in FABLES.spans(FABLES.write(rng))}
    assert met == set(SKILLS)


def test_a_name_said_again_is_recalled():
    rng = random.Random(2)
    for _ in range(20):
        fable = FABLES.write(rng)
        for text in of_skill(fable, "recall"):
            assert text in fable[: fable.rindex(text)]


def test_the_moral_is_told_apart_by_its_first_characters():
    text = FABLES.write(random.Random(3))
    spans = FABLES.spans(text)
    start = text.index("Moral: ") + len("Moral: ")
    assert next(span.skill for span in spans if span.start <= start < span.end) == "moral"
    assert spans[-1].skill == "spelling"


def test_differing_marks_where_alternatives_part():
    assert differing("Hazel", {"Hazel", "Hugo", "Bramble"}) == [True, True, False, False, False]
    assert differing("Hazel", {"Hazel"}) == [False] * 5
    assert differing("an ", {"a ", "an "}) == [False, True, False]
