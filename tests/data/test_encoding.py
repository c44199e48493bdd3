import random
import weakref

import pytest

import foreign_tokenizers as foreign
from pellucid.corpora.corpus import Piece, Turn, cut_into_pieces
from pellucid.data import encoding, prepare
from pellucid.data.conversations import write_conversations
from pellucid.data.encoding import encode_pieces
from pellucid.errors import DataError
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

TEXT = "The fox said to the crow: what a voice! The crow, who was vain, said: Caw. " * 3
WORDS = ["fox", "crow,", "naïve", "猫が", "e\u0301", "👩‍👩‍👧", "\u3000", "\xa0x", "1984", "\t", "\x1c", "\r", "\ufeffb"]
BLANKS = [" ", " ", " ", "  ", "\n", "\n\n", "\n\n\n", " \n"]
DRAW = random.Random(0)
UNUSUAL = "".join(DRAW.choice(WORDS) + DRAW.choice(BLANKS) for _ in range(4000)) + "."


def documents(*texts):
    return [Piece(text, ends_document=True) for text in texts]


@pytest.mark.parametrize("bytes_at_once", [1, 100, 10_000])
def test_tokens_come_in_order_with_an_end_after_each_document(monkeypatch, bytes_at_once):
    monkeypatch.setattr(encoding, "BYTES_AT_ONCE", bytes_at_once)
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    texts, end = [TEXT[:50], "é" * 9, "", TEXT], tokenizer.end_of_text
    encoded = list(encode_pieces(tokenizer, documents(*texts)))
    assert [id_ for each in encoded for id_ in each.tokens.tolist()] == [
        id_ for text in texts for id_ in (*tokenizer.encode(text), end)
    ]
    assert all(each.tokens[each.ends].tolist() == [end] * len(each.ends) for each in encoded)
    assert sum(each.n_bytes for each in encoded) == len("".join(texts).encode())
    assert sum(each.n_characters for each in encoded) == len("".join(texts))


OURS = train_byte_pairs([UNUSUAL], vocab_size=400, special_tokens=["<|end|>"])
FOREIGN = (foreign.gpt2, foreign.llama, foreign.llama2, foreign.llama2_as_saved_today, foreign.gemma)
TOKENIZERS = {"ours": OURS, **{kind.__name__: Tokenizer.from_json(kind().to_str()) for kind in FOREIGN}}


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@pytest.mark.parametrize("text", [UNUSUAL, "The hen is gone...\n\n" * 900])
def test_no_token_is_cut_where_a_long_document_is(tokenizer, text):
    """Also with a tokenizer whose tokens reach from a full stop into the next line, as in Llama 3, or that puts a blank
    before a text, as in Llama 2.
    """
    pieces = list(cut_into_pieces([text]))
    assert len(pieces) > 1
    encoded = list(encode_pieces(tokenizer, pieces))
    assert [id_ for each in encoded for id_ in each.tokens.tolist()] == [*tokenizer.encode(text), tokenizer.end_of_text]
    counts = sum(each.n_bytes for each in encoded), sum(each.n_characters for each in encoded)
    assert counts == (len(text.encode()), len(text))


def test_a_text_that_the_tokenizer_would_change_is_neither_prepared_nor_scored(tmp_path):
    qwen = Tokenizer.from_json(foreign.qwen().to_str())
    assert len(list(encode_pieces(qwen, documents("caf\u00e9")))) == 1
    with pytest.raises(DataError, match=r"text: the tokenizer changes it: 'cafe\\u0301' becomes 'caf\\xe9'"):
        list(encode_pieces(qwen, documents("cafe\u0301")))
    chat = qwen.with_chat_tokens()
    with pytest.raises(DataError, match="text: the tokenizer changes it"):
        write_conversations([[Turn("user", "ok"), Turn("assistant", "cafe\u0301")]], chat, tmp_path / "train.bin")


def test_text_that_cannot_be_encoded_is_an_error():
    tokenizer = train_characters([TEXT], special_tokens=["<|end|>"])
    with pytest.raises(DataError, match=r"the character 'é' \(U\+00E9\) is not in the vocabulary"):
        list(encode_pieces(tokenizer, documents("fox", "née")))


class Watched(str):
    """Text that knows when it is let go."""


def test_written_text_does_not_stay_in_memory(monkeypatch, tmp_path):
    """At most what is written and what is being gathered: 100 pieces are never there at once."""
    monkeypatch.setattr(encoding, "BYTES_AT_ONCE", 1)
    alive = []

    def pieces():
        for i in range(100):
            text = Watched(f"fox {i}")
            alive.append(weakref.ref(text))
            yield Piece(text, ends_document=True)
            del text
            assert sum(each() is not None for each in alive) <= 3

    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    n_bytes, n_characters = prepare._write_pieces(pieces(), tokenizer, tmp_path / "train.bin")
    assert n_bytes == n_characters == 590
