"""A token's vector is that of the model's own forward pass, and depends on what the model has read alone."""

import json
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from model.family import FAMILY, family_config
from model.model_axes import build_away_from_zero, tiny_config, tiny_configs
from pellucid.corpora.corpus import Piece
from pellucid.errors import ConfigError, DataError
from pellucid.inspection.build import held_out_texts
from pellucid.inspection.embed import Embeddings, embed, hidden_layers, layer_named, nearest, nearest_table
from pellucid.inspection.trace import trace
from pellucid.model.bigram import Bigram
from pellucid.model.mlp import MLP
from pellucid.model.recurrent import Recurrent
from pellucid.tokenizer.train import train_characters

TOKENIZER = train_characters(["abcdefgh "], special_tokens=["<|endoftext|>"])
TEXTS = ["abc", "hg", "a bad ", "c"]
token_ids = st.lists(st.integers(0, TOKENIZER.vocab_size - 1), min_size=2, max_size=8)


def build(config=None):
    return build_away_from_zero(config or tiny_config(), TOKENIZER.vocab_size).eval()


@given(tiny_configs, token_ids)
@settings(max_examples=15)
def test_layers_are_the_stream_after_the_embedding_and_each_block_and_the_last_gives_the_logits(config, ids):
    model = build(config)
    layers = hidden_layers(model, torch.tensor([ids]))
    traced = trace(model, ids)
    stream = [traced.residuals[traced.points.index(f"{n}.feed_forward")] for n in range(config.n_layers)]
    for layer, expected_TD in zip(layers, [traced.residuals[0], *stream], strict=False):
        torch.testing.assert_close(layer[0], expected_TD)
    assert len(layers) == 1 + config.n_layers + 1
    logits = model.soft_cap(model.embeddings.unembed(layers[-1]))
    torch.testing.assert_close(logits, model(torch.tensor([ids])))


@pytest.mark.parametrize("name", sorted(set(FAMILY) - {"bigram"}))
def test_a_vector_depends_on_the_tokens_up_to_its_own_alone(name):
    model, ids, t = build(family_config(name)), [1, 5, 2, 0, 3, 3], 2
    others = [*ids[: t + 1], 4, 6, 7]
    layers, changed = (hidden_layers(model, torch.tensor([each])) for each in (ids, others))
    for x_BTD, other_BTD in zip(layers, changed, strict=True):
        torch.testing.assert_close(x_BTD[:, : t + 1], other_BTD[:, : t + 1], rtol=0, atol=1e-5)
        assert not torch.isclose(x_BTD[:, t + 1 :], other_BTD[:, t + 1 :]).all(dim=-1).any()
    if isinstance(model, MLP | Recurrent):
        torch.testing.assert_close(model.embeddings.unembed(layers[-1]), model(torch.tensor([ids])))


@pytest.mark.parametrize(
    ("config", "layer", "pooling"),
    [
        (family_config("decoder"), 0, "mean"),
        (family_config("mlp"), 1, "last"),
        (family_config("lstm"), "last", None),
        (tiny_config(attention_mask="none"), "last", "mean"),
    ],
)
def test_texts_together_have_the_vectors_that_each_has_alone(config, layer, pooling):
    model = build(config)
    together = embed(model, TOKENIZER, TEXTS, layer, pooling)
    alone = [embed(model, TOKENIZER, [text], layer, pooling).vectors for text in TEXTS]
    np.testing.assert_allclose(together.vectors, np.concatenate(alone), atol=1e-5)


def test_the_mean_and_the_last_are_those_of_the_texts_own_tokens_without_the_end_of_text_before_it():
    model, text = build(), "bad"
    ids = [TOKENIZER.end_of_text, *TOKENIZER.encode(text)]
    x_TD = hidden_layers(model, torch.tensor([ids]))[-1][0, 1:].numpy()
    tokens = embed(model, TOKENIZER, [text], pooling=None)
    np.testing.assert_allclose(tokens.vectors, x_TD, atol=1e-6)
    assert tokens.texts == ["b", "a", "d"]
    np.testing.assert_allclose(embed(model, TOKENIZER, [text]).vectors[0], x_TD.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(embed(model, TOKENIZER, [text], pooling="last").vectors[0], x_TD[-1], atol=1e-6)


def test_the_model_is_unchanged_afterwards_and_dropout_is_off():
    model = build(tiny_config(dropout=0.5)).train()
    first, second = (embed(model, TOKENIZER, TEXTS).vectors for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("texts", "layer", "message"),
    [
        (["abc", ""], "last", "the text: it is empty; "),
        (["abcdefgh"], "last", "the text “abcdefgh”: 8 tokens are more than the 7 that the model can read; shorten it"),
        (["xyz"], "last", "the character 'x'"),
        ([], "last", "embed: there is no text; give at least one"),
        (["abc"], "lst", "--layer: there is no layer lst in this model; choose from 0 to 3, or last"),
        (["abc"], 4, "--layer: there is no layer 4 in this model; choose from 0 to 3, or last"),
    ],
)
def test_what_has_no_vector_is_refused_in_one_line(texts, layer, message):
    with pytest.raises((ConfigError, DataError)) as refused:
        embed(build(), TOKENIZER, texts, layer)
    assert message in str(refused.value)
    with pytest.raises(ConfigError, match="a Bigram has no hidden vectors, only logits"):
        embed(Bigram(TOKENIZER.vocab_size, 8), TOKENIZER, ["abc"])


def test_layers_are_named_by_a_number_or_last():
    assert (layer_named("2"), layer_named("last")) == (2, "last")
    for name in ("-1", "first", "1.5"):
        with pytest.raises(ConfigError, match="give a number from 0, or last"):
            layer_named(name)


def of_vectors(vectors):
    texts = [f"text {number}" for number in range(len(vectors))]
    return Embeddings(np.array(vectors, dtype=np.float32), texts, list(range(len(texts))), "last", "mean")


def test_the_nearest_texts_are_those_at_the_smallest_angle_however_long_their_vectors():
    among = of_vectors([[0, 1], [10, 10], [-1, 0], [0.1, 0.0], [0, 0]])
    found = nearest(np.array([2.0, 0.0], dtype=np.float32), among, k=4)
    assert [each.number for each in found] == [4, 2, 1, 5]
    assert [each.similarity for each in found] == pytest.approx([1, 0.5**0.5, 0, 0])
    assert nearest(np.array([-3.0, 0.0], dtype=np.float32), among, k=1)[0].text == "text 2"
    assert nearest_table(found).splitlines()[1] == " 1.000       4  text 3"
    assert len(nearest(among.vectors[0], among, k=99)) == 5


def test_saved_vectors_are_read_back(tmp_path):
    embeddings = embed(build(), TOKENIZER, TEXTS, 1, "last")
    embeddings.save(tmp_path / "vectors.npz")
    with np.load(tmp_path / "vectors.npz") as arrays:  # which refuses pickles
        np.testing.assert_array_equal(arrays["vectors"], embeddings.vectors)
        assert arrays["texts"].tolist() == TEXTS
    embeddings.save(tmp_path / "vectors.safetensors")
    with safe_open(tmp_path / "vectors.safetensors", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("vectors"), embeddings.vectors)
        assert json.loads(file.metadata()["texts"]) == TEXTS
        assert file.metadata()["layer"] == "1"
    with pytest.raises(ConfigError, match="neither .npz nor .safetensors"):
        embeddings.save(tmp_path / "vectors.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors.npz", "vectors.safetensors"]


class Held(NamedTuple):
    """A corpus of nothing but pieces, and how many of them were asked for."""

    held_out: list[Piece]
    read: list[Piece]

    def pieces(self, split):
        assert split == "validation"
        for piece in self.held_out:
            self.read.append(piece)
            yield piece


def held_out(pieces, most=10):
    corpus = Held([Piece(text, ends_document) for text, ends_document in pieces], [])
    texts = held_out_texts(SimpleNamespace(model=build(), tokenizer=TOKENIZER), corpus, most)
    return texts, len(corpus.read)


def test_of_a_long_held_out_document_the_whole_words_that_fit_are_taken_and_little_more_is_read():
    assert held_out([("abc", True), ("ab cd ef gh", True)]) == (["abc", "ab cd"], 2)
    assert held_out([("ab", False), ("c d", True), ("e", True)]) == (["abc d", "e"], 3)
    assert held_out([("ab cd ef", False)] * 1000, most=1) == (["ab cd"], 1)
    assert held_out([("a", True)] * 1000, most=3) == (["a"] * 3, 3)
    assert held_out([("abcdefgh", True), ("a", True)])[0] == ["abcdefg", "a"], "of a longer word, the beginning"
    with pytest.raises(DataError, match="no document is held out that fits into the context"):
        held_out([])
