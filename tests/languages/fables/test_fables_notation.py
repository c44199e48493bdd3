import pytest

from pellucid.languages.grammar.grammar import Grammar
from pellucid.languages.grammar.notation import Choice, Hole, read_rules, read_template
from tiny_fables import all_stories


def test_a_template_is_read_into_its_parts():
    assert read_template(r"[hero:animal!other.kind] of {n}\n{Hero.his} {x}[some of {n}]") == (
        Choice("animal", variable="hero", without=Hole("other", "kind")),
        " of ",
        Hole("n", "name"),
        "\n",
        Hole("hero", "his", capital=True),
        " ",
        Hole("x", "name"),
        Choice("some of ", selector=Hole("n", "name")),
    )


def test_rules_are_read_with_weights_comments_and_continued_lines():
    rules = read_rules("# a comment\nfable\n    2 once\n        upon a time\n    1.5 [day]\nday\n    1 today\n")
    assert list(rules) == ["fable", "day"]
    assert [(option.weight, option.parts) for option in rules["fable"]] == [
        (2.0, ("once upon a time",)),
        (1.5, (Choice("day"),)),
    ]


def grammar_of(source):
    return Grammar(read_rules(source), constants={})


@pytest.mark.parametrize(
    "source",
    [
        "fable\n    1 one\n    1 once\n    1 on\n",
        "fable\n    1 one day\n    1 one [time]\ntime\n    1 night\n",
        "fable\n    1 [time] came\n    1 a c\ntime\n    1 a\n    1 the\n",
    ],
)
def test_options_that_begin_alike_are_refused(source):
    with pytest.raises(ValueError, match="an option begins with"):
        grammar_of(source)


def test_an_option_may_begin_with_a_choice():
    grammar = grammar_of("fable\n    3 [day] came\n    1 night\nday\n    1 dawn\n    2 noon\n")
    assert dict(all_stories(grammar.begin())) == pytest.approx({"dawn came": 0.25, "noon came": 0.5, "night": 0.25})


def test_capitals_and_memory():
    grammar = grammar_of("fable\n    1 [x:beast] and [y:beast!x]: {Y} {x}.\nbeast\n    3 cat\n    1 dog\n    1 hen\n")
    stories = dict(all_stories(grammar.begin()))
    assert len(stories) == 6
    assert stories["cat and dog: Dog cat."] == pytest.approx(0.6 * 0.5)
    assert stories["dog and cat: Cat dog."] == pytest.approx(0.2 * 0.75)
