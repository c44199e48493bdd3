"""Capped scores, layers without a window, other clocks in those with one: the loops, at once and token by token."""

import numpy as np
import pytest
import torch
import yaml

from model.model_axes import MIXED, YARN, build_away_from_zero, float64, tiny_config
from pellucid.config.load import parse_run_config
from pellucid.errors import ConfigError
from pellucid.generation.single_token import SingleTokenDecoder, own_part
from pellucid.generation.slots import SlotsOfDecoder, can_run_side_by_side
from pellucid.model.capped_attention import capped_scores
from pellucid.model.documents import Documents
from reference.decoder import decoder as reference_decoder
from tiny_run import TINY_RUN

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
CAP = {"attention_soft_cap": 0.4, "n_kv_heads": 1}
TWO_BASES = {"type": "rope", "base": 50.0, "base_in_windows": 3.0}
SHAPES = [
    {**CAP, "qk_norm": True},
    {**CAP, "attention": {"type": "sliding_window", "window": 3}, "norm": "rms_norm"},
    {**CAP, "attention": MIXED, "norm_placement": "both"},
    {"attention": MIXED, "position": {"type": "rope", "unrotated_layers": [0]}, "qk_norm": "all_heads"},
    {"attention": MIXED, "position": TWO_BASES, "qk_norm": True},
    {"attention": MIXED, "position": {**TWO_BASES, "stretch": YARN, "rotated_fraction": 0.5}},
]


def test_capped_scores_are_equation_57():
    """Small ones stay as they are."""
    q_BHTK, k_BHSK = torch.randn(1, 2, 5, 4, dtype=torch.float64), torch.randn(1, 2, 7, 4, dtype=torch.float64)
    scores = q_BHTK @ k_BHSK.mT / 2
    torch.testing.assert_close(capped_scores(q_BHTK, k_BHSK, 3.0), 3 * torch.tanh(scores / 3))
    torch.testing.assert_close(capped_scores(q_BHTK, k_BHSK, 1e6), scores)


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_a_decoder_whose_layers_differ_is_the_loops_also_token_by_token(shape):
    config = tiny_config(**shape)
    with float64():
        model = build_away_from_zero(config).eval()
        weights = {name: parameter.numpy() for name, parameter in model.named_parameters()}
        logits_TV = model(torch.tensor([TOKENS]))[0]
        np.testing.assert_allclose(logits_TV, reference_decoder(TOKENS, config, weights), rtol=0, atol=1e-10)
        state, lean_state, lean = model.new_state(1), model.new_state(1), SingleTokenDecoder(model)
        cached = torch.cat([model(torch.tensor([[token]]), state)[0] for token in TOKENS])
        written = torch.cat([lean(torch.tensor([token]), lean_state) for token in TOKENS])
        assert own_part(model) is None
    torch.testing.assert_close(cached, logits_TV, rtol=0, atol=1e-11)
    torch.testing.assert_close(written, logits_TV, rtol=0, atol=1e-11)


@torch.no_grad()
def test_slots_side_by_side_cap_their_scores():
    with float64():
        model = build_away_from_zero(tiny_config(**CAP)).eval()
        assert can_run_side_by_side(model)
        slots = SlotsOfDecoder(SingleTokenDecoder(model), 2)
        slots.read(0, TOKENS[:3])
        slots.read(1, TOKENS[:1])
        logits_NV = slots.step({0: TOKENS[3], 1: TOKENS[1]})
        expected_TV = model(torch.tensor([TOKENS]))[0]
    torch.testing.assert_close(logits_NV, expected_TV[[3, 1]], rtol=0, atol=1e-11)


@torch.no_grad()
def test_documents_side_by_side_do_not_see_each_other_under_a_cap():
    with float64():
        model = build_away_from_zero(tiny_config(**CAP, position={"type": "learned"})).eval()
        begins_BT = torch.tensor([[True, False, False, True, False]])
        documents = Documents(begins_BT, torch.empty(0), model.n_layers)
        logits_TV = model(torch.tensor([TOKENS[:5]]), documents)[0]
        apart = [model(torch.tensor([part]))[0] for part in (TOKENS[:3], TOKENS[3:5])]
    torch.testing.assert_close(logits_TV, torch.cat(apart), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (
            {"attention_soft_cap": 5.0, "attention": "fused"},
            "attention_soft_cap: fused attention cannot cap its scores;",
        ),
        ({"attention_soft_cap": 5.0, "attention": "linear"}, "attention_soft_cap: linear attention cannot cap its"),
        ({"position": TWO_BASES}, "position.base_in_windows: no layer has a window; leave it out"),
    ],
)
def test_a_knob_without_a_place_is_refused_in_one_line(model, wrong):
    config = yaml.safe_load(TINY_RUN)
    config["model"] |= model
    with pytest.raises(ConfigError, match=wrong):
        parse_run_config(yaml.safe_dump(config), "tiny.yaml")
