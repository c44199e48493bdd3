from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.data import BytePairConfig, CharacterConfig
from pellucid.errors import DataError
from pellucid.plain import merge
from pellucid.tokenizer import build
from pellucid.tokenizer.build import start_of, train_tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

END = "<|endoftext|>"


def pieces(tokenizer, text):
    """The text, cut into its tokens."""
    return [tokenizer.token_bytes(id_).decode() for id_ in tokenizer.encode(text)]


def test_abracadabra_becomes_five_tokens_by_three_merges():
    """Equation 1: ab -> X, ra -> Y, XY -> Z turn abracadabra into ZcadZ."""
    steps = [
        ["ab", "r", "a", "c", "a", "d", "ab", "r", "a"],
        ["ab", "ra", "c", "a", "d", "ab", "ra"],
        ["abra", "c", "a", "d", "abra"],
        ["abra", "c", "a", "d", "abra"],  # nothing is left that occurs twice
    ]
    for n_merges, expected in enumerate(steps, start=1):
        tokenizer = train_byte_pairs(["abracadabra"], vocab_size=256 + 1 + n_merges, special_tokens=[END])
        assert pieces(tokenizer, "abracadabra") == expected
        assert tokenizer.vocab_size == 256 + 1 + min(n_merges, 3)


def test_of_pairs_that_occur_equally_often_the_one_with_the_smallest_ids_is_merged():
    """As docs/tokenizer.md tells of abracadabra: counted here, merged by the tokenizer that we use."""
    tokenizer = train_byte_pairs(["abracadabra"], vocab_size=300, special_tokens=[END])
    id_of = {tokenizer.token_bytes(id_): id_ for id_ in range(tokenizer.vocab_size)}
    ids, most_frequent = [id_of[bytes([byte])] for byte in b"abracadabra"], []
    for new_id, merged in tokenizer.merges.items():
        counts = Counter(pairwise(ids))
        first, *others = sorted(pair for pair, n in counts.items() if n == max(counts.values()))
        assert merged == first
        most_frequent.append((first, others))
        ids = merge(ids, first, new_id)
    a, b, r, ab, ra = (id_of[token] for token in (b"a", b"b", b"r", b"ab", b"ra"))
    assert most_frequent == [((a, b), [(b, r), (r, a)]), ((r, a), [(ab, r)]), ((ab, ra), [])]


def test_training_twice_gives_the_same_tokenizer_of_the_size_that_the_config_says():
    texts = [f"{a}{b} {b}{a}c " * 3 for a in "abcdefgh" for b in "ijklmnop"]
    config = BytePairConfig(type="bpe", vocab_size=300, special_tokens=(END, "<|user|>"))
    first, second = (train_tokenizer(config, texts, []) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert (first.vocab_size, len(first.control_ids)) == (300, 2)


@given(st.lists(st.text("abc '<|>endoftx", max_size=30), max_size=4))
def test_control_ids_never_come_from_text_whatever_it_was_trained_on(texts):
    tokenizer = train_byte_pairs([*texts, END * 3], vocab_size=300, special_tokens=[END])
    for text in (*texts, END, END * 2):
        assert tokenizer.end_of_text not in tokenizer.encode(text)


def test_a_control_token_that_is_ordinary_text_is_an_error():
    for token in ("the", "a", "Ġthe"):
        with pytest.raises(DataError, match="special_tokens"):
            train_byte_pairs(["the the the the"], vocab_size=300, special_tokens=[END, token])
    with pytest.raises(DataError, match="special_tokens"):
        train_characters(["ab"], special_tokens=["b"])


def test_characters_are_sorted_by_code_point():
    tokenizer = train_characters(["ba", "\né"], special_tokens=[END])
    assert [tokenizer.token_bytes(id_).decode() for id_ in range(5)] == ["\n", "a", "b", "é", ""]


def test_an_empty_corpus_still_gives_a_byte_pair_tokenizer():
    assert train_byte_pairs([], vocab_size=300, special_tokens=[END]).vocab_size == 257


def test_a_failing_corpus_is_the_error_that_the_user_sees():
    def texts():
        yield "some text"
        raise DataError("a.txt", "not UTF-8 text at byte 9", "convert it")

    with pytest.raises(DataError, match="byte 9"):
        train_byte_pairs(texts(), vocab_size=300, special_tokens=[END])


def test_only_the_start_of_the_training_text_teaches_byte_pairs():
    assert list(start_of(["ab", "é", "cd"], 4)) == ["ab", "é"]
    assert list(start_of(["ab", "é", "cd"], 3)) == ["ab"]
    assert list(start_of(["ab"] * 4, 10)) == ["ab"] * 4
    config = BytePairConfig(type="bpe", vocab_size=300, training_megabytes=1)
    early, late = "early " * 100_000, "late " * 100_000
    tokenizer = train_tokenizer(config, [early, late], ["validation " * 9])
    assert len(tokenizer.encode(" early")) == 1
    assert len(tokenizer.encode(" late")) > 1
    assert len(tokenizer.encode(" validation")) > 1


def test_text_without_words_that_come_again_teaches_from_less(monkeypatch):
    monkeypatch.setattr(build, "DISTINCT_BYTES", 10)
    assert list(start_of(["abcde", "abcde", "fghij", "klmno", "abcde"], 1000)) == ["abcde", "abcde", "fghij"]


def test_a_character_vocabulary_covers_both_splits():
    tokenizer = train_tokenizer(CharacterConfig(type="char"), ["ab"], ["bc"])
    assert tokenizer.vocab_size == 4
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"
