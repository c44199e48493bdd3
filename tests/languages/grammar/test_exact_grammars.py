"""The probabilities of any rules that are accepted are those of drawing, and so are their entropy and number."""

import math
import random
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pellucid.errors import DataError
from pellucid.languages.grammar.own import OwnGrammar
from pellucid.languages.grammar.portrait import all_texts
from reference import grammar as reference

WEIGHTS = st.sampled_from(["1", "2", "1/3", "1e-9", "1e9", "123456789"])
NAMES = ("ada", "Ben", "ox")
DRAWS = ("[n]", "[N]", "[x:n]", "[n!x]", "[y:n!x]", "[of {x}]", "[y:of {y}]", "[y:n={x.c}]", "[m]", "[M]")
TEXTS = ("a", " b", "Ada", "{x}", "{Y}", "{x.c}", "{f.k}")
TEMPLATES = st.lists(st.sampled_from([*DRAWS, *TEXTS]), min_size=1, max_size=3).map("".join)


@st.composite
def rules(draw) -> str:
    def options(*beginnings):
        return [f"    {draw(WEIGHTS)} {beginning}{draw(TEMPLATES)}" for beginning in beginnings]

    names = [f"    {draw(WEIGHTS)} {name} | {draw(st.sampled_from(NAMES))}" for name in NAMES]
    of_names = [line for name in NAMES for line in (f"of {name}", *(f"    {draw(WEIGHTS)} {each}" for each in "uv"))]
    of_names[1] += "[n]"
    middle = options("", "c ") if draw(st.booleans()) else options(draw(st.sampled_from(["", "d"])))
    middle = [line.replace("[m]", "").replace("[M]", "") + "." for line in middle]
    start = options("[x:n] [y:n!x], ", *draw(st.sampled_from([[], ["e [x:n] [y:N] "]])))
    return "\n".join(["s", *start, "m", *middle, "n | c", *names, *of_names, "{f}", "    k | fixed", ""])


@given(rules(), st.integers(0, 100))
@settings(max_examples=25)
def test_every_text_has_the_probability_of_all_ways_to_draw_it(source, seed):
    try:
        grammar = OwnGrammar(source, "rules")
    except DataError:
        assume(False)
    assume(grammar.n_texts < 1_000)
    expected, texts = reference.all_texts(source), all_texts(grammar)
    assert texts.keys() == expected.keys()
    assert grammar.n_texts == len(expected)
    assert math.fsum(texts.values()) == pytest.approx(1, abs=1e-12)
    for text, p in expected.items():
        assert grammar.log_probability(text) == pytest.approx(math.log(p.numerator) - math.log(p.denominator))
    entropy = -math.fsum(float(p) * math.log(p) for p in expected.values())
    assert grammar.entropy_nats == pytest.approx(entropy, abs=1e-12)
    assert grammar.write(random.Random(seed)) in expected


@pytest.mark.parametrize("first", ["1", "1e9", "1e-9"])
def test_what_remains_is_drawn_as_its_weights_say_however_heavy_what_is_left_out(first):
    grammar = OwnGrammar(f"s\n    1 [x:n][y:n!x]\nn\n    1e-9 b\n    {first} a\n    3e-9 c\n    2e-9 d\n", "rules")
    rng = random.Random(0)
    seconds = Counter(text[1] for text in (grammar.write(rng) for _ in range(4_000)) if text[0] == "a")
    n = seconds.total()
    if first != "1e-9":
        assert n == 4_000
    for name, share in {"b": 1 / 6, "c": 1 / 2, "d": 1 / 3}.items():
        assert seconds[name] == pytest.approx(n * share, abs=5 * math.sqrt(n * share))


def test_a_selected_rule_may_draw_further_and_its_choices_count():
    source = "s\n    1 [x:n] [of {x}]\nn\n    1 a\n    1 b\nof a\n    1 c [n]\n    1 d\nof b\n    1 e\n"
    grammar = OwnGrammar(source, "rules")
    assert grammar.n_texts == 4
    assert grammar.entropy_nats == pytest.approx(math.log(2) * (1 + 0.5 * (1 + 0.5)))
