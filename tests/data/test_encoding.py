import multiprocessing
import time
import weakref

import pytest

from pellucid.corpora.corpus import Piece
from pellucid.data import encoding, prepare
from pellucid.data.encoding import encode_batches
from pellucid.errors import DataError, OutOfMemoryError
from pellucid.tokenizer.train import train_byte_pairs, train_characters

TEXT = "The fox said to the crow: what a voice! The crow, who was vain, said: Caw. " * 3


def batch(*texts):
    return [Piece(text, ends_document=True) for text in texts]


BATCHES = [batch(TEXT[i : i + n], "é" * i, "") for i, n in enumerate(range(3, 60, 4))]


@pytest.fixture
def processes_from_the_start(monkeypatch):
    monkeypatch.setattr(encoding, "BATCHES_WITHOUT_PROCESSES", 2)


def wait_until_no_process_is_left():
    for _ in range(200):
        if not multiprocessing.active_children():
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {multiprocessing.active_children()}")


def test_processes_give_what_one_gives_in_order_and_end(processes_from_the_start):
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    expected = [(pieces, [tokenizer.encode(piece.text) for piece in pieces]) for pieces in BATCHES]
    encoded = encode_batches(tokenizer, iter(BATCHES))
    assert [(pieces, [ids.tolist() for ids in of_pieces]) for pieces, of_pieces in encoded] == expected
    wait_until_no_process_is_left()


def test_text_that_cannot_be_encoded_is_the_same_error_in_a_process(processes_from_the_start):
    tokenizer = train_characters([TEXT], special_tokens=["<|end|>"])
    with pytest.raises(DataError, match=r"the character 'é' \(U\+00E9\) is not in the vocabulary"):
        list(encode_batches(tokenizer, [batch("fox")] * 5 + [batch("née")] + [batch("crow")] * 5))
    wait_until_no_process_is_left()


def test_processes_end_when_their_reader_stops_early(processes_from_the_start):
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    stream = encode_batches(tokenizer, iter(BATCHES))
    for _ in range(4):
        next(stream)
    assert multiprocessing.active_children()
    stream.close()
    wait_until_no_process_is_left()


def test_a_process_that_the_system_ends_is_an_error(processes_from_the_start):
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    stream = encode_batches(tokenizer, iter(BATCHES))
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
    monkeypatch.setattr(prepare, "BATCH_BYTES", 1)
    monkeypatch.setattr(encoding, "BATCHES_WITHOUT_PROCESSES", 100)
    alive = []

    def pieces():
        for i in range(100):
            text = Watched(f"fox {i}")
            alive.append(weakref.ref(text))
            yield Piece(text, ends_document=True)
            del text
            assert sum(each() is not None for each in alive) <= 3

    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    counts = prepare.write_split(pieces(), tokenizer, tmp_path / "train.bin", name="train")
    assert counts.documents == 100


def test_little_text_starts_no_process(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_context", None)  # would be called to start one
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    n_batches = encoding.BATCHES_WITHOUT_PROCESSES
    assert len(list(encode_batches(tokenizer, [batch("fox")] * n_batches))) == n_batches
