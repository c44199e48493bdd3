import multiprocessing
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import foreign_tokenizers as foreign
from pellucid.corpora.corpus import Corpus, Piece, Turn
from pellucid.corpora.text_files import TextFilesCorpus
from pellucid.data import encoding, prepare
from pellucid.data.conversations import write_conversations
from pellucid.data.encoding import encode_parts
from pellucid.errors import DataError, OutOfMemoryError
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

TEXT = "The fox said to the crow: what a voice! The crow, who was vain, said: Caw. " * 3


def batch(*texts):
    return [Piece(text, ends_document=True) for text in texts]


BATCHES = [batch(TEXT[i : i + n], "é" * i, "") for i, n in enumerate(range(3, 60, 4))]


@pytest.fixture
def processes_from_the_start(monkeypatch):
    monkeypatch.setattr(encoding, "PARTS_WITHOUT_PROCESSES", 2)


def wait_until_no_process_is_left():
    for _ in range(12000):  # ten minutes, for a busy machine
        if not multiprocessing.active_children():
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {multiprocessing.active_children()}")


def test_processes_give_what_one_gives_in_order_and_end(processes_from_the_start):
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    end = tokenizer.end_of_text
    expected = [[id_ for piece in part for id_ in (*tokenizer.encode(piece.text), end)] for part in BATCHES]
    encoded = list(encode_parts(tokenizer, iter(BATCHES), 2))
    assert [part.tokens.tolist() for part in encoded] == expected
    assert all(part.tokens[part.ends].tolist() == [end] * 3 for part in encoded)
    wait_until_no_process_is_left()


def test_a_text_that_the_tokenizer_would_change_is_neither_prepared_nor_scored(tmp_path):
    qwen = Tokenizer.from_json(foreign.qwen().to_str())
    assert len(list(encode_parts(qwen, [batch("caf\u00e9")]))) == 1
    with pytest.raises(DataError, match=r"text: the tokenizer changes it: 'cafe\\u0301' becomes 'caf\\xe9'"):
        list(encode_parts(qwen, [batch("cafe\u0301")]))
    chat = qwen.with_chat_tokens()
    with pytest.raises(DataError, match="text: the tokenizer changes it"):
        write_conversations([[Turn("user", "ok"), Turn("assistant", "cafe\u0301")]], chat, tmp_path / "train.bin")


def test_text_that_cannot_be_encoded_is_the_same_error_in_a_process(processes_from_the_start):
    tokenizer = train_characters([TEXT], special_tokens=["<|end|>"])
    with pytest.raises(DataError, match=r"the character 'é' \(U\+00E9\) is not in the vocabulary"):
        list(encode_parts(tokenizer, [batch("fox")] * 5 + [batch("née")] + [batch("crow")] * 5, 1))
    wait_until_no_process_is_left()


def test_processes_end_when_their_reader_stops_early(processes_from_the_start):
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    stream = encode_parts(tokenizer, iter(BATCHES), 2)
    for _ in range(4):
        next(stream)
    assert multiprocessing.active_children()
    stream.close()
    wait_until_no_process_is_left()


def test_a_process_that_the_system_ends_is_an_error(processes_from_the_start):
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    stream = encode_parts(tokenizer, iter(BATCHES), 1)
    for _ in range(4):
        next(stream)
    for process in multiprocessing.active_children():
        process.kill()
    with pytest.raises(OutOfMemoryError, match="a process ended without an answer"):
        list(stream)
    wait_until_no_process_is_left()


class Watched(str):
    """Text that knows when it is let go."""


def test_written_batches_do_not_stay_in_memory(monkeypatch, tmp_path):
    """At most the batch that is written and the one that is being gathered: 100 pieces are never there at once."""
    monkeypatch.setattr("pellucid.corpora.corpus.PART_BYTES", 1)
    monkeypatch.setattr(encoding, "PARTS_WITHOUT_PROCESSES", 1000)
    alive = []

    def pieces():
        for i in range(100):
            text = Watched(f"fox {i}")
            alive.append(weakref.ref(text))
            yield Piece(text, ends_document=True)
            del text
            assert sum(each() is not None for each in alive) <= 3

    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    parts = Corpus.parts(SimpleNamespace(pieces=lambda split: pieces()), "train")
    counts = prepare.write_split(parts, tokenizer, tmp_path / "train.bin", name="train")
    assert counts.documents == 100


def test_little_text_starts_no_process(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_context", None)  # would be called to start one
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    n_parts = encoding.PARTS_WITHOUT_PROCESSES
    assert len(list(encode_parts(tokenizer, [batch("fox")] * n_parts))) == n_parts


def test_a_part_that_is_too_long_is_answered_bit_by_bit(processes_from_the_start, tmp_path):
    """A text without blanks is one part, and an answer is more than fits into a pipe: the process waits."""
    text = "fox" * 430_000
    (tmp_path / "a.txt").write_text(text)
    [part] = TextFilesCorpus([f"{tmp_path}/a.txt"]).parts("train")
    tokenizer = train_characters([text], special_tokens=["<|end|>"])
    encoded = list(encode_parts(tokenizer, [part] * 4, 1))
    assert [bit.ends_part for bit in encoded] == [False, True] * 4
    expected = [*tokenizer.encode("".join(piece.text for piece in part)), tokenizer.end_of_text]
    assert len(expected) > encoding.ENCODED_BYTES
    assert np.array_equal(np.concatenate([bit.tokens for bit in encoded]), expected * 4)
