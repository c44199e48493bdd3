"""Which earlier words decide a later one: the code, which tells a story again, against the list of all stories."""

import random
from collections import defaultdict
from itertools import accumulate

import pytest

from pellucid.languages.fables import Fables
from pellucid.languages.grammar.deciding import decided_pieces
from pellucid.languages.grammar.grammar import Grammar
from pellucid.languages.grammar.notation import read_rules, table
from tiny_fables import all_stories, tiny_fables

NAMES = {"Hugo": "he", "Ida": "she", "Otto": "he", "Emma": "she"}
CALLS = {"fox": "yapped", "crow": "cawed", "hen": "clucked"}
TABLES = {
    "animal": table((1, kind, {"kind": kind, "call": call}) for kind, call in CALLS.items()),
    "hero name": table((1, name, {"name": name, "he": he}) for name, he in NAMES.items()),
    "number": table((1, number, {"name": number}) for number in ("two", "three")),
    "some of two": table([(1, "one", {"name": "one", "left": "one"})]),
    "some of three": table([(1, "one", {"name": "one", "left": "two"}), (1, "two", {"name": "two", "left": "one"})]),
}


def story(template):
    return Grammar({**read_rules(f"fable\n    1 {template}"), **TABLES}, constants={})


def decided(grammar, text):
    """Each decided piece, and the words that decide it."""
    drawn, end, _ = grammar.read(text)
    assert end == len(text)
    pieces = decided_pieces(drawn)
    return [(text[piece.start : piece.end], [text[start:end] for start, end in piece.by]) for piece in pieces]


def test_a_name_decides_its_repeats_and_the_pronoun_and_the_animal_its_call():
    grammar = story(
        "A [hero:animal] named [hero:hero name]. {Hero.he} {hero.call}. So {hero} went, and {hero.he} sang."
    )
    assert decided(grammar, "A fox named Ida. She yapped. So Ida went, and she sang.") == [
        ("She", ["Ida"]),
        ("yapped", ["fox"]),
        ("Ida", ["Ida"]),
        ("she", ["Ida", "She", "Ida"]),
    ]


def test_how_many_are_left_is_decided_by_how_many_there_were_and_how_many_went():
    grammar = story("I had [count:number], ate [gift:some of {count}] of the {count}, and {gift.left} stayed.")
    assert decided(grammar, "I had three, ate one of the three, and two stayed.") == [
        ("three", ["three"]),
        ("two", ["three", "one", "three"]),
    ]
    # Of two, nobody eats two: how many there were cannot be told otherwise.
    assert decided(grammar, "I had three, ate two of the three, and one stayed.") == [("one", ["two"])]


def test_another_animal_that_may_not_be_the_same_is_not_decided_by_the_first():
    grammar = story("A [hero:animal] met a [other:animal!hero.kind]. The {hero.kind} {hero.call}.")
    assert decided(grammar, "A fox met a hen. The fox yapped.") == [("fox", ["fox"]), ("yapped", ["fox", "fox"])]


def retellings(stories):
    """The stories that differ from each story in one choice alone, by the place of that choice."""
    numbers = defaultdict(lambda: len(numbers))  # a choice and what it wrote, as a number
    by_others = defaultdict(list)
    for drawn in stories:
        choices = [numbers[next(fork.ahead()), str(fork.rule.options[index].parts)] for fork, index in drawn]
        for place in range(len(drawn)):
            by_others[(place, *choices[:place], None, *choices[place + 1 :])].append((drawn, place))
    retold = defaultdict(lambda: defaultdict(list))
    for same_but_one in by_others.values():
        for drawn, place in same_but_one:
            retold[id(drawn)][place] += [other for other, _ in same_but_one if other is not drawn]
    return retold


def pieces_of(drawn):
    """The pieces of a story: where each starts, its text, and the hole that it fills."""
    pieces = [piece for fork, index in drawn for piece in fork.write_pieces(index)[0]]
    starts = accumulate((len(text) for text, _ in pieces), initial=0)
    return [(start, text, hole) for start, (text, hole) in zip(starts, pieces, strict=False)]


@pytest.fixture(scope="module", params=[0, 1])
def tiny(request):
    """A small grammar, all its stories, and each story's retellings."""
    fables = tiny_fables(request.param, most=200)
    stories = [fables.read(text) for text, _ in all_stories(fables.grammar.begin())]
    return fables, stories, retellings(stories)


def test_the_deciding_words_are_those_of_the_list_of_all_stories(tiny):
    """By definition: for some choice the later piece changes, and never unless the earlier one does."""
    _, stories, retold = tiny
    n_decided = 0
    for drawn in stories[::5]:
        pieces = pieces_of(drawn)
        expected = defaultdict(set)
        for others in retold[id(drawn)].values():
            texts = [[text for _, text, _ in pieces_of(other)] for other in others]
            for later, (start, text, _) in enumerate(pieces):
                if any(other[later] != text for other in texts):
                    for earlier, (before, old, _) in enumerate(pieces[:later]):
                        if all(other[earlier] != old for other in texts if other[later] != text):
                            expected[start, start + len(text)].add((before, before + len(old)))
        decided = {(piece.start, piece.end): set(piece.by) for piece in decided_pieces(drawn)}
        assert decided == expected
        n_decided += len(decided)
    assert n_decided


def test_another_option_of_a_deciding_choice_changes_the_truth_about_the_next_character(tiny):
    fables, stories, retold = tiny
    rng = random.Random(0)
    n_changed = 0
    for drawn in rng.sample(stories, 12):
        for other in (other for others in retold[id(drawn)].values() for other in others):
            for (here, text, hole), (there, other_text, _) in zip(pieces_of(drawn), pieces_of(other), strict=True):
                if hole is not None and text != other_text:
                    same = next(i for i in range(len(text)) if text[i] != other_text[i : i + 1])
                    truth = fables.next_character_distribution(_text(drawn)[: here + same])
                    assert truth != fables.next_character_distribution(_text(other)[: there + same])
                    n_changed += 1
    assert n_changed


def _text(drawn):
    return "".join(text for _, text, _ in pieces_of(drawn))


def test_in_the_shipped_story_something_decides_every_name_fact_pronoun_and_number():
    fables, rng = Fables(24), random.Random(3)
    met = set()
    for _ in range(12):
        text = fables.write(rng)
        decided_places = {
            place for piece in fables.decided_pieces(text) for place in range(piece.start, piece.end) if piece.by
        }
        skills = [fables.skills[skill] for skill in fables.skills_of(text)]
        for place, skill in enumerate(skills):
            if skill in ("recall", "fact", "agreement", "count"):
                assert place in decided_places, text[:place]
                met.add(skill)
            elif skill == "moral":
                assert place not in decided_places
    assert met == {"recall", "fact", "agreement", "count"}
