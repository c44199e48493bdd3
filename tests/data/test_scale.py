"""The scale of a text without a floor: what a counter of n-grams and xz reach on it."""

import lzma
import math
from itertools import islice

import numpy as np
import pytest

from pellucid.data.scale import Scale, as_bytes, compressed, costs, count, scale_of
from pellucid.data.token_file import TokenFile
from pellucid.tokenizer.train import train_characters, vocabulary_of_ids
from reference.ngrams import probability

TEXT = [0, 1, 2, 1, 2, 3, 1, 2, 1, 1, 0, 2, 3, 1, 2, 1, 2, 2, 0, 1, 3, 3, 1, 2, 1, 0]  # of the tokens 0 to 4


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_equation_50_is_the_definition_and_its_probabilities_sum_to_1(n):
    for before in ([0], [0, 2, 1], [0, 2, 1, 4], [0, 2, 1, 2], [0, 1, 3, 3]):
        texts = (np.array([*before, token]) for token in range(5))
        counted = [math.exp(-next(islice(costs(np.array(TEXT), text, 5), n - 1, n))[-1]) for text in texts]
        seen = tuple([*TEXT, *before][len(TEXT) + len(before) - n + 1 :])
        assert counted == pytest.approx([probability(token, seen, TEXT, 5) for token in range(5)], rel=1e-12)
        assert sum(counted) == pytest.approx(1, abs=1e-12)


def test_the_counter_comes_near_the_floor_of_a_language_whose_truth_is_known():
    """A chain in which the last two tokens decide the odds of the next, one of four."""
    rng = np.random.default_rng(0)
    p_444 = rng.dirichlet(np.full(4, 0.3), size=(4, 4))
    tokens = [0, 1]
    for u in rng.random(40_000):
        tokens.append(int((p_444[tokens[-2], tokens[-1]].cumsum() < u).sum().clip(max=3)))
    train, validation = np.array(tokens[:-4000]), np.array(tokens[-4000:])
    floor = -np.log(p_444[validation[:-2], validation[1:-1], validation[2:]]).sum()
    n, nats = count(train, validation, 4)
    assert n in (3, 4)
    assert floor < nats < 1.02 * floor


def test_xz_is_the_difference_of_two_sizes():
    rng = np.random.default_rng(0)
    text, held_out = (bytes(rng.choice(list(b"ab cde"), n).tolist()) for n in (9000, 1000))
    held_out += text[:2000]  # which costs nearly nothing
    by_xz = len(lzma.compress(text + held_out, preset=9)) - len(lzma.compress(text, preset=9))
    assert compressed(text, held_out) == pytest.approx(by_xz, abs=4)  # xz fills up to a multiple of 4 bytes
    assert compressed(text, held_out) < compressed(text, text[::-1][:1000] + rng.bytes(2000))


def token_files(texts):
    """A tokenizer, and each list of texts as a token file."""
    tokenizer = train_characters([text for documents in texts for text in documents], special_tokens=["<|endoftext|>"])
    end = tokenizer.end_of_text
    for documents in texts:
        tokens = np.array([end, *(id_ for text in documents for id_ in (*tokenizer.encode(text), end))])
        yield TokenFile("text", tokens, np.flatnonzero(tokens == end))
    yield tokenizer


def test_the_scale_is_kept_with_the_data_and_counts_bytes_of_text(tmp_path):
    train, validation, tokenizer = token_files([["a fox, a hen; é. " * 20, "a crow"], ["a fox, a crow", "é"]])
    made = scale_of(tmp_path, train, validation, tokenizer)
    n, nats = count(train.tokens, validation.tokens, tokenizer.vocab_size)
    assert as_bytes(validation.tokens[1:], tokenizer) == "a fox, a crow\0é\0".encode()
    assert made.n == n
    assert made.counter_bits_per_byte == pytest.approx(nats / math.log(2) / 15)
    assert made.counter_nats_per_token == pytest.approx(nats / 16)
    assert made.xz_bits_per_byte * 15 / 8 == pytest.approx(
        compressed(as_bytes(train.tokens, tokenizer), as_bytes(validation.tokens[1:], tokenizer))
    )
    assert scale_of(tmp_path, validation, validation, tokenizer) == made
    (tmp_path / "scale.json").write_text("{")
    assert scale_of(tmp_path, train, validation, tokenizer) == made
    assert Scale.model_validate_json((tmp_path / "scale.json").read_text()) == made


def test_a_training_text_of_half_the_bits_is_known_by_heart():
    scale = Scale(n=3, counter_nats_per_token=4.9, counter_bits_per_byte=2.4, xz_bits_per_byte=2.7)
    assert scale.line(2.0) == "(a counter of 3-grams 2.4000, xz 2.7000)"
    assert "heart" not in scale.beside(1.0).line(2.0)
    assert scale.beside(0.9).line(2.0).endswith("   learned by heart: 0.9000 on text that it was trained on")
    assert "learned by heart; " in scale.beside(0.9).rows(2.0)["training text"]


def test_ids_that_are_no_text_are_counted_and_have_no_bytes(tmp_path):
    rng = np.random.default_rng(0)
    end, texts = 5, [rng.integers(0, 5, 200), rng.integers(0, 5, 40)]
    train, validation = (TokenFile("ids", np.array([end, *text, end]), np.array([0, len(text) + 1])) for text in texts)
    tokenizer = vocabulary_of_ids([], n_ids=5, special_tokens=["<|endoftext|>"])
    made = scale_of(tmp_path, train, validation, tokenizer)
    n, nats = count(train.tokens, validation.tokens, 6)
    assert (made.n, made.counter_nats_per_token) == (n, pytest.approx(nats / 41))
    assert str(made) == f"on the validation text, a counter of {n}-grams reaches {nats / 41:.4f} nats/token"
    assert made.line(9.9) == f"(a counter of {n}-grams {nats / 41:.4f})"
    assert made.beside(1.0).line(2.1).endswith("   learned by heart: 1.0000 on text that it was trained on")
    assert {row for row, text in made.rows(9.9).items() if text} == {"counter"}
