"""The steps inside a layer: each follows from those before it by its equation, and the last is the model's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import build_away_from_zero, float64, tiny_config, tiny_configs
from pellucid.errors import ConfigError
from pellucid.inspection.trace import trace
from pellucid.model.attention import explicit_attention

SIZES = {"T": 5, "S": 5, "D": 8, "H": 2, "F": 12, "E": 4}
EXPERTS = {"type": "moe", "n_experts": 3, "top_k": 2, "shared_experts": 1}
IDS = [3, 1, 4, 1, 5]


def steps_of(config, layer, ids=IDS):
    with float64():
        model = build_away_from_zero(config).eval()
    steps = trace(model, ids).inside(layer)
    named = [{step.name: step for step in steps if step.sublayer == name} for name in ("attention", "feed_forward")]
    return model, *({name: step.values for name, step in each.items()} for each in named), steps


def close(x, y):
    torch.testing.assert_close(x, y, rtol=0, atol=1e-9)


@given(tiny_configs, st.integers(0, 1))
@settings(max_examples=30)
def test_each_step_follows_from_those_before_it(config, layer):
    model, attention, feed_forward, steps = steps_of(config, layer)
    block = model.blocks[layer]
    is_pre = config.norm_placement == "pre"
    for values, residual in ((attention, block.attention), (feed_forward, block.feed_forward)):
        sum_TD = values["x"] + values["output"]
        close(values["new x"], sum_TD if is_pre else residual.norm(sum_TD))
        if is_pre:
            close(values["norm(x)"], residual.norm(values["x"]))
    close(attention["new x"], feed_forward["x"])

    part = block.attention.sublayer
    read_TD = attention["norm(x)"] if is_pre else attention["x"]
    close(attention["v"].transpose(0, 1).flatten(1), part.W_V(read_TD))
    if config.attention != "linear":
        close(attention["weights"], attention["scores"].softmax(dim=-1))
    elif config.position.type != "rope":
        close(attention["weights"], attention["scores"] / (attention["scores"].sum(dim=-1, keepdim=True) + 1e-6))
    v_HSK = attention["v"].repeat_interleave(2 // part.n_kv_heads, dim=0)
    close(attention["heads"], attention["weights"] @ v_HSK)
    close(attention["output"], part.W_O(attention["heads"].transpose(0, 1).flatten(1)))
    close(feed_forward["output"], block.feed_forward.sublayer.W_2(feed_forward["hidden"]))

    sizes = SIZES | {"K": part.head_width, "G": part.n_kv_heads}
    for step in steps:
        assert step.values.shape == tuple(sizes[axis] for axis in step.axes), step.name


@given(tiny_configs)
@settings(max_examples=30)
def test_the_layers_lead_from_the_embedding_to_the_logits_of_the_model(config):
    with float64():
        model = build_away_from_zero(config).eval()
    traced = trace(model, IDS)
    x_TD = traced.residuals[0]
    for layer in range(config.n_layers):
        steps = traced.inside(layer)
        close(steps[0].values, x_TD)
        x_TD = steps[-1].values
    close(model.unembed(model.final_norm(x_TD[None])), model(torch.tensor([IDS])))


def test_the_answers_of_experts_are_added_by_their_shares():
    config = tiny_config(feed_forward=EXPERTS)
    model, _, feed_forward, steps = steps_of(config, layer=1)
    layer, shares_TE = model.blocks[1].feed_forward.sublayer, feed_forward["shares of experts"]
    assert (shares_TE > 0).sum(dim=1).tolist() == [2] * 5
    close(shares_TE.sum(dim=1), torch.ones(5, dtype=torch.float64))
    answers = [
        expert.W_2(rows) for expert, rows in zip([*layer.experts, *layer.shared], feed_forward["hidden"], strict=True)
    ]
    close(feed_forward["output"], sum(shares_TE[:, i, None] * answers[i] for i in range(3)) + answers[3])
    [hidden] = [step for step in steps if step.name == "hidden"]
    assert (hidden.axes, tuple(hidden.values.shape)) == ("ETF", (4, 5, 12))
    assert (hidden.values[:3].abs().sum(dim=-1).T > 0).eq(shares_TE > 0).all()


def test_an_expert_that_is_asked_for_a_share_of_zero_has_its_hidden_numbers():
    model = build_away_from_zero(tiny_config(feed_forward=EXPERTS)).eval()
    with torch.no_grad():
        model.blocks[0].feed_forward.sublayer.router.weight.mul_(1e6)
    steps = {step.name: step.values for step in trace(model, IDS).inside(0) if step.sublayer == "feed_forward"}
    assert (steps["shares of experts"] > 0).sum(dim=1).tolist() == [1] * 5
    assert (steps["hidden"][:3].abs().sum(dim=-1) > 0).sum(dim=0).tolist() == [2] * 5


def test_a_single_token_can_be_looked_into_with_experts():
    _, attention, feed_forward, _ = steps_of(tiny_config(feed_forward=EXPERTS), layer=0, ids=[2])
    assert attention["weights"].tolist() == [[[1.0]], [[1.0]]]
    assert feed_forward["hidden"].shape == (4, 1, 12)


def flipped(q, k, v, dropout):
    return explicit_attention(q, k.flip(1), v, dropout)


def test_of_an_attention_that_nobody_listed_only_what_it_gave_is_shown():
    model = build_away_from_zero(tiny_config()).eval()
    model.blocks[1].attention.sublayer.attend = flipped
    steps = {step.name: step.values for step in trace(model, IDS).inside(1) if step.sublayer == "attention"}
    assert list(steps) == ["x", "norm(x)", "v", "weights", "heads", "output", "new x"]
    torch.testing.assert_close(steps["heads"], steps["weights"] @ steps["v"])


ROPE = {"position": {"type": "rope"}}
PARTIAL = {"position": {"type": "rope", "rotated_fraction": 0.5}}
ABSOLUTE = {"position": {"type": "learned"}, "qk_norm": False}


@pytest.mark.parametrize(
    ("choices", "name", "equations"),
    [
        (ABSOLUTE, "q", (7,)),
        (ROPE | {"qk_norm": True}, "q", (7, 24, 5)),
        (PARTIAL | {"qk_norm": False, "n_kv_heads": 1}, "k", (7, 23, 5, 31)),
        (ROPE | {"attention": "linear", "qk_norm": False}, "q", (7, 38, 5)),
        (ABSOLUTE, "scores", (7, 8)),
        ({"attention": {"type": "sliding_window", "window": 4}}, "scores", (7, 39)),
        ({"attention": "linear"}, "weights", (38,)),
        ({"norm": "rms_norm"}, "norm(x)", (21,)),
        ({"norm": "rms_norm", "norm_placement": "post"}, "new x", (10, 21)),
        ({"activation": "swiglu"}, "hidden", (22,)),
        ({"activation": "relu"}, "hidden", (11,)),
        ({"feed_forward": EXPERTS}, "shares of experts", (40,)),
    ],
)
def test_a_step_names_its_equations(choices, name, equations):
    steps = trace(build_away_from_zero(tiny_config(**choices)), IDS).inside(0)
    assert next(step.equations for step in steps if step.name == name) == equations


def test_a_layer_that_is_not_there_is_one_clear_line():
    traced = trace(build_away_from_zero(tiny_config()), IDS)
    for layer in (-1, 2):
        with pytest.raises(ConfigError, match=f"inside: there is no layer {layer}; choose one from 0 to 1"):
            traced.inside(layer)
