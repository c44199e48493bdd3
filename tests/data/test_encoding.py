import multiprocessing
import time

import pytest

from pellucid.data import encoding
from pellucid.data.encoding import encode_batches
from pellucid.errors import DataError, OutOfMemoryError
from pellucid.tokenizer.train import train_byte_pairs, train_characters

TEXT = "The fox said to the crow: what a voice! The crow, who was vain, said: Caw. " * 3
BATCHES = [[TEXT[i : i + n], "é" * i, ""] for i, n in enumerate(range(3, 60, 4))]


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
    expected = [[ids.tolist() for ids in tokenizer.encode_batch(batch)] for batch in BATCHES]
    found = [[ids.tolist() for ids in batch] for batch in encode_batches(tokenizer, iter(BATCHES))]
    assert found == expected
    wait_until_no_process_is_left()


def test_text_that_cannot_be_encoded_is_the_same_error_in_a_process(processes_from_the_start):
    tokenizer = train_characters([TEXT], special_tokens=["<|end|>"])
    with pytest.raises(DataError, match=r"the character 'é' \(U\+00E9\) is not in the vocabulary"):
        list(encode_batches(tokenizer, [["fox"]] * 5 + [["née"]] + [["crow"]] * 5))
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


def test_little_text_starts_no_process(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_context", None)  # would be called to start one
    tokenizer = train_byte_pairs([TEXT], vocab_size=300, special_tokens=["<|end|>"])
    n_batches = encoding.BATCHES_WITHOUT_PROCESSES
    assert len(list(encode_batches(tokenizer, [["fox"]] * n_batches))) == n_batches
