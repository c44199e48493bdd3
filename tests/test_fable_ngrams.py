"""What the last tokens tell of the next one: against lists of all fables, and beside a model that was counted."""

import math
import random
from collections import defaultdict

import numpy as np
import pytest
import torch
from measurements.fable_ngrams import expected_ngrams, floor_of

from pellucid.data.pairs import count_pairs
from pellucid.data.token_file import TokenFile
from pellucid.languages.fables import Fables
from pellucid.model.bigram import Bigram
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from tiny_fables import N_STORYLINES, all_stories, tiny_fables

END = "<|endoftext|>"


@pytest.mark.parametrize("storyline", range(N_STORYLINES))
def test_the_expected_numbers_are_those_of_the_list_of_all_fables(storyline):
    language = tiny_fables(storyline, most=100)
    listed = list(all_stories(language.grammar.begin()))
    texts = [text for text, _ in listed]
    byte_pairs = train_byte_pairs(texts, vocab_size=300, special_tokens=[END])
    characters = train_characters(texts, special_tokens=[END])
    for tokenizer, n in [(byte_pairs, 1), (byte_pairs, 2), (byte_pairs, 3), (characters, 2)]:
        by_listing = defaultdict(float)
        for text, p in listed:
            ids = [tokenizer.end_of_text, *tokenizer.encode(text), tokenizer.end_of_text]
            for t in range(1, len(ids)):
                by_listing[tuple(ids[max(0, t - n + 1) : t + 1])] += p
        assert expected_ngrams(language, tokenizer, n) == pytest.approx(by_listing, abs=1e-9)


def test_the_floor_is_the_conditional_entropy_by_its_definition():
    ngrams = {(0, 1): 3.0, (0, 2): 1.0, (1, 0): 4.0}
    assert floor_of(ngrams) == pytest.approx(-(3 * math.log(3 / 4) + math.log(1 / 4)) / 8)


@pytest.fixture(scope="module")
def world():
    """All storylines of a small world: 1,500 fables as tokens, their tokenizer, and the exact pairs."""
    language, rng = Fables(3), random.Random(0)
    texts = [language.write(rng) for _ in range(1500)]
    tokenizer = train_byte_pairs(texts[:300], vocab_size=600, special_tokens=[END])
    documents = [np.append(ids, tokenizer.end_of_text) for ids in tokenizer.encode_batch(texts)]
    return documents, tokenizer, expected_ngrams(language, tokenizer, 2)


def token_file(documents, tokenizer):
    tokens = np.concatenate([[tokenizer.end_of_text], *documents])
    return TokenFile("train", tokens, np.flatnonzero(tokens == tokenizer.end_of_text))


def test_written_fables_are_as_long_on_average_as_expected(world):
    documents, tokenizer, pairs = world
    lengths = [len(document) for document in documents]
    assert sum(pairs.values()) == pytest.approx(np.mean(lengths), abs=4 * np.std(lengths) / math.sqrt(len(lengths)))
    assert sum(number for (_, b), number in pairs.items() if b == tokenizer.end_of_text) == pytest.approx(1)


def test_a_counted_bigram_stays_above_the_floor_and_comes_near_it(world):
    documents, tokenizer, pairs = world
    bigram = Bigram(tokenizer.vocab_size, context_length=8)
    bigram.set_counts(torch.from_numpy(count_pairs(token_file(documents[:1400], tokenizer), tokenizer.vocab_size)))
    nats_VV = -bigram.logits_VV.detach().double().numpy()
    expected_loss = sum(number * nats_VV[pair] for pair, number in pairs.items()) / sum(pairs.values())
    held_out = token_file(documents[1400:], tokenizer).tokens
    assert floor_of(pairs) < expected_loss < 1.02 * floor_of(pairs)
    assert nats_VV[held_out[:-1], held_out[1:]].mean() == pytest.approx(floor_of(pairs), rel=0.03)
