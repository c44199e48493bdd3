"""The steps inside a layer: each follows from those before it by its equation, and the last is the model's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.model_axes import MIXED, build_away_from_zero, float64, tiny_config, tiny_configs
from pellucid.errors import ConfigError
from pellucid.inspection.trace import trace
from pellucid.model.attention import MultiHeadAttention, causal_mask, project, scaled_dot_product
from pellucid.model.block import Block
from pellucid.model.feed_forward import relu_squared
from pellucid.model.positions import rotate_pairs

SIZES = {"T": 5, "S": 5, "D": 8, "H": 2, "F": 12, "E": 4}
EXPERTS = {"type": "moe", "n_experts": 3, "top_k": 2, "shared_experts": 1}
IDS = [3, 1, 4, 1, 5]


def build(**choices):
    with float64():
        return build_away_from_zero(tiny_config(**choices)).eval()


def inside(model, layer=0, ids=IDS):
    """The steps of a layer, and their values by name in each sublayer. They are a part of the way to the logits."""
    traced = trace(model, ids)
    close(traced.logits[-1], model(torch.tensor([ids]))[0])
    steps = traced.inside(layer)
    close(steps[0].values, traced.residuals[2 * layer])
    close(steps[-1].values, traced.residuals[2 * layer + 2])
    sublayers = ([step for step in steps if step.sublayer == name] for name in ("attention", "feed_forward"))
    return steps, *({step.name: step.values for step in each} for each in sublayers)


def close(x, y):
    torch.testing.assert_close(x, y, rtol=0, atol=1e-9)


@given(tiny_configs, st.integers(0, 1))
@settings(max_examples=30)
def test_each_step_follows_from_those_before_it(config, layer):
    with float64():
        model = build_away_from_zero(config).eval()
    steps, attention, feed_forward = inside(model, layer)
    block = model.blocks[layer]
    is_parallel = config.norm_placement == "parallel"
    is_pre = config.norm_placement in ("pre", "parallel", "both")
    for values, residual in ((attention, block.attention), (feed_forward, block.feed_forward)):
        sum_TD = values["x"] + values["output"]
        output_TD = values["x"] + residual.norm(values["output"])
        both_TD = values["x"] + getattr(residual, "output_norm", residual.norm)(values["output"])
        new_x = {"post": residual.norm(sum_TD), "output": output_TD, "both": both_TD}
        close(values["new x"], new_x.get(config.norm_placement, sum_TD))
        if is_pre:
            close(values["norm(x)"], residual.norm((attention if is_parallel else values)["x"]))
    close(attention["new x"], feed_forward["x"])

    shown = {"v", "weights", "heads", "output"}
    assert shown <= attention.keys(), "the steps of an attention differ from its forward: give it `steps` of its own"
    part = block.attention.sublayer
    read_TD = attention["norm(x)"] if is_pre else attention["x"]
    close(attention["v"].transpose(0, 1).flatten(1), part.W_V(read_TD))
    if config.attention != "linear":
        close(attention["weights"], attention["scores"].softmax(dim=-1))
    elif config.position.type != "rope":
        close(attention["weights"], attention["scores"] / (attention["scores"].sum(dim=-1, keepdim=True) + 1e-6))
        assert (attention["weights"] >= 0).all()
    assert not attention["weights"].triu(diagonal=1).any()
    v_HSK = attention["v"].repeat_interleave(2 // part.n_kv_heads, dim=0)
    close(attention["heads"], attention["weights"] @ v_HSK)
    close(attention["output"], part.W_O(attention["heads"].transpose(0, 1).flatten(1)))
    close(feed_forward["output"], block.feed_forward.sublayer.W_2(feed_forward["hidden"]))

    sizes = SIZES | {"K": part.head_width, "G": part.n_kv_heads}
    for step in steps:
        assert step.values.shape == tuple(sizes[axis] for axis in step.axes), step.name


def test_the_answers_of_experts_are_added_by_their_shares():
    model = build(feed_forward=EXPERTS)
    steps, _, feed_forward = inside(model, layer=1)
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
    model = build(feed_forward=EXPERTS)
    with torch.no_grad():
        model.blocks[0].feed_forward.sublayer.router.weight.mul_(1e6)
    _, _, steps = inside(model)
    assert (steps["shares of experts"] > 0).sum(dim=1).tolist() == [1] * 5
    assert (steps["hidden"][:3].abs().sum(dim=-1) > 0).sum(dim=0).tolist() == [2] * 5


def test_experts_that_share_in_another_way_than_they_say_show_no_shares():
    model = build(feed_forward=EXPERTS)
    assert trace(model, IDS).shares_of_experts().shape == (2, 5, 3)
    for block in model.blocks:
        block.feed_forward.sublayer.forward = block.feed_forward.sublayer.experts[0].forward
    assert trace(model, IDS).shares_of_experts() is None


def test_a_single_token_can_be_looked_into_with_experts_but_no_layer_that_is_not_there():
    for layer in (-1, 2):
        with pytest.raises(ConfigError, match=f"inside: there is no layer {layer}; choose one from 0 to 1"):
            trace(build(), IDS).inside(layer)
    _, attention, feed_forward = inside(build(feed_forward=EXPERTS), ids=[2])
    assert attention["weights"].tolist() == [[[1.0]], [[1.0]]]
    assert feed_forward["hidden"].shape == (4, 1, 12)


@pytest.mark.parametrize("place", [("head", 0, 1), ("attention", 0), ("feed_forward", 0)])
def test_of_a_layer_in_which_a_place_is_knocked_out_all_steps_are_shown(place):
    model = build(feed_forward=EXPERTS)
    intact, without = (trace(model, IDS, knock_out=places).inside(0) for places in ([], [place]))
    assert [step[:3] for step in without] == [step[:3] for step in intact]
    for step, silent in zip(intact, without, strict=True):
        if step.name in ("q", "scores", "weights") or (step.sublayer, step.name) == ("attention", "x"):
            close(step.values, silent.values)


def are_zeros(*tensors):
    return not any(tensor.any() for tensor in tensors)


# Of each function: another in its place, and whether that is what is shown.
EDITS = {
    scaled_dot_product: (
        lambda q, k, v, mask, dropout: v * 0,
        lambda block, seen, _: "scores" not in seen and are_zeros(seen["weights"], seen["heads"], seen["output"]),
    ),
    causal_mask: (
        lambda n_queries, n_keys, like: like.new_zeros((n_queries, n_keys)),
        lambda block, seen, _: (seen["weights"] > 0).all() and (seen["scores"].softmax(-1) == seen["weights"]).all(),
    ),
    rotate_pairs: (
        lambda x, cos, sin: x,
        lambda block, seen, _: are_zeros(seen["q"][0] - block.attention.sublayer.W_Q(seen["norm(x)"])[:, :4]),
    ),
    project: (
        lambda x, W_Q, W_K, W_V, width: [0 * x[:, None].expand(-1, 2, -1, -1)[..., :width]] * 3,
        lambda block, seen, _: are_zeros(seen["q"], seen["k"], seen["v"], seen["heads"]),
    ),
    relu_squared: (
        lambda x: x,
        lambda block, _, seen: are_zeros(seen["hidden"] - block.feed_forward.sublayer.W_1(seen["norm(x)"])),
    ),
}


@pytest.mark.parametrize("function", EDITS, ids=lambda function: function.__name__)
def test_of_a_function_that_is_edited_in_place_what_it_computes_then_is_shown(function, monkeypatch):
    edited, is_shown = EDITS[function]
    model = build(position={"type": "rope"}, activation="relu_squared")
    monkeypatch.setattr(function, "__code__", edited.__code__)
    _, attention, feed_forward = inside(model)
    assert is_shown(model.blocks[0], attention, feed_forward)


class Bare(nn.Module):
    """An attention of one's own, without projections and without steps."""

    n_heads, head_width = 2, 4

    def __init__(self):
        super().__init__()
        self.W_O = nn.Linear(8, 8)

    def forward(self, x_BTD, cache):
        x_BHTK = x_BTD.unflatten(-1, (2, 4)).transpose(1, 2)
        return self.W_O(self.gather(x_BHTK, x_BHTK, x_BHTK, cache).transpose(1, 2).flatten(2))

    def gather(self, q_BHTK, k_BHTK, v_BHTK, cache):
        T = q_BHTK.size(2)
        return scaled_dot_product(q_BHTK, k_BHTK, v_BHTK, causal_mask(T, T, like=q_BHTK), 0.0)


class Flipped(MultiHeadAttention):
    """One that has inherited steps which are not its own."""

    def gather(self, q_BHTK, k_BGTK, v_BGTK, cache):
        return super().gather(q_BHTK, k_BGTK, v_BGTK.flip(1), cache)


class Squashed(MultiHeadAttention):
    """One that gives no sum of values by weights."""

    def gather(self, q_BHTK, k_BGTK, v_BGTK, cache):
        return super().gather(q_BHTK, k_BGTK, v_BGTK.tanh(), cache)


class Mean(nn.Module):
    """One without heads."""

    def forward(self, x_BTD, cache):
        return x_BTD.cumsum(dim=1) / torch.arange(1, x_BTD.size(1) + 1)[:, None]


class Parallel(Block):
    """Attention and feed-forward beside each other (GPT-J)."""

    def forward(self, x_BTD, cache):
        return self.attention(x_BTD, cache) + self.feed_forward(x_BTD) - x_BTD


class Still(nn.Module):
    """A block without sublayers."""

    def forward(self, x_BTD, cache):
        return x_BTD


def with_own(part):
    """A model whose second layer is, or has, a part of this class."""
    model = build()
    block = model.blocks[1]
    if part is Still:
        model.blocks[1] = Still()
    elif issubclass(part, Block):
        block.__class__ = part
    elif issubclass(part, MultiHeadAttention):
        block.attention.sublayer.__class__ = part
    else:
        residual = block.feed_forward if part is nn.Tanh else block.attention
        residual.sublayer = part().double()
    return model


@pytest.mark.parametrize(("own", "of_head"), [(Bare, [0, 1]), (Flipped, [1, 0])])
def test_of_an_attention_of_ones_own_what_it_gave_is_shown(own, of_head):
    _, seen, _ = inside(with_own(own), layer=1)
    assert list(seen) == ["x", "norm(x)", "v", "weights", "heads", "output", "new x"]
    close(seen["heads"], seen["weights"] @ seen["v"][of_head])


def test_of_a_feed_forward_layer_of_ones_own_what_it_gave_is_shown():
    _, _, seen = inside(with_own(nn.Tanh), layer=1)
    assert list(seen) == ["x", "norm(x)", "output", "new x"]
    close(seen["output"], seen["norm(x)"].tanh())


@pytest.mark.parametrize(
    ("own", "refusal"),
    [
        (Squashed, "Squashed does not weigh values in `gather` and then mix its heads by W_O; write it like"),
        (Mean, "Mean does not weigh values"),
        (Still, "layer 1 has no attention layer with a residual connection"),
        (Parallel, "the sublayers of this model do not read what the one before them gave, so there is no stream"),
    ],
)
def test_a_model_without_weights_or_one_stream_is_refused_in_one_line(own, refusal):
    with pytest.raises(ConfigError, match=f"trace: {refusal}"):
        trace(with_own(own), IDS)


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
        ({"norm_placement": "parallel"}, "new x", (10,)),
        ({"norm_placement": "output"}, "new x", (52, 10)),
        ({"norm_placement": "both"}, "new x", (58,)),
        ({"attention_soft_cap": 2.0}, "scores", (57, 7, 8)),
        ({"activation": "swiglu"}, "hidden", (22,)),
        ({"activation": "geglu_tanh"}, "hidden", (53,)),
        ({"activation": "relu"}, "hidden", (11,)),
        ({"feed_forward": EXPERTS}, "shares of experts", (40,)),
    ],
)
def test_a_step_names_its_equations(choices, name, equations):
    steps = trace(build_away_from_zero(tiny_config(**choices)), IDS).inside(0)
    assert next(step.equations for step in steps if step.name == name) == equations


def test_scores_are_capped_and_clocks_differ_where_equations_say_so():
    capped, of_two_bases = (
        build(attention_soft_cap=0.4, attention=MIXED),
        build(attention=MIXED, position={"type": "rope", "base": 50.0, "base_in_windows": 3.0}),
    )
    for model, cap, in_windows in ((capped, True, False), (of_two_bases, False, True)):
        for layer in (0, 1):
            steps = {step.name: step for step in inside(model, layer)[0]}
            seen = steps["scores"].values[steps["scores"].values.isfinite()]
            assert (seen.abs().max() < 0.4) == (57 in steps["scores"].equations) == cap
            assert (59 in steps["q"].equations) == (in_windows and layer == 0)
