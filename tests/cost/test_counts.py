import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from model.family import FAMILY, family_config
from model.model_axes import AXES, VOCAB_SIZE, covering_combinations, tiny_config
from pellucid.cost.build import cost_of
from pellucid.cost.counts import count_cost, count_parameters
from pellucid.model.build import build_model
from pellucid.model.linear_attention import CHUNK

D, N_LAYERS, CONTEXT_LENGTH = 12_288, 96, 2048
EQUATIONS = Path(__file__).parents[2] / "docs/equations.md"


GPT_3 = {"context_length": CONTEXT_LENGTH, "d_model": D, "n_heads": 96, "d_ff": 4 * D}


@pytest.fixture(scope="module")
def gpt_3():
    """Counted from two of its layers, which are all alike."""
    return cost_of(tiny_config(**GPT_3, n_layers=2, tied_embeddings=False), 50_257)


def test_gpt_3_has_the_parameters_of_equation_12(gpt_3):
    counted = gpt_3.parameters
    in_all_layers = N_LAYERS // 2
    assert counted.embedding == counted.unembedding == 617_558_016
    assert in_all_layers * counted.attention == 57_982_058_496 == N_LAYERS * 4 * D**2
    assert in_all_layers * counted.feed_forward == 115_964_116_992 == N_LAYERS * 8 * D**2
    assert counted.positions == 0
    assert counted.norms == (2 * 2 + 1) * D
    assert counted.active == counted.total == sum(vars(counted).values()) - 2 * counted.total


@pytest.mark.parametrize(("tied", "words"), [(True, "with tied embeddings"), (False, "without")])
def test_gpt_3_has_as_many_weights_as_the_page_says(tied, words):
    """In matrices and embeddings, which is what equation 12 counts."""
    with torch.device("meta"):
        counted = count_parameters(build_model(tiny_config(**GPT_3, n_layers=1, tied_embeddings=tied), 50_257))
    in_a_layer = counted.attention + counted.feed_forward
    n_weights = counted.embedding + counted.unembedding + N_LAYERS * in_a_layer
    assert re.search(rf"\b{n_weights:,}( weights)? {words}", EQUATIONS.read_text(encoding="utf-8"))


def parameters_by_formula(config, vocab_size):
    """Equation 12 on paper, with the parts that its model does not have."""
    d, k = config.d_model, config.head_width or config.d_model // config.n_heads
    d_q, d_kv = config.n_heads * k, config.n_kv_heads * k
    d_ff = config.d_ff or 4 * d
    n_wide, n_norms = (
        1 + (config.activation in ("swiglu", "geglu_tanh")),
        (4 if config.norm_placement == "both" else 2) * config.n_layers + (config.norm_placement != "post"),
    )
    of_heads = {False: 0, True: 2 * k, "all_heads": d_q + d_kv}
    norm_widths = n_norms * d + config.n_layers * of_heads[config.qk_norm]
    parts = {
        "embedding": vocab_size * d,
        "positions": config.context_length * d if config.position.type == "learned" else 0,
        "attention": config.n_layers * (2 * d * d_q + 2 * d * d_kv + config.bias * (d_q + 2 * d_kv + d)),
        "feed_forward": config.n_layers * ((n_wide + 1) * d * d_ff + config.bias * (n_wide * d_ff + d)),
        "recurrent": 0,
        "norms": (1 + (config.bias and config.norm == "layer_norm")) * norm_widths,
        "unembedding": 0 if config.tied_embeddings else vocab_size * d,
    }
    return {**parts, "total": sum(parts.values()), "active": sum(parts.values())}


sizes = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(1, 300),
        "context_length": st.integers(1, 50),
        "n_layers": st.integers(1, 3),
        "d_ff": st.none() | st.integers(1, 70),
        "quarter_width": st.integers(1, 5),
        "head_width": st.none() | st.sampled_from([4, 8]),
        "n_kv_heads": st.integers(1, 3),
        "heads_per_kv_head": st.integers(1, 3),
    }
)


@given(sizes, st.fixed_dictionaries({axis: st.sampled_from(values) for axis, values in AXES.items()}))
@settings(max_examples=25, deadline=None)
def test_every_size_has_as_many_parameters_as_the_formula_says(size, choices):
    n_heads = size["n_kv_heads"] * size["heads_per_kv_head"]
    config = tiny_config(
        **choices
        | {name: size[name] for name in ("context_length", "n_layers", "d_ff", "n_kv_heads", "head_width")}
        | {"n_heads": n_heads, "d_model": n_heads * 4 * size["quarter_width"]}
    )
    with torch.device("meta"):
        counted = count_parameters(build_model(config, size["vocab_size"]))
    assert vars(counted) == parameters_by_formula(config, size["vocab_size"])


@pytest.mark.parametrize("kind", FAMILY)
def test_every_weight_of_every_kind_of_model_is_of_one_part(kind):
    with torch.device("meta"):
        model = build_model(family_config(kind), VOCAB_SIZE)
    counted = vars(count_parameters(model))
    in_parts = sum(n for part, n in counted.items() if part not in ("total", "active"))
    assert in_parts == counted["total"] == sum(parameter.numel() for parameter in model.parameters())


def test_a_deep_model_costs_what_counting_all_its_layers_gives():
    """The command counts one layer and two, and goes on from there."""
    for config in (tiny_config(n_layers=n_layers, qk_norm=True) for n_layers in (1, 2, 5)):
        assert cost_of(config, VOCAB_SIZE) == count_cost(build_model(config, VOCAB_SIZE))


def test_flops_are_those_of_equation_13(gpt_3):
    """(d_k + d_v) n^2 and (d_k + d_v + d_ff) d n per layer are its terms; 2 and 4 are the factors it leaves out."""
    flops = gpt_3.forward_flops_per_token
    n, d, d_k, d_v, d_ff = CONTEXT_LENGTH, D, D, D, 4 * D
    assert n * flops.attention_pairs == 2 * 2 * (d_k + d_v) * n**2
    assert n * (flops.attention_projections + flops.feed_forward) == n * 2 * 4 * (d_k + d_v + d_ff) * d


def test_gpt_3_takes_six_flops_per_weight_and_token_to_train_besides_attention_pairs(gpt_3):
    """The rule of thumb 6 N (Kaplan et al. 2020), where N counts the weights that are factors of products."""
    n_factors = gpt_3.parameters.total - gpt_3.parameters.embedding - gpt_3.parameters.norms
    assert gpt_3.training_flops_per_token.total - gpt_3.training_flops_per_token.attention_pairs == 6 * n_factors


def test_the_flops_of_a_token_grow_with_the_context_but_not_in_linear_attention():
    """There, of the C tokens of its own chunk and the sum S of those before: 2 (2 C + 2 K) per number of the width."""

    def pairs(attention, context_length):
        config = tiny_config(attention=attention, context_length=context_length, n_layers=1)
        return cost_of(config, VOCAB_SIZE).forward_flops_per_token.attention_pairs

    d, k = 8, 4
    assert pairs("linear", CHUNK) == pairs("linear", 5 * CHUNK) == 2 * (2 * CHUNK + 2 * k) * d
    assert pairs("fused", 5 * CHUNK) == 5 * pairs("fused", CHUNK) == 5 * 2 * 2 * CHUNK * d


def test_flops_are_those_that_torch_counts_forward_and_backward():
    for config in covering_combinations(
        position=[{"type": "rope"}],
        norm=["layer_norm"],
        bias=[True],
        logit_soft_cap=[None],
        n_layers=[1],
        attention=["explicit"],
        qk_norm=[False],
        norm_placement=["pre"],
        zero_init_projections=[False],
    ):
        model = build_model(config, VOCAB_SIZE)
        tokens = torch.zeros(1, config.context_length, dtype=torch.long)
        counted = count_cost(model)
        with FlopCounterMode(display=False) as counter:
            logits = model(tokens)
            assert counter.get_total_flops() == config.context_length * counted.forward_flops_per_token.total, config
            logits.sum().backward()
        assert counter.get_total_flops() == config.context_length * counted.training_flops_per_token.total, config


MOE = {"type": "moe", "n_experts": 6, "top_k": 2, "shared_experts": 1}


def test_a_token_is_multiplied_by_the_experts_it_asks_alone():
    config = tiny_config(feed_forward=MOE, bias=True, qk_norm=True)
    counted = cost_of(config, VOCAB_SIZE).parameters
    d, d_ff, n_layers = config.d_model, config.d_ff, config.n_layers
    expert = 2 * d * d_ff + d_ff + d
    assert counted.feed_forward == n_layers * (7 * expert + 6 * d)  # six to choose from, one shared, and the router
    assert counted.total == sum(p.numel() for p in build_model(config, VOCAB_SIZE).parameters())
    assert counted.active == counted.total - n_layers * 4 * expert


def test_flops_of_experts_are_those_of_a_real_pass_whoever_is_asked():
    config = tiny_config(feed_forward=MOE, context_length=16, attention="explicit")
    model = build_model(config, VOCAB_SIZE)
    counted = cost_of(config, VOCAB_SIZE)
    assert counted == count_cost(model)
    d, d_ff = config.d_model, config.d_ff
    assert counted.forward_flops_per_token.feed_forward == config.n_layers * 2 * (3 * 2 * d * d_ff + 6 * d)
    for seed in range(3):
        tokens = torch.randint(VOCAB_SIZE, (1, 16), generator=torch.Generator().manual_seed(seed))
        with FlopCounterMode(display=False) as counter:
            model(tokens).sum().backward()
        assert counter.get_total_flops() == 16 * counted.training_flops_per_token.total
