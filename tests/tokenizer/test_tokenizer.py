from itertools import accumulate, product

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pellucid.errors import DataError
from pellucid.kernels import word_cache
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.tokenizer import WORD, byte_of_symbol
from pellucid.tokenizer.train import train_byte_pairs, train_characters

CORPUS = (
    "the cat sat on the mat; the <|endoftext|> isn't the end.\n\n  The hat   is the cat's.\t“Schön”, 猫猫猫 said. " * 9
)
END = "<|endoftext|>"
BYTE_PAIRS = train_byte_pairs([CORPUS], vocab_size=350, special_tokens=[END, "<|user|>"])
CHARACTERS = train_characters([CORPUS], special_tokens=[END])
BOTH = pytest.mark.parametrize("tokenizer", [BYTE_PAIRS, CHARACTERS], ids=["bpe", "char"])

# Any text, with much of what splitting rules look at: blanks of all kinds, apostrophes, digits.
TEXTS = st.text() | st.text(st.sampled_from(" \n\t\r\x0b\x1c\x1f\x85\xa0\u2003\u2028a'st,.!1²é猫😀"), max_size=40)


@given(TEXTS)
def test_any_unicode_text_round_trips_through_byte_pairs(text):
    assert BYTE_PAIRS.decode(BYTE_PAIRS.encode(text)) == text


@given(st.text(CORPUS))
def test_text_of_known_characters_round_trips_one_token_each(text):
    ids = CHARACTERS.encode(text)
    assert len(ids) == len(text)
    assert CHARACTERS.decode(ids) == text


@given(TEXTS)
def test_ids_are_those_of_the_library_on_the_whole_text(text):
    library = tokenizers.Tokenizer.from_str(BYTE_PAIRS.to_json())
    library.encode_special_tokens = True
    assert BYTE_PAIRS.encode(text) == library.encode(text).ids


def ends_of_words_only(text, cut):
    """Places where `cut` ends a word and the library's splitting rule goes on: there may be none."""
    ends_of_library = {end for _, (_, end) in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)}
    return set(accumulate(map(len, cut(text)))) - ends_of_library - {0}


CUTS = pytest.mark.parametrize("cut", [WORD.findall, lambda text: word_cache.cut_before_blanks(text, WORD.findall)])
BLANKS = [chr(i) for i in range(0x11000) if chr(i).isspace()]


@CUTS
@given(text=TEXTS | st.text(st.sampled_from([*BLANKS, " ", " ", "\n", "\n", "a", "é", "“", "ф", "中", "!"])))
def test_words_end_only_where_the_library_splits(cut, text):
    assert "".join(cut(text)) == text
    assert ends_of_words_only(text, cut) == set()


@CUTS
def test_words_end_only_where_the_library_splits_for_every_character(cut):
    characters = [chr(i) for i in range(0x11000) if not 0xD800 <= i < 0xE000]
    for before, after in ("aa", "!!", " a"):
        text = "|".join(f"{before}{character}{after}" for character in characters)
        assert ends_of_words_only(text, cut) == set()


def test_a_cut_between_blanks_is_left_to_the_search_for_words():
    for blank, other in product(BLANKS, repeat=2):
        for text in (f"a{blank} {other}b", f"a{blank}\n{other}b", f"a{blank} ", f"a{blank}\n"):
            assert ends_of_words_only(text, lambda text: word_cache.cut_before_blanks(text, WORD.findall)) == set()


@given(st.lists(TEXTS, max_size=5))
def test_a_batch_is_its_texts_one_by_one(texts):
    """The word cache against the library."""
    assert [ids.tolist() for ids in BYTE_PAIRS.encode_batch(texts)] == [BYTE_PAIRS.encode(text) for text in texts]


def test_forgetting_words_changes_nothing(monkeypatch):
    expected = BYTE_PAIRS.encode(CORPUS)
    monkeypatch.setattr(word_cache, "REMEMBERED_CHARACTERS", 10)
    forgetful = Tokenizer.from_json(BYTE_PAIRS.to_json())
    for _ in range(3):
        assert forgetful.encode_batch([CORPUS])[0].tolist() == expected
        assert forgetful.encode_batch(["other words"])[0].tolist() == BYTE_PAIRS.encode("other words")


@BOTH
def test_text_that_spells_a_control_token_is_plain_text_also_after_loading(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    for each in (tokenizer, Tokenizer.load(tmp_path / "tokenizer.json")):
        ids = each.encode(f"the {END} is{END}")
        assert not set(ids) & set(each.control_ids)
        assert each.decode(ids) == f"the {END} is{END}"


@BOTH
def test_saving_and_loading_change_nothing(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode(CORPUS) == tokenizer.encode(CORPUS)
    assert (loaded.vocab_size, loaded.control_ids) == (tokenizer.vocab_size, tokenizer.control_ids)
    assert loaded.to_json() == tokenizer.to_json()
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.decode(loaded.encode("the cat's mat")) == "the cat's mat"


def test_control_tokens_have_the_last_ids_in_their_order_and_stand_for_no_text():
    assert BYTE_PAIRS.control_ids == (BYTE_PAIRS.vocab_size - 2, BYTE_PAIRS.vocab_size - 1)
    assert BYTE_PAIRS.end_of_text == BYTE_PAIRS.control_ids[0]
    library = tokenizers.Tokenizer.from_str(BYTE_PAIRS.to_json())
    assert [library.id_to_token(id_) for id_ in BYTE_PAIRS.control_ids] == [END, "<|user|>"]
    for tokenizer in (BYTE_PAIRS, CHARACTERS):
        assert tokenizer.decode(tokenizer.control_ids) == ""
        assert not any(map(tokenizer.token_bytes, tokenizer.control_ids))


def test_the_first_256_tokens_are_all_bytes():
    assert {BYTE_PAIRS.token_bytes(id_) for id_ in range(256)} == {bytes([byte]) for byte in range(256)}
    assert len(byte_of_symbol()) == 256


def test_bytes_that_are_no_whole_character_decode_to_the_replacement_character():
    first_byte = BYTE_PAIRS.encode("😀")[0]
    assert BYTE_PAIRS.decode([first_byte]) == "�"


@BOTH
def test_half_a_surrogate_pair_is_an_error(tokenizer):
    with pytest.raises(DataError, match="U\\+D83D"):
        tokenizer.encode("a \ud83d b")


def test_an_unknown_character_is_an_error_that_names_it():
    with pytest.raises(DataError, match="'ж' \\(U\\+0436\\)"):
        CHARACTERS.encode("the жук")
    for _ in range(2):  # the second time too: a failure leaves nothing behind
        with pytest.raises(DataError, match="U\\+0436"):
            CHARACTERS.encode_batch(["the жук"])


def test_a_damaged_or_missing_file_is_an_error(tmp_path):
    json = BYTE_PAIRS.to_json()
    for damaged in ("{}", "[]", "null", *(json[:length] for length in range(0, len(json), len(json) // 50))):
        with pytest.raises(DataError, match=r"^tokenizer\.json: damaged"):
            Tokenizer.from_json(damaged)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    for name in ("missing.json", "binary.json"):
        with pytest.raises(DataError, match="cannot be read"):
            Tokenizer.load(tmp_path / name)
