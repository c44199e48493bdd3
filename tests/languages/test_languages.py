"""Laws of every language: its probabilities are a distribution, and all of its answers agree."""

import math
import random
from collections import Counter
from functools import cache
from itertools import islice
from statistics import mean, stdev

import pytest

from pellucid.data.truth import first_word_length, next_token_distribution, next_token_distributions
from pellucid.errors import DataError
from pellucid.languages.brackets import Brackets
from pellucid.languages.chains import Chains
from pellucid.languages.hidden import GOLDEN_MEAN, Hidden, mess3
from pellucid.languages.hops import Hops
from pellucid.languages.language import SPELLING, Decided
from pellucid.languages.lookup import Lookup
from pellucid.languages.sums import Sums
from pellucid.languages.symbols import Question, SymbolLanguage, entropy
from pellucid.languages.trees import Trees
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from small_languages import SMALL, all_documents


@pytest.fixture(params=SMALL.values(), ids=SMALL)
def language(request: pytest.FixtureRequest) -> SymbolLanguage:
    return request.param


@pytest.fixture
def documents(language: SymbolLanguage) -> dict[str, float]:
    return listed(language)


@cache
def listed(language: SymbolLanguage) -> dict[str, float]:
    return all_documents(language)


def test_the_probabilities_of_all_documents_sum_to_one(language, documents):
    assert math.fsum(documents.values()) == pytest.approx(1, abs=1e-12)
    for text, p in islice(documents.items(), 50):
        assert language.log_probability(text) == pytest.approx(math.log(p), abs=1e-12)


def test_the_next_character_is_as_likely_as_the_documents_that_go_on_with_it(language, documents):
    texts = random.Random(0).choices(list(documents), k=5)
    for prefix in {text[:n] for text in texts for n in range(len(text) + 1)}:
        masses = Counter()
        for text, p in documents.items():
            if text.startswith(prefix):
                masses[text[len(prefix) : len(prefix) + 1]] += p
        total = math.fsum(masses.values())
        assert language.next_character_distribution(prefix) == pytest.approx({c: p / total for c, p in masses.items()})


def test_the_exact_entropy_is_that_of_all_documents(language, documents):
    if not isinstance(language, Trees):  # of which it is not known
        assert language.entropy_nats == pytest.approx(entropy(documents), abs=1e-10)


@pytest.mark.parametrize("chains", [Chains(3, 0.7, 6), Chains(3, 2.0, 5), Chains(2, 0.1, 10)])
def test_the_entropy_of_chains_is_that_of_all_documents(chains):
    assert chains.entropy_nats == pytest.approx(entropy(all_documents(chains)), abs=1e-10)


def test_the_golden_mean_has_an_entropy_of_two_thirds_of_a_bit_a_symbol_after_the_first():
    first = entropy({"a": 2 / 3, "b": 1 / 3})
    for length in (1, 2, 64):
        expected = first + (length - 1) * 2 / 3 * math.log(2)
        assert Hidden(GOLDEN_MEAN, length).entropy_nats == pytest.approx(expected, abs=1e-12)


def test_documents_have_the_entropy_as_their_mean_surprise():
    chains, rng = Chains(states=2, alpha=1.0, length=60), random.Random(0)
    nats = [-chains.log_probability(chains.write(rng)) for _ in range(1000)]
    assert abs(mean(nats) - chains.entropy_nats) < 4 * stdev(nats) / math.sqrt(len(nats))


def test_no_entropy_is_given_where_a_reader_may_be_in_too_many_states():
    for language in (Chains(states=3, alpha=1.0, length=100), Hidden(mess3(0.05, 0.85), length=64)):
        assert language.entropy_nats is None


def test_documents_are_written_as_often_as_they_are_likely(language, documents):
    n = 4_000
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


def test_a_text_that_the_language_cannot_write_has_no_probability(language, documents):
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


def test_what_decides_a_symbol_leaves_no_choice(language, documents):
    symbol_of = {}
    for text in random.Random(1).sample(list(documents), min(2000, len(documents))):
        symbols = text[1:].split(" ")
        states = [state for state, _ in language.steps(text)]
        for place in range(len(symbols)):
            sources = tuple(language.sources(symbols, place))
            if sources:
                assert all(0 <= source < place for source in sources)
                following = language.following(states[place])
                if isinstance(language, Chains):  # there, only the distribution is decided
                    decided = tuple(following.items())
                else:
                    assert following[symbols[place]] == 1.0 or isinstance(language, Brackets)  # another may open there
                    decided = symbols[place]
                read = (place, sources, *(symbols[source] for source in sources))
                assert symbol_of.setdefault(read, decided) == decided


def test_an_answer_is_decided_by_the_value_beside_its_key_or_the_arrows_on_the_way():
    pairs = ["a", "0", "c", "1", "b", "0", ":", "c", "1", "a", "0"]
    assert [Lookup(3, 2, 3, 2).sources(pairs, place) for place in range(len(pairs))] == [()] * 8 + [(3,), (), (1,)]
    arrows = ["c", ">", "a", "a", ">", "b", "b", ">", "c", ":", "a", "2", "c"]
    hops = Hops(names=3, hops=2, queries=1)
    assert [hops.sources(arrows, place) for place in range(len(arrows))] == [()] * 12 + [[5, 8]]


def test_after_steps_an_answer_is_decided_by_one_arrow_or_by_a_carry_that_was_written():
    arrows = ["a", ">", "b", "b", ">", "c", "c", ">", "a", ":"]
    assert [Hops(3, 3, 1, "way").sources([*arrows, *["a", "3", "b", "c", "a"]], place) for place in (12, 13, 14)] == [
        [2],
        [5],
        [8],
    ]
    shuffled = [*arrows, *["a", "3", "c", "a", "a"]]
    assert [Hops(3, 3, 1, "shuffled").sources(shuffled, place) for place in (12, 13, 14)] == [(), [8], [2, 5, 8]]
    dots = [*arrows, *["a", "3", ".", ".", "a"]]
    assert [Hops(3, 3, 1, "filler").sources(dots, place) for place in (12, 13, 14)] == [(), (), [2, 5, 8]]
    # 7 + 8 gives the first carry, 3 + 5 + 1 the second.
    carries = ["3", "7", "+", "5", "8", ":", "1", "0", "=", "0", "9", "5"]
    way = Sums(2, "forwards", None, "way")
    assert [way.sources(carries, place) for place in (6, 7, 8, 9, 10, 11)] == [
        [1, 4],
        [6, 0, 3],
        (),
        [7],
        [6, 0, 3],
        [1, 4],
    ]


def test_with_a_tool_a_sum_is_decided_by_what_it_wrote_and_that_by_what_it_was_asked():
    """37 + 68: of 7 + 8 and 3 + 6, with a carry through the 9; and the same backwards."""
    written = ["7", "8", "?", "1", "5", "3", "6", "?", "0", "9", "="]
    for order, text, digits, answers in (
        ("forwards", "3 7 + 6 8 :", [(1,), (4,), (0,), (3,)], {"1": [14, 15, 9, 10], "0": [15, 9, 10], "5": [10]}),
        ("backwards", "7 3 + 8 6 :", [(0,), (3,), (1,), (4,)], {"5": [10], "0": [15, 9, 10], "1": [14, 15, 9, 10]}),
    ):
        symbols, sums = [*text.split(), *written, *answers], Sums(2, order, None, "tool")
        assert sums.log_probability(f" {' '.join(symbols)}") == pytest.approx(-math.log(10**4))
        first, second, third, fourth = digits
        called = [first, second, (), (6, 7), (6, 7), third, fourth, (), (11, 12), (11, 12), ()]
        assert [sums.sources(symbols, place) for place in range(6, 20)] == [*called, *answers.values()]
        skills = [sums.skill(tuple(symbols[:place]), symbols[place]) for place in range(6, 17)]
        assert skills == [*["steps", "steps", "spelling", "tool", "tool"] * 2, "spelling"]
        assert sums.questions(symbols) == [Question(6, 17, 20, "carries")]


def test_optional_thoughts_are_there_half_of_the_time_and_count_apart():
    hops, rng = Hops(4, 3, 50, "optional"), random.Random(0)
    text = hops.write(rng)
    marks = Counter(symbol for symbol in text.split() if symbol in ":?")
    assert 10 < marks[":"] < 40
    skills = Counter(hops.skills[skill] for skill in hops.skills_of(text))
    assert sum(n for name, n in skills.items() if name.endswith("after steps")) == marks["?"]


def test_whether_a_thought_follows_is_said_when_the_question_is_known():
    told, hops = ["a", ">", "b", "b", ">", "c", "c", ">", "a"], Hops(3, 3, 1, "optional")
    sums = Sums(1, "forwards", None, "optional")
    for language, question, marks in ((hops, [*told, "a", "3"], {":", "?"}), (sums, ["7", "+", "8"], {":", "="})):
        assert set(language.following(tuple(question))) == marks
    assert hops.log_probability(f" {' '.join(told)} a 3 ? b c a") == hops.log_probability(f" {' '.join(told)} a 3 : a")
    asked = hops.questions([*told, *["a", "3", "?", "b", "c", "a"]])[0]
    assert (asked.begin, asked.answer, asked.end, asked.kind) == (12, 14, 15, "three hops after steps")


@pytest.mark.parametrize(
    ("order", "text", "sources"),
    [
        ("forwards", "7 3 + 8 5 = 1 5 8", [[0, 3], [0, 3, 1, 4], [1, 4]]),
        ("backwards", "3 7 + 5 8 = 8 5 1", [[0, 3], [1, 4, 0, 3], [1, 4]]),
        ("forwards", "1 2 + 8 7 = 0 9 9", [[0, 3, 1, 4], [0, 3, 1, 4], [1, 4]]),
    ],
)
def test_a_digit_of_a_sum_is_decided_by_those_that_may_change_it(order, text, sources):
    symbols = text.split()
    assert [Sums(2, order, None).sources(symbols, place) for place in range(6, 9)] == sources


def test_the_pieces_that_are_decided_are_those_symbols_without_their_blanks():
    pieces = Lookup(keys=3, values=12, pairs=2, queries=1).decided_pieces(" a 11 c 1 : a 11")
    assert pieces == [Decided(14, 16, [(3, 5)])]


def test_the_likeliest_document_is_one_with_this_beginning(language, documents):
    rng = random.Random(0)
    for text in rng.sample(list(documents), 5):
        beginning = text[: rng.randrange(len(text) + 1)]
        likeliest = language.likeliest(beginning)
        assert likeliest in documents
        assert likeliest.startswith(beginning)
    assert language.likeliest(text) == text or isinstance(language, Trees)  # there, it may go on
    with pytest.raises(DataError, match="no text of the language begins with 'é'"):
        language.likeliest("é")


@pytest.mark.parametrize("vocabulary", ["characters", "byte pairs, symbols in pieces", "byte pairs, whole symbols"])
def test_the_truth_about_tokens_is_that_about_texts(language, documents, vocabulary):
    rng = random.Random(0)
    texts = [language.write(rng) for _ in range(200)]
    if vocabulary == "characters":
        tokenizer = train_characters(documents, special_tokens=["<|end|>"])
    else:
        tokenizer = train_byte_pairs(
            texts, vocab_size=258 if "pieces" in vocabulary else 300, special_tokens=["<|end|>"]
        )
    text = max(texts, key=len)
    ids = [*tokenizer.encode(text), tokenizer.end_of_text]
    nats = 0.0
    for t, distribution in enumerate(next_token_distributions(language, tokenizer, text)):
        assert math.fsum(distribution.values()) == pytest.approx(1)
        nats -= math.log(distribution[ids[t]])
        prefix = tokenizer.decode(ids[:t])
        assert next_token_distribution(language, tokenizer, prefix) == pytest.approx(distribution), prefix
    assert t == len(ids) - 1
    assert nats == pytest.approx(-math.log(documents[text]), abs=1e-9)


def test_the_predictive_of_a_chain_is_the_integral_over_all_matrices():
    """Against a sum over a fine grid of first rows: p(next | counts) = E[p_j Π p_i^n_i] / E[Π p_i^n_i]."""
    chain = Chains(states=2, alpha=0.7, length=9)
    state = chain.begin()
    for symbol in "aabaaab":
        state = chain.after(state, symbol)
    state = chain.after(state, "a")
    n_a, n_b = state.pairs[0]
    grid = [(i + 0.5) / 100_000 for i in range(100_000)]
    weights = [p ** (n_a + 0.7 - 1) * (1 - p) ** (n_b + 0.7 - 1) for p in grid]
    expected = math.fsum(p * w for p, w in zip(grid, weights, strict=True)) / math.fsum(weights)
    assert chain.following(state)["a"] == pytest.approx(expected, abs=1e-4)


def test_counting_pairs_beats_counting_symbols_and_that_beats_guessing_evenly():
    chain, rng = Chains(states=3, alpha=0.3, length=100), random.Random(0)
    texts = [chain.write(rng) for _ in range(50)]
    nats = {
        strategy: sum(sum(chain.nats_by_strategy(text, strategy)) for text in texts)
        for strategy in ("evenly", "counts", "pairs")
    }
    assert nats["pairs"] < nats["counts"] < nats["evenly"]
    assert nats["pairs"] == pytest.approx(-sum(map(chain.log_probability, texts)))
