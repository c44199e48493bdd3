"""Soft targets on disk are the distributions that were written, at the places of the token file."""

import random

import numpy as np
import pytest

from pellucid.corpora.corpus import Piece
from pellucid.data.batches import Batches
from pellucid.data.in_memory import pieces_as_tokens
from pellucid.data.soft_targets import FOLDER, distributions_of, soft_targets_of
from pellucid.data.truth import UNWRITABLE, next_token_distributions
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from small_languages import SMALL
from tiny_fables import tiny_fables

END = "<|endoftext|>"


@pytest.fixture(scope="module", params=["fables", "fables in characters, of which some are missing", "trees"])
def known(request, tmp_path_factory):
    """A language, documents, their tokenizer and tokens, and what was written of them, in a folder."""
    language = SMALL["trees"] if request.param == "trees" else tiny_fables(0, most=200)
    texts = [language.write(random.Random(seed)) for seed in range(4)]
    if "characters" in request.param:
        tokenizer = train_characters(texts, special_tokens=[END])
    else:
        tokenizer = train_byte_pairs(texts, vocab_size=300, special_tokens=[END])
    tokens = pieces_as_tokens("train", [Piece(text, ends_document=True) for text in texts], tokenizer)
    folder = tmp_path_factory.mktemp("truth")
    return language, texts, tokenizer, tokens, folder, soft_targets_of(folder, language, tokenizer, iter(texts))


def by_place(language, texts, tokenizer):
    distributions = [each for text in texts for each in next_token_distributions(language, tokenizer, text)]
    written = [{id_: p for id_, p in each.items() if id_ != UNWRITABLE} for each in distributions]
    return [{id_: p / sum(each.values()) for id_, p in each.items()} for each in written]


@pytest.mark.parametrize("packing", ["contiguous", "documents"])
def test_what_is_read_at_the_rows_of_a_batch_is_the_truth_of_its_targets(known, packing):
    language, texts, tokenizer, tokens, _, targets = known
    truth = by_place(language, texts, tokenizer)
    assert len(truth) == tokens.n_targets
    batches = Batches(tokens, 16, 3, seed=1, packing=packing)
    places_BT, targets_BT = batches.places(2), batches.batch(2).targets_BT.numpy()
    ids_BTK, p_BTK = targets.at(places_BT)
    for b, t in np.ndindex(*places_BT.shape):
        found = {int(id_): float(p) for id_, p in zip(ids_BTK[b, t], p_BTK[b, t], strict=True) if p}
        is_padding = places_BT[b, t] < 0
        assert found == ({} if is_padding else pytest.approx(truth[places_BT[b, t]], rel=1e-6))
        assert is_padding == (targets_BT[b, t] not in found)


def test_targets_are_computed_once_and_again_if_a_byte_changes(known, monkeypatch):
    language, texts, tokenizer, _, folder, targets = known

    def fails(*_):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr("pellucid.data.soft_targets.distributions_of", fails)
        assert np.array_equal(soft_targets_of(folder, language, tokenizer, iter(texts)).p, targets.p)
    expected, file = np.array(targets.p), folder / FOLDER / "p.bin"
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.unlink()
    file.write_bytes(content)
    assert np.array_equal(soft_targets_of(folder, language, tokenizer, iter(texts)).p, expected)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("vocab_size", [258, 300])
def test_where_symbols_are_tokens_the_shorter_way_gives_the_same(name, vocab_size):
    """With 258 tokens most symbols take two, and there is only the long way."""
    texts = [SMALL[name].write(random.Random(seed)) for seed in range(3)]
    tokenizer = train_byte_pairs(texts, vocab_size=vocab_size, special_tokens=[END])
    for text in texts:
        found = list(distributions_of(SMALL[name], tokenizer, text))
        expected = list(next_token_distributions(SMALL[name], tokenizer, text))
        assert len(found) == len(expected)
        assert all(a == pytest.approx(b, abs=1e-9) for a, b in zip(found, expected, strict=True))
