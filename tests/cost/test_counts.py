import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from model.model_axes import AXES, VOCAB_SIZE, combinations, tiny_config
from pellucid.cost.build import cost_of
from pellucid.cost.counts import Shape, count_cost
from pellucid.model.build import build_model

GPT_3 = Shape(
    vocab_size=50_257,
    context_length=2048,
    d_model=12_288,
    n_layers=96,
    n_heads=96,
    n_kv_heads=96,
    d_ff=4 * 12_288,
)


def part_of(name):
    """The part of the count that the model's parameter of this name belongs to."""
    if name.startswith("embeddings."):
        return name.removeprefix("embeddings.").removesuffix("_VD")
    if name.startswith("positions."):
        return "positions"
    if "norm." in name:
        return "norms"
    return "attention" if ".attention." in name else "feed_forward"


def counted_by_hand(model):
    count = dict.fromkeys(["embedding", "positions", "attention", "feed_forward", "norms", "unembedding"], 0)
    for name, parameter in model.named_parameters():
        count[part_of(name)] += parameter.numel()
    return {**count, "total": sum(parameter.numel() for parameter in model.parameters())}


def test_gpt_3_has_the_parameters_of_equation_12():
    counted = count_cost(GPT_3).parameters
    assert counted.embedding == counted.unembedding == 617_558_016
    assert counted.attention == 57_982_058_496 == 96 * 4 * 12_288**2
    assert counted.feed_forward == 115_964_116_992 == 96 * 8 * 12_288**2
    assert counted.positions == 0
    assert counted.total - counted.norms == 175_181_291_520


def test_every_combination_of_axes_has_as_many_parameters_as_counted():
    """Equation 12, part by part. Neither the way attention is computed nor the first values matter here."""
    for config in combinations(attention=["auto"], zero_init_projections=[False], n_layers=[1]):
        model = build_model(config, VOCAB_SIZE)
        assert vars(cost_of(config, VOCAB_SIZE).parameters) == counted_by_hand(model), config


sizes = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(1, 300),
        "context_length": st.integers(1, 50),
        "n_layers": st.integers(1, 4),
        "d_ff": st.none() | st.integers(1, 70),
        "half_head_width": st.integers(1, 9),
        "n_kv_heads": st.integers(1, 3),
        "heads_per_kv_head": st.integers(1, 3),
    }
)


@given(sizes, st.fixed_dictionaries({axis: st.sampled_from(values) for axis, values in AXES.items()}))
@settings(max_examples=60, deadline=None)
def test_every_size_has_as_many_parameters_as_counted(size, choices):
    n_heads = size["n_kv_heads"] * size["heads_per_kv_head"]
    config = tiny_config(
        **choices
        | {name: size[name] for name in ("context_length", "n_layers", "d_ff", "n_kv_heads")}
        | {"n_heads": n_heads, "d_model": n_heads * 2 * size["half_head_width"]}
    )
    with torch.device("meta"):
        model = build_model(config, size["vocab_size"])
    assert vars(cost_of(config, size["vocab_size"]).parameters) == counted_by_hand(model)


def test_flops_are_those_of_equation_13():
    """(d_k + d_v) n^2 and (d_k + d_v + d_ff) d n per layer are its terms; 2 and 4 are the factors it leaves out."""
    flops = count_cost(GPT_3).forward_flops_per_token
    n, d, d_k, d_v, d_ff = 2048, 12_288, 12_288, 12_288, 4 * 12_288
    assert n * flops.attention_pairs == 96 * 2 * (d_k + d_v) * n**2
    assert n * (flops.attention_projections + flops.feed_forward) == n * 96 * 4 * (d_k + d_v + d_ff) * d


def test_gpt_3_takes_six_flops_per_weight_and_token_to_train_besides_attention_pairs():
    """The rule of thumb 6 N (Kaplan et al. 2020), where N counts the weights that are factors of products."""
    cost = count_cost(GPT_3)
    n_factors = cost.parameters.total - cost.parameters.embedding - cost.parameters.norms
    assert cost.training_flops_per_token.total - cost.training_flops_per_token.attention_pairs == 6 * n_factors


def test_flops_are_those_that_torch_counts_forward_and_backward():
    for config in combinations(
        position=[{"type": "rope"}],
        norm=["layer_norm"],
        bias=[True],
        logit_soft_cap=[None],
        n_layers=[1],
        attention=["explicit"],
        zero_init_projections=[False],
    ):
        model = build_model(config, VOCAB_SIZE)
        tokens = torch.zeros(1, config.context_length, dtype=torch.long)
        counted = cost_of(config, VOCAB_SIZE)
        with FlopCounterMode(display=False) as counter:
            logits = model(tokens)
            assert counter.get_total_flops() == config.context_length * counted.forward_flops_per_token.total, config
            logits.sum().backward()
        assert counter.get_total_flops() == config.context_length * counted.training_flops_per_token.total, config
