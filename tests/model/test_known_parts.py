"""Every decoder that a config can describe is made of known parts; any other part is named."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model_axes import VOCAB_SIZE, covering_combinations, tiny_config
from pellucid.model.attention import MultiHeadAttention, explicit_attention
from pellucid.model.build import build_model
from pellucid.model.embeddings import TiedEmbeddings
from pellucid.model.known_parts import unknown_parts
from pellucid.model.norms import LayerNorm
from pellucid.model.positions import Rotary


def test_whatever_a_config_describes_is_made_of_known_parts():
    for config in covering_combinations(feed_forward=[{"type": "dense"}, {"type": "moe", "n_experts": 2}]):
        with torch.device("meta"):
            assert unknown_parts(build_model(config, VOCAB_SIZE)) == [], config
    assert unknown_parts(build_model(tiny_config(attention="fused"), VOCAB_SIZE)) == []


class Doubled(MultiHeadAttention):
    def gather(self, *inputs):
        return 2 * super().gather(*inputs)


class Louder(LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class Slower(Rotary):
    def rotate(self, x, start):
        return super().rotate(x, start // 2)


class Scaled(TiedEmbeddings):
    def unembed(self, x):
        return super().unembed(x) / 2


def backwards(q, k, v, dropout):
    return explicit_attention(q.flip(2), k, v, dropout)


def weaker(x, by):
    return by * F.relu(x)


def attention(model):
    return model.blocks[0].attention


def feed_forward(model):
    return model.blocks[1].feed_forward


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda m: setattr(attention(m).sublayer, "__class__", Doubled), "Doubled"),
        (lambda m: setattr(attention(m).sublayer, "attend", backwards), "backwards"),
        (lambda m: setattr(attention(m).sublayer, "project", lambda *_: None), "<lambda>"),
        (lambda m: setattr(attention(m).sublayer, "rotate", Slower(8, 4).rotate), "rotate"),
        (lambda m: setattr(m, "positions", Slower(8, 4)), "Slower"),
        (lambda m: setattr(attention(m), "norm", Louder(8, bias=False)), "Louder"),
        (lambda m: setattr(feed_forward(m), "sublayer", nn.GELU()), "GELU"),
        (lambda m: setattr(feed_forward(m).sublayer, "activation", partial(weaker, by=0.5)), "weaker"),
        (lambda m: setattr(m, "embeddings", Scaled(VOCAB_SIZE, 8)), "Scaled"),
        (lambda m: setattr(m, "soft_cap", torch.tanh), "tanh"),
    ],
)
def test_a_part_that_nobody_listed_is_named(change, name):
    model = build_model(tiny_config(), VOCAB_SIZE)
    if name == "tanh":
        del model.soft_cap
    change(model)
    assert unknown_parts(model) == [name]
