"""A grammar from a file: what is wrong with it is said with its line, and what is right is known exactly."""

import json
import math
import random
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pellucid.cli import app_for
from pellucid.config.languages import GrammarConfig
from pellucid.config.load import load_run_config
from pellucid.corpora.build import build_corpus
from pellucid.errors import DataError
from pellucid.languages.fables import Fables
from pellucid.languages.grammar.checks import Checks
from pellucid.languages.grammar.notation import read_written
from pellucid.languages.grammar.own import OwnGrammar, read_source
from pellucid.languages.grammar.portrait import all_texts, portrait
from pellucid.languages.symbols import entropy

ROOT = Path(__file__).parents[3]
WEATHER = ROOT / "configs/languages/weather.rules"
COIN = "toss\n    1 heads\n    3 tails, [again]\nagain\n    1 heads\n    1 tails\n"

COUNTRIES = """
trip
    1 From [from:city] in {from.country} to {from.sister}[to:city={from.sister}] in {to.country}. {distance.far}

city | country: fact | sister: fact
    1 Rome | Italy | Paris
    3/1 Paris | France | Rome

{distance}: distance
    far | Far.
    near | Near.
"""

# Rules with a mistake; the line that is named, and words of the message.
MISTAKES = {
    "an option without a rule": ("    1 heads\n", 1, "an option without a rule"),
    "a wrong indent": ("toss\n  1 heads\n", 2, "2 spaces before an option; indent it with four"),
    "a forgotten indent": ("toss\n1 heads\n", 2, "'1 heads' looks like an option, but is not indented"),
    "a weight without a blank": ("toss\n    1heads\n", 2, "'1heads' is not a weight"),
    "no text": ("toss\n    1\n    2 tails\n", 2, "an option without a text; write one after its weight"),
    "a choice without a rule": (COIN.replace("[again]", "[x:]"), 3, "[x:] names no rule; write one after the colon"),
    "a hole without a name": (COIN.replace("[again]", "{.x}"), 3, "nothing is called ''"),
    "a tab": ("toss\n\t1 heads\n", 2, "a tab; indent with spaces"),
    "no weight": ("toss\n    heads\n", 2, "'heads' is not a weight; begin an option with a number above 0"),
    "a weight of zero": ("toss\n    0 heads\n", 2, "'0' is not a weight"),
    "a rule twice": ("toss\n    1 heads\ntoss\n    1 tails\n", 3, "the rule 'toss' is written twice; see line 1"),
    "a rule without options": ("toss\n    1 heads\nagain\n", 3, "the rule 'again' has no options"),
    "an unknown rule": (COIN.replace("[again]", "[agan]"), 3, "there is no rule 'agan'; did you mean 'again'?"),
    "an open bracket": (COIN.replace("[again]", "[again"), 3, "'[' is not closed; add ']'"),
    "a bracket in a bracket": (COIN.replace("[again]", "[again [x]"), 3, "'[' is not closed before '[x]'"),
    "a bracket that closes nothing": (COIN.replace("[again]", "again]"), 3, "']' closes nothing"),
    "an empty bracket": (COIN.replace("[again]", "[]"), 3, "a bracket with nothing in it"),
    "an unknown hole": (COIN.replace("[again]", "[x:again] {y}"), 3, "nothing is called 'y'"),
    "a hole before its choice": (COIN.replace("[again]", "{x} [x:again]"), 3, "'x' may not have been drawn yet"),
    "a hole drawn in one option alone": (
        "text\n    1 [part] {x}\npart\n    1 a [x:name]\n    1 b\nname\n    1 Ada\n    1 Ben\n",
        2,
        "'x' may not have been drawn yet where {x.name} stands; draw it earlier, in every option that leads here",
    ),
    "an attribute": (COIN.replace("[again]", "[x:again] {x.home}"), 3, "{x.home} has no 'home'"),
    "more than text remembered": (
        "text\n    1 [x:part] {x}\npart\n    1 a [name]\n    1 b\nname\n    1 Ada\n",
        4,
        "'x' is drawn from 'part', and this option of it is more than plain text",
    ),
    "a rule that uses itself": ("text\n    1 on and [text]\n    1 over\n", 1, "the rule 'text' uses itself (text →"),
    "a circle of rules": ("a\n    1 x [b]\nb\n    1 y [a]\n", 1, "the rule 'a' uses itself (a → b → a)"),
    "options that begin alike": ("toss\n    1 head\n    1 heads\n", 3, "this option of 'toss' and that of line 2 both"),
    "options that begin alike inside": (
        "text\n    1 [name]\n    1 Ada dances\nname\n    1 Ada\n    1 Ben\n",
        3,
        "this option of 'text' and that of line 2 both begin with 'Ada",
    ),
    "nothing left to draw": ("text\n    1 [x:name] and [name!x]\nname\n    1 Ada\n", 2, "[name!…] leaves no option"),
    "a row with too few cells": (COUNTRIES.replace("Italy | Paris", "Italy"), 6, "2 cells, separated by '|', where 3"),
    "a row that draws": (COUNTRIES.replace("Rome | Italy", "[x] | Italy"), 6, "begin a row with plain text"),
    "a column twice": (COUNTRIES.replace("| sister:", "| country:"), 5, "a column twice; give each its own name"),
    "an unknown row": (COUNTRIES.replace("France | Rome", "France | Room"), 3, "{from.sister} may be 'Room', and"),
    "an unknown table": (COUNTRIES.replace("city=", "cities="), 3, "there is no rule 'cities'; did you mean 'city'?"),
    "a column drawn in one way alone": (
        "text\n    1 [part] {x.y}\npart\n    1 a [x:one]\n    1 b [x:two]\none | y\n    1 A | c\ntwo\n    1 B\n",
        2,
        "'x' may not have been drawn yet where {x.y} stands",
    ),
    "a rule for some texts alone": (
        "text\n    1 [x:n] [of {x}]\nn\n    1 a\n    1 b\nof a\n    1 c\n",
        2,
        "{x.name} may be 'b', and there is no rule 'of b'; write one for each text of the hole",
    ),
    "an unknown fixed text": (COUNTRIES.replace("distance.far", "distance.fur"), 3, "there is no fixed text"),
    "an exception that is not unique": (
        COUNTRIES.replace("city={from.sister}", "city!from.country").replace("France", "Italy"),
        3,
        "the 'country' after '!' does not tell the options of 'city' apart",
    ),
    "a division by zero": ("toss\n    1/0 heads\n", 2, "'1/0' is not a weight"),
    "no rules but fixed texts": ("{x}\n    a | b\n", 1, "there are no rules"),
    "no rules": ("# nothing here\n", 1, "there are no rules"),
    "a weight near nothing": ("toss\n    1 heads\n    2e-16 tails\n", 3, "choose one from 1e-09 to 1e+09"),
    "a weight near infinity": ("toss\n    1 heads\n    1e308 tails\n", 3, "choose one from 1e-09 to 1e+09"),
    "a fixed text twice": ("s\n    1 {x.a}\n{x}\n    a | b\n    a | c\n", 5, "the key 'a' of {x} is written twice"),
    "a name for fixed and drawn texts": ("s\n    1 [x:n] {x.a}\nn\n    1 a\n{x}\n    a | b\n", 2, "the fixed texts of"),
    "a hole that may begin like another option": (
        "s\n    1 [x:n] [r]\nn\n    1 Ada\n    1 Ben\nr\n    1 {x} sings\n    1 Ben sings\n",
        8,
        "this option of 'r' and that of line 7 both begin with 'Ben sings'",
    ),
    "options that begin alike with a capital": (
        "s\n    1 So [M]\nm\n    1 [n]\nn\n    1 ada\n    1 Ada b\n",
        7,
        "this option of 'n' and that of line 6 both begin with 'Ada'",
    ),
    "an exception with an option that draws": (
        "s\n    1 [x:n] [m!x]\nn\n    1 a\n    1 b\nm\n    1 a\n    1 b\n    1 c [n]\n",
        2,
        "the 'name' after '!' does not tell the options of 'm' apart",
    ),
    "a long chain": (
        "".join(f"r{i}\n    1 a[r{i + 1}]\n" for i in range(1_500)) + "r1500\n    1 z\n",
        201,
        "the rule 'r100' is one of more than 100 rules, each of which uses the next; write some of them into one",
    ),
    "a long chain in two parts": (
        "s\n    1 [r60] [r0]\n" + "".join(f"r{i}\n    1 a[r{i + 1}]\n" for i in range(120)) + "r120\n    1 z\n",
        123,
        "the rule 'r60' is one of more than 100 rules",
    ),
    "beginnings that double": (
        "".join(f"r{i}\n    1 [r{i + 1}]a\n    1 [r{i + 1}]b\n" for i in range(40)) + "r40\n    1 x\n",
        2,
        "up to here there are more than 50,000 cases to check",
    ),
    "a text that doubles": (
        "".join(f"r{i}\n    1 [r{i + 1}][r{i + 1}]\n" for i in range(40)) + "r40\n    1 x\n",
        52,
        "a text with this option may have more than 50,000 characters",
    ),
    "too many names": (
        "s\n    1 " + "".join(f"[v{i}:n]" for i in range(201)) + "\nn\n    1 a\n",
        2,
        "'v200' is one more than the 200 names that can be remembered",
    ),
    "an option that hardly ever begins": (
        "".join(f"r{i}\n    1e-9 [r{i + 1}]\n    1e9 b{i}.\n" for i in range(9)) + "r9\n    1 z\n",
        2,
        "of the texts of its rule, less than 1e-100 begin with this option",
    ),
    "a hundred thousand brackets": (f"s\n    1 {'[' * 100_000}\n", 2, "'[' is not closed before '[[["),
}


@pytest.mark.parametrize(("rules", "line", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_has_its_line_and_a_fix(rules, line, message, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.languages.grammar.checks.MOST_STEPS", 50_000)
    file = tmp_path / "my.rules"
    file.write_text(rules, encoding="utf-8")
    with pytest.raises(DataError) as raised:
        OwnGrammar(read_source(file), str(file))
    error = str(raised.value)
    assert error.startswith(f"{file}:{line}: "), error
    assert message in error
    assert "; " in error  # how to fix it


def test_a_file_that_cannot_be_read_is_refused_with_the_reason_and_the_line(tmp_path):
    file = tmp_path / "my.rules"
    for content, message in {
        None: f"{file}: No such file or directory; name a text file",
        b"toss\n    1 caf\xe9\n": f"{file}:2: a character that is not UTF-8; save the file as UTF-8",
    }.items():
        if content:
            file.write_bytes(content)
        with pytest.raises(DataError) as raised:
            read_source(file)
        assert str(raised.value) == message


def test_optional_names_that_nothing_needs_do_not_double_the_checks():
    rules = "".join(f"r{i}\n    1 a[v{i}:n][r{i + 1}]\n    1 b[r{i + 1}]\n" for i in range(40))
    grammar = OwnGrammar(rules + "r40\n    1 .\nn\n    1 c\n", "rules")
    assert grammar.n_texts == 2**40


def test_a_table_may_have_thousands_of_rows_that_are_looked_up_and_named_by_thousands_of_options():
    rows = "".join(f"    1 w{i:04} | w{i * 7 % 2000:04}\n" for i in range(2000))
    acts = "".join(f"    1 v{i:04} {{foe}}\n" for i in range(4000))
    rules = f"s\n    1 [hero:animal][foe:animal={{hero.rival}}] [act]\nanimal | rival\n{rows}act\n{acts}"
    checks = Checks(read_written(rules))
    checks.check()
    assert checks.longest < 30


def test_a_dozen_rules_may_begin_with_a_table_of_hundreds_of_words(monkeypatch):
    """So with thousands, as twenty times as many cases are checked."""
    monkeypatch.setattr("pellucid.languages.grammar.checks.MOST_STEPS", 50_000)
    rules = "".join(f"r{i}\n    1 [noun] runs\n    1 The [noun] sings\n" for i in range(12))
    words = "".join(f"    1 n{i:04}\n" for i in range(225))
    Checks(read_written(f"s\n    1 {' '.join(f'[r{i}]' for i in range(12))}\n{rules}noun\n{words}")).check()


def test_an_entropy_for_which_too_much_is_remembered_is_refused_with_its_line(monkeypatch):
    monkeypatch.setattr("pellucid.languages.grammar.entropy.MOST_STEPS", 20_000)
    names = [f"v{i}" for i in range(24)]
    rules = f"s\n    1 {' '.join(f'[{n}:x]' for n in names)} {' '.join(f'[x!{n}]' for n in names)}\nx\n"
    grammar = OwnGrammar(rules + "    1 a\n    1 b\n    1 c\n", "my.rules")
    with pytest.raises(DataError, match="my.rules:1: too much is remembered in 's' to compute the entropy"):
        assert grammar.entropy_nats
    assert grammar.log_probability(grammar.write(random.Random(0))) == pytest.approx(24 * math.log(1 / 6))


@given(st.lists(st.text("[]{}:!=.|aX ", max_size=12), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_option_is_read_or_refused(options):
    source = "text | a\n    1 b | c\na\n" + "".join(f"    1 {i}{option}\n" for i, option in enumerate(options))
    for rules in (source, source.replace(" | ", " ")):
        with suppress(DataError):  # nothing else may be raised
            OwnGrammar(rules, "rules").write(random.Random(0))


def test_what_a_rule_names_is_the_skill_of_its_choices_and_a_repetition_is_recall():
    grammar = OwnGrammar("text\n    1 [x:sky], {x}!\nsky: weather\n    1 sun\n    1 rain\n", "rules")
    skills = [grammar.skills[skill] for skill in grammar.skills_of("sun, sun!")]
    assert skills[0] == "weather"
    assert skills[5] == "recall"
    assert set(skills) == {"weather", "recall", "spelling"}


def test_a_table_remembers_its_columns_and_a_row_can_be_looked_up():
    grammar = OwnGrammar(COUNTRIES, "rules")
    texts = all_texts(grammar)
    assert texts == pytest.approx(
        {
            "From Rome in Italy to Paris in France. Far.": 1 / 4,
            "From Paris in France to Rome in Italy. Far.": 3 / 4,
        }
    )
    assert grammar.entropy_nats == pytest.approx(entropy(texts))
    text = "From Rome in Italy to Paris in France. Far."
    skills = [grammar.skills[skill] for skill in grammar.skills_of(text)]
    assert skills[text.index("Rome")] == "choice"
    assert {skills[text.index(word)] for word in ("Italy", "Paris", "France")} == {"fact"}
    assert skills[text.index("Far")] == "distance"


def test_the_tables_of_the_page_are_a_grammar():
    page = (ROOT / "docs/languages.md").read_text(encoding="utf-8")
    facts = page[page.index("    journey\n") : page.index("The text is drawn as before")]
    grammar = OwnGrammar(dedent(facts), "docs/languages.md")
    assert grammar.unused == []
    assert {"fact", "agreement"} <= set(grammar.skills)
    assert grammar.log_probability("Ada flies from Rome to Paris. There she has to speak French.") == pytest.approx(
        math.log(2 / 3 * 2 / 3)
    )


def test_fables_are_a_file_of_rules():
    rules = read_source(ROOT / "src/pellucid/languages/fables/fables.rules")
    fables, own = Fables(30), OwnGrammar(rules, "fables.rules")
    assert own.unused == []
    assert own.n_texts == fables.n_texts
    assert own.entropy_nats == pytest.approx(fables.entropy_nats, abs=1e-9)
    assert set(own.skills) == set(fables.skills)
    for seed in range(6):
        text = fables.write(random.Random(seed))
        assert own.write(random.Random(seed)) == text
        assert own.log_probability(text) == pytest.approx(fables.log_probability(text), abs=1e-9)
        assert [own.skills[i] for i in own.skills_of(text)] == [fables.skills[i] for i in fables.skills_of(text)]
        for end in range(0, len(text) + 1, 17):
            assert own.next_character_distribution(text[:end]) == pytest.approx(
                fables.next_character_distribution(text[:end]), abs=1e-9
            )


def test_the_portrait_of_a_small_grammar_is_exact():
    picture = portrait(OwnGrammar(COIN + "spare\n    1 edge\n", "coin.rules"))
    assert picture.is_complete
    assert picture.n_texts == 3
    assert picture.likeliest == ("tails, tails", pytest.approx(3 / 8))
    assert picture.least_likely == ("heads", 1 / 4)
    assert picture.entropy_nats == pytest.approx(-(math.log(1 / 4) / 4 + 2 * math.log(3 / 8) * 3 / 8))
    assert picture.unused == ["7: the rule 'spare' is never used"]


def test_the_portrait_of_a_grammar_of_long_texts_is_short_and_has_more_texts_than_floats(monkeypatch):
    monkeypatch.setattr("pellucid.languages.grammar.portrait.MOST_DRAWN_CHARACTERS", 20_000)
    digits = "".join(f"    1 {digit}\n" for digit in "0123456789")
    picture = portrait(OwnGrammar(f"s\n    1 {'[d]' * 400}\nd\n{digits}", "digits.rules"))
    assert picture.n_texts == 10**400
    assert 40 < picture.n_seen < 60
    table = picture.table("digits.rules")
    assert "1.0e+400" in table
    assert len(table) < 10_000


def test_the_command_describes_the_example_by_its_name_and_says_how_to_train_on_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app_for("language"), ["language", "weather"])
    assert shown.exit_code == 0
    assert "15,000" in shown.output
    assert "nats per text" in shown.output
    assert "too small for a contest: 81% of 100 new documents" in shown.output
    [command] = [line for line in shown.output.splitlines() if line.startswith("    pellucid train ")]
    _, _, config, *overrides = command.split()
    config = load_run_config(Path(config), overrides)
    assert (config.name, config.model.context_length) == ("weather", 32)
    of_config = load_run_config(Path("languages/weather")).corpus
    assert build_corpus(config.corpus).identity == build_corpus(of_config).identity


def test_the_command_says_that_a_language_is_too_small_to_train_on(tmp_path):
    file = tmp_path / "coin.rules"
    file.write_text(COIN, encoding="utf-8")
    shown = CliRunner().invoke(app_for("language"), ["language", str(file)])
    assert "too small to train on: 100 held-out documents are 100% of all there can be" in shown.output
    assert "pellucid train" not in shown.output
    described = json.loads(CliRunner().invoke(app_for("language"), ["language", str(file), "--json"]).stdout)
    assert set(described["too_small"]) == {"to train on", "for a contest"}


def test_a_corpus_of_ones_own_rules_holds_texts_out_and_knows_itself_by_the_rules(tmp_path):
    file = tmp_path / "my.rules"
    file.write_text(WEATHER.read_text(encoding="utf-8"), encoding="utf-8")
    config = GrammarConfig(type="grammar", file=str(file), size=2_000, validation_fraction=0.02)
    corpus = build_corpus(config)
    train, held_out = set(corpus.documents("train")), list(corpus.documents("validation"))
    assert len(held_out) == len(set(held_out)) == 40
    assert not train & set(held_out)
    same = build_corpus(config.model_copy(update={"file": str(WEATHER)}))
    assert same.identity == corpus.identity
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    in_windows = build_corpus(config)
    assert in_windows.identity == corpus.identity
    assert list(in_windows.documents("validation")) == held_out
    file.write_text(WEATHER.read_text(encoding="utf-8").replace("Ada", "Ann"), encoding="utf-8")
    assert build_corpus(config).identity != corpus.identity


def test_a_language_too_small_to_hold_texts_out_is_refused(tmp_path):
    file = tmp_path / "coin.rules"
    file.write_text(COIN, encoding="utf-8")
    corpus = build_corpus(GrammarConfig(type="grammar", file=str(file), size=100, validation_fraction=0.01))
    with pytest.raises(DataError, match="of all there can be; lower corpus.validation_fraction"):
        list(corpus.documents("train"))
