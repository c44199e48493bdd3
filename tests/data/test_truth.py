"""The exact distribution of the next token, against a list of all stories; and whose skill a token is."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listed_corpus import Listed
from pellucid.data.token_truth import TokenTruth
from pellucid.data.truth import (
    UNWRITABLE,
    first_word_length,
    next_token_distribution,
    next_token_distributions,
    skill_characters,
    truth_of_texts,
    write_truth,
)
from pellucid.errors import DataError
from pellucid.languages.fables import SKILLS
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from tiny_fables import all_stories, tiny_fables

END = "<|endoftext|>"


@pytest.fixture(scope="module", params=["byte pairs, words in pieces", "byte pairs, whole words", "characters"])
def tokenizer(request, listed):
    texts = [text for text, _ in listed]
    if request.param == "characters":
        return train_characters(texts, special_tokens=[END])
    vocab_size = 300 if "pieces" in request.param else 600
    return train_byte_pairs(texts, vocab_size=vocab_size, special_tokens=[END])


@pytest.fixture(scope="module", params=[0, 5])
def language(request):
    """Fables of one storyline, so few that they can be listed."""
    return tiny_fables(request.param, most=200)


@pytest.fixture(scope="module")
def listed(language):
    return list(all_stories(language.grammar.begin()))


@pytest.fixture(scope="module")
def listed_ids(listed, tokenizer):
    """The tokens of each story, and its probability."""
    return [([*tokenizer.encode(text), tokenizer.end_of_text], p) for text, p in listed]


def by_listing(listed_ids, known):
    """The distribution of the token after the known ones, by definition."""
    masses = {}
    for ids, p in listed_ids:
        if ids[: len(known)] == known and len(ids) > len(known):
            masses[ids[len(known)]] = masses.get(ids[len(known)], 0.0) + p
    return {id_: mass / sum(masses.values()) for id_, mass in masses.items()}


def test_the_next_token_is_distributed_as_in_the_list_of_all_fables(language, listed, listed_ids, tokenizer):
    (text, p), (ids, _) = listed[len(listed) // 3], listed_ids[len(listed) // 3]
    nats = 0.0
    for t, distribution in enumerate(next_token_distributions(language, tokenizer, text)):
        assert distribution == pytest.approx(by_listing(listed_ids, ids[:t]), abs=1e-9), t
        nats -= math.log(distribution[ids[t]])
    assert t == len(ids) - 1
    assert nats == pytest.approx(-math.log(p), abs=1e-9)


def test_after_any_prefix_too_and_none_where_no_fable_has_these_tokens(language, listed, listed_ids, tokenizer):
    text, _ = listed[len(listed) // 2]
    n_exact = 0
    for end in [0, 1, *random.Random(0).sample(range(len(text)), 25), len(text)]:
        expected = by_listing(listed_ids, tokenizer.encode(text[:end]))
        distribution = next_token_distribution(language, tokenizer, text[:end])
        assert (distribution or {}) == pytest.approx(expected, abs=1e-9), text[:end]
        n_exact += distribution is not None
    assert n_exact >= 3, "the empty prefix, the whole fable, and the end of some word"


def test_nothing_follows_a_text_that_is_no_beginning_of_a_fable(language, tokenizer):
    assert next_token_distribution(language, tokenizer, "ooo") is None
    assert next_token_distribution(language, tokenizer, "o e ") is None


def test_a_text_that_is_no_fable_has_no_truth(language, tokenizer):
    with pytest.raises(DataError, match="is not a fable"):
        list(next_token_distributions(language, tokenizer, "Once upon a time."))


def test_the_truth_on_disk_sums_to_the_probability_of_the_fables(language, tokenizer, tmp_path):
    rng = random.Random(1)
    texts = [language.write(rng) for _ in range(8)]
    total = write_truth(truth_of_texts(language, tokenizer, iter(texts)), tmp_path)
    truth = TokenTruth.open(tmp_path, language.skills)
    assert total == pytest.approx(-sum(map(language.log_probability, texts)), abs=1e-9)
    assert truth.nats.sum() == pytest.approx(total)
    assert (truth.nats >= -1e-12).all()
    assert len(truth.nats) == len(truth.characters) == sum(len(tokenizer.encode(text)) + 1 for text in texts)
    assert truth.shares(np.arange(len(truth.nats))).sum(axis=1) == pytest.approx(1)
    assert truth.certain.any()
    assert not truth.certain.all()


def shares_by_hand(language, tokenizer, text):
    """The rule, said again with loops."""
    skills = [SKILLS[i] for i in language.skills_of(text)]
    rows, start = [], 0
    for id_ in tokenizer.encode(text):
        taken = skills[start : start + len(tokenizer.token_bytes(id_))]
        start += len(taken)
        counted = [skill for skill in taken if skill != "spelling"] or taken
        rows.append([counted.count(skill) / len(counted) for skill in SKILLS])
    return [*rows, [float(skill == "spelling") for skill in SKILLS]]


def test_a_token_is_shared_among_the_characters_that_need_more_than_spelling(language, listed, tokenizer):
    for text, _ in listed[:: len(listed) // 5]:
        characters = skill_characters(language, tokenizer, text)
        truth = TokenTruth(SKILLS, np.zeros(len(characters)), characters)
        assert truth.shares(np.arange(len(characters))).tolist() == shares_by_hand(language, tokenizer, text)


@given(
    st.dictionaries(st.text(alphabet="ab \n", min_size=1, max_size=8), st.integers(1, 9), min_size=2, max_size=8),
    st.integers(0, 20),
)
@settings(deadline=None, max_examples=50)
def test_any_list_of_stories_has_the_probabilities_of_its_tokens(weights, n_merges):
    """Also where one story begins another, and where blanks stand at either end."""
    total = sum(weights.values())
    language = Listed({text: weight / total for text, weight in weights.items()})
    tokenizer = train_byte_pairs(list(weights) * 3, vocab_size=257 + n_merges, special_tokens=[END])
    for text, weight in weights.items():
        ids = [*tokenizer.encode(text), tokenizer.end_of_text]
        distributions = list(next_token_distributions(language, tokenizer, text))
        assert len(distributions) == len(ids)
        nats = -sum(math.log(p[id_]) for id_, p in zip(ids, distributions, strict=True))
        assert nats == pytest.approx(-math.log(weight / total), abs=1e-9)


def test_what_a_character_vocabulary_lacks_keeps_its_probability():
    language = Listed({"ab ab": 0.5, "ax ab": 0.25, "xa": 0.25})
    tokenizer = train_characters(["ab ab"], special_tokens=[END])
    a, b = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
    first, second, *_ = next_token_distributions(language, tokenizer, "ab ab")
    assert first == pytest.approx({a: 0.75, UNWRITABLE: 0.25})
    assert second == pytest.approx({b: 2 / 3, UNWRITABLE: 1 / 3})


def test_a_word_ends_where_a_blank_follows():
    assert first_word_length("a b") == 1
    assert first_word_length(" a b") == 2
    assert first_word_length(" ab") is None
    assert first_word_length("\nMoral: ") == 7
