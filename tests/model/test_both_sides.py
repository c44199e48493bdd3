"""Attention to both sides: every position sees every other one of its document, and none can be written."""

import numpy as np
import pytest
import torch

from model.model_axes import build_away_from_zero, float64, tiny_config
from pellucid.errors import ConfigError
from pellucid.generation.answers import write_answers
from pellucid.model.documents import one_by_one

TOKENS, END = [0, 3, 1, 4, 0, 5, 9], 0


def both_sides(**choices):
    with float64():
        return build_away_from_zero(tiny_config(attention_mask="none", **choices)).eval()


@pytest.mark.parametrize("choices", [{}, {"n_kv_heads": 1, "qk_norm": True}, {"attention": "fused"}], ids=str)
def test_equation_62_is_the_mean_of_all_values_by_softmax_of_all_scores(choices):
    model = both_sides(n_layers=1, norm_placement="output", **choices)
    attention = model.blocks[0].attention.sublayer
    steps = {
        step.name: step.values.detach().numpy() for step in attention.steps(torch.randn(5, 8, dtype=torch.float64))
    }
    q_HTK, k_GSK, v_GSK = steps["q"], steps["k"], steps["v"]
    for head in range(len(q_HTK)):
        group = head * len(k_GSK) // len(q_HTK)
        for t in range(5):
            raised = [np.exp(q_HTK[head, t] @ k_GSK[group, s] / np.sqrt(q_HTK.shape[-1])) for s in range(5)]
            expected = sum(w * v_GSK[group, s] for s, w in enumerate(raised)) / sum(raised)
            np.testing.assert_allclose(steps["heads"][head, t], expected, atol=1e-12)


@pytest.mark.parametrize("attention", ["explicit", "fused"])
@torch.no_grad()
def test_each_position_depends_on_all_of_its_document_and_on_no_other(attention):
    model = both_sides(attention=attention)
    ids = torch.tensor([TOKENS])
    assert torch.allclose(model(ids), both_sides(attention="explicit")(ids), atol=1e-12)
    forward, alone = one_by_one(model, END), [model(torch.tensor([part])) for part in (TOKENS[:4], TOKENS[4:])]
    torch.testing.assert_close(forward(ids), torch.cat(alone, dim=1), rtol=0, atol=1e-11)
    logits = model(ids)
    for place in range(1, len(TOKENS)):
        changed = ids.clone()
        changed[0, place] = 7
        assert (model(changed) - logits)[0].abs().amax(dim=-1).gt(1e-9).all(), "earlier positions see it, too"


def test_such_a_model_cannot_write():
    model = both_sides()
    with pytest.raises(ConfigError, match="attention_mask: a model that sees both sides cannot write"):
        write_answers(model, [[0, 3]], [(0, 0)], max_new_tokens=2, stop_ids=[0])
