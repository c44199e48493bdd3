"""What must hold for every language: its probabilities are a distribution, and all of its answers agree."""

import math
import random
from collections import Counter
from itertools import islice

import pytest

from pellucid.data.truth import first_word_length
from pellucid.languages.brackets import Brackets
from pellucid.languages.chains import Chains
from pellucid.languages.hidden import Hidden, transitions_of
from pellucid.languages.hops import Hops
from pellucid.languages.known import SPELLING, KnownText
from pellucid.languages.lookup import Lookup
from pellucid.languages.sums import Sums
from pellucid.languages.symbols import END, SymbolLanguage, entropy, estimate_entropy, text_of
from pellucid.languages.trees import Trees, random_grammar

SMALL = {
    "chains": Chains(states=2, alpha=0.5, length=6),
    "lookup": Lookup(keys=3, values=2, pairs=2, queries=2),
    "hops": Hops(names=3, hops=2, queries=1),
    "brackets": Brackets(kinds=2, depth=3, length=8),
    "sums": Sums(digits=1, order="forwards", modulus=None),
    "sums backwards": Sums(digits=1, order="backwards", modulus=None),
    "sums modulo 12": Sums(digits=1, order="forwards", modulus=12),
    "mess3": Hidden(transitions_of("mess3", 0, 0, 0), length=5),
    "golden mean": Hidden(transitions_of("golden_mean", 0, 0, 0), length=7),
    "hidden": Hidden(transitions_of("random", 3, 2, 1), length=6),
    "trees": Trees(random_grammar(levels=3, width=2, symbols=2, rules=2, seed=1)),
}


@pytest.fixture(params=SMALL.values(), ids=SMALL)
def language(request: pytest.FixtureRequest) -> SymbolLanguage:
    return request.param


def all_documents(language: SymbolLanguage) -> dict[str, float]:
    """Every document with its probability, by walking all ways."""
    documents = {}
    ways = [([], language.begin(), 1.0)]
    while ways:
        symbols, state, p = ways.pop()
        for symbol, share in language.following(state).items():
            if symbol == END:
                documents[text_of(symbols)] = p * share
            else:
                ways.append(([*symbols, symbol], language.after(state, symbol), p * share))
    return documents


def test_the_probabilities_of_all_documents_sum_to_one(language):
    documents = all_documents(language)
    assert math.fsum(documents.values()) == pytest.approx(1, abs=1e-12)
    for text, p in islice(documents.items(), 50):
        assert language.log_probability(text) == pytest.approx(math.log(p), abs=1e-12)


def test_the_next_character_is_as_likely_as_the_documents_that_go_on_with_it(language):
    documents = all_documents(language)
    texts = random.Random(0).choices(list(documents), k=5)
    for prefix in {text[:n] for text in texts for n in range(len(text) + 1)}:
        masses = Counter()
        for text, p in documents.items():
            if text.startswith(prefix):
                masses[text[len(prefix) : len(prefix) + 1]] += p
        total = math.fsum(masses.values())
        assert language.next_character_distribution(prefix) == pytest.approx({c: p / total for c, p in masses.items()})


def test_the_exact_entropy_is_that_of_all_documents(language):
    documents = all_documents(language)
    truth = entropy(documents)
    if language.entropy_nats is not None:
        assert language.entropy_nats == pytest.approx(truth, abs=1e-10)
    mean, error = estimate_entropy(language, 300, random.Random(0))
    assert abs(mean - truth) <= 4 * error + 1e-10


def test_documents_are_written_as_often_as_they_are_likely(language):
    documents, n = all_documents(language), 4_000
    rng = random.Random(0)
    counts = Counter(language.write(rng) for _ in range(n))
    assert counts.keys() <= documents.keys()
    # Pearson's chi-square over the likely documents, all others as one.
    likely = [text for text, p in documents.items() if n * p >= 5]
    expected, seen = [n * documents[text] for text in likely], [counts[text] for text in likely]
    expected.append(n - sum(expected))
    seen.append(n - sum(seen))
    cells = [(e, s) for e, s in zip(expected, seen, strict=True) if e > 1e-6]
    chi_square, freedom = sum((s - e) ** 2 / e for e, s in cells), len(cells) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom) + 10


def test_a_text_that_the_language_cannot_write_has_no_probability(language):
    documents = all_documents(language)
    text = language.write(random.Random(0))
    for other in (text[1:], text + " ", text + " é", text.replace(" ", "  ", 1), text.rsplit(" ", 1)[0], "é"):
        p = documents.get(other, 0)
        assert language.log_probability(other) == (pytest.approx(math.log(p)) if p else -math.inf), other
    assert language.next_character_distribution("é") == {}
    assert language.words_on("é", first_word_length) == {}


def test_the_skills_cover_every_character(language):
    text = language.write(random.Random(0))
    skills = language.skills_of(text)
    assert len(skills) == len(text)
    assert all((language.skills[skill] == SPELLING) for skill, c in zip(skills, text, strict=True) if c == " ")
    assert isinstance(language.skills.index(SPELLING), int)
    known: KnownText = language
    assert known


def test_what_decides_a_symbol_leaves_no_choice(language):
    text = language.write(random.Random(1))
    symbols = text[1:].split(" ")
    states = [state for state, _ in language.steps(text)]
    for place in range(len(symbols)):
        if sources := language.sources(symbols, place):
            assert all(0 <= source < place for source in sources)
            if not isinstance(language, Brackets):  # there, another may open instead
                assert language.following(states[place])[symbols[place]] == 1.0
