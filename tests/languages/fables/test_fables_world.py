from itertools import pairwise

from pellucid.languages.fables import MAX_WORLD_SIZE
from pellucid.languages.fables.world import animals, article, kind, rival


def test_an_animal_is_the_same_in_every_world():
    assert animals(5000)[:24] == animals(24)
    assert animals(5000)[:1000] == animals(1000)


def test_kinds_differ_and_none_begins_another():
    kinds = sorted(kind(index) for index in range(MAX_WORLD_SIZE))
    assert MAX_WORLD_SIZE >= 5000
    assert not any(longer.startswith(shorter) for shorter, longer in pairwise(kinds))


def test_base_animals_are_rivals_in_pairs_and_later_ones_of_earlier_ones():
    kinds = [kind(index) for index in range(500)]
    for index in range(500):
        other = kinds.index(rival(index)["kind"])
        assert other == index ^ 1 if index < 30 else other < index


def test_later_kinds_look_like_their_base_but_live_elsewhere():
    known = animals(2000)
    assert known[30]["kind"] == "marsh fox"
    assert known[30]["pride"] == known[0]["pride"]
    later = known[30:]
    assert len({(animal["home"], animal["food"], animal["talent"]) for animal in later}) > 0.9 * len(later)


def test_articles_fit_the_sound_of_every_kind():
    assert article("fox") == "a "
    assert article("owl") == "an "
    assert not any(kind(index).startswith(("hour", "honest", "uni", "eu")) for index in range(MAX_WORLD_SIZE))
