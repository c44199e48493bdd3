"""What each part adds to a logit is what the equations give, and adds up to the logit."""

import torch
from hypothesis import given, settings
from torch import nn

from model.model_axes import build_away_from_zero, float64, tiny_config, tiny_configs
from pellucid.inspection.interventions import attention_of
from pellucid.inspection.logit_parts import logit_parts
from pellucid.inspection.trace import trace

IDS, PLACE, TOKENS = [1, 2, 3, 4, 5], 3, [0, 7, 10]


def normed(norm, y, x):
    """γ (y − mean) / the deviation of x, or γ y / the root mean square of x: without bias."""
    if isinstance(norm, nn.Identity):
        return y
    if isinstance(norm, nn.LayerNorm):
        return norm.weight * (y - y.mean()) / (x.var(unbiased=False) + norm.eps).sqrt()
    return norm.weight * y / (x.square().mean() + norm.epsilon).sqrt()


@given(tiny_configs)
@settings(max_examples=40)
@torch.no_grad()
def test_the_parts_are_those_of_the_equations_and_add_up_to_the_logit(config):
    with float64():
        model = build_away_from_zero(config).eval()
    traced = trace(model, IDS)
    parts = logit_parts(model, traced, PLACE, TOKENS)
    logits_M = traced.logits[-1, PLACE, TOKENS]
    torch.testing.assert_close(model.soft_cap(parts.parts.sum(0) + parts.bias), logits_M)

    x_ND = traced.residuals[:, PLACE]
    added = [x_ND[0], *x_ND.diff(dim=0)]
    is_pre = config.norm_placement in ("pre", "parallel")
    for n, added_D in enumerate(added):
        if n and is_pre:
            torch.testing.assert_close(added_D, traced.outputs[n - 1, PLACE])
        expected = [
            normed(model.final_norm, added_D, x_ND[-1]) @ model.embeddings.unembedding_VD[id_] for id_ in TOKENS
        ]
        torch.testing.assert_close(parts.parts[n], torch.stack(expected))
    for layer, heads_HM in enumerate(parts.heads):
        W_O = attention_of(model, layer).W_O
        if not is_pre:
            assert heads_HM.isnan().all()
            continue
        of_bias_D = normed(model.final_norm, W_O.bias, x_ND[-1]) if W_O.bias is not None else torch.zeros(8)
        of_bias_M = model.embeddings.unembedding_VD[TOKENS] @ of_bias_D.to(x_ND.dtype)
        torch.testing.assert_close(heads_HM.sum(0) + of_bias_M, parts.parts[1 + 2 * layer])


@torch.no_grad()
def test_a_head_that_is_knocked_out_adds_nothing_and_of_another_unembedding_nothing_is_said():
    model = build_away_from_zero(tiny_config(tied_embeddings=False)).eval()
    parts = logit_parts(model, trace(model, IDS, knock_out=[("head", 1, 0), ("attention", 0)]), PLACE, TOKENS)
    assert (parts.heads[1, 0] == 0).all()
    assert parts.heads[0].isnan().all()  # they computed, but nothing of it went on
    assert (parts.parts[1] == 0).all()

    unembed = model.embeddings.unembed
    model.embeddings.unembed = lambda x_BTD: unembed(x_BTD).square()
    assert logit_parts(model, trace(model, IDS), PLACE, TOKENS) is None
