"""A place that is knocked out gives nothing, one that is patched gives what it gave elsewhere, and all else goes on."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.model_axes import build_away_from_zero, float64, tiny_config, tiny_configs
from pellucid.errors import ConfigError
from pellucid.inspection.interventions import place_name, places_of
from pellucid.inspection.trace import trace

IDS, OTHER_IDS = [3, 1, 4, 1, 5], [9, 2, 6, 5, 3]
EXPERTS = {"type": "moe", "n_experts": 3, "top_k": 2, "shared_experts": 1}


def in_float64(**choices):
    with float64():
        return build_away_from_zero(tiny_config(**choices)).eval()


def with_silent_weights(model, place):
    """The model in which the matrices that write the output of a place are zero: knocked out without any hook."""
    model = copy.deepcopy(model)
    kind, layer, *head = place
    sublayer = getattr(model.blocks[layer], "attention" if kind == "head" else kind).sublayer
    with torch.no_grad():
        if head:
            start = head[0] * sublayer.head_width
            sublayer.W_O.weight[:, start : start + sublayer.head_width] = 0
        else:
            for name, parameter in sublayer.named_parameters():
                if name.split(".")[-2] in ("W_O", "W_2"):
                    parameter.zero_()
    return model


@given(tiny_configs | st.just(tiny_config(feed_forward=EXPERTS, n_kv_heads=1)), st.data())
@settings(max_examples=40)
def test_a_place_that_is_knocked_out_is_one_whose_last_matrix_is_zero(config, data):
    with float64():
        model = build_away_from_zero(config).eval()
    place = data.draw(st.sampled_from(places_of(model)))
    silent = with_silent_weights(model, place)(torch.tensor([IDS]))[0]
    torch.testing.assert_close(trace(model, IDS, knock_out=[place]).logits[-1], silent, rtol=0, atol=1e-9)


def test_several_places_can_be_knocked_out_and_what_is_left_is_the_embedding():
    model = in_float64()
    silent = trace(model, IDS, knock_out=[(kind, layer) for kind in ("attention", "feed_forward") for layer in (0, 1)])
    for x_TD in silent.residuals:
        torch.testing.assert_close(x_TD, silent.residuals[0], rtol=0, atol=0)
    assert not silent.outputs.any()


@given(tiny_configs, st.data())
@settings(max_examples=30)
def test_a_patch_from_the_same_text_changes_nothing_and_one_from_another_gives_what_was_given_there(config, data):
    with float64():
        model = build_away_from_zero(config).eval()
    place = data.draw(st.sampled_from(places_of(model)))
    here, there = trace(model, IDS), trace(model, OTHER_IDS)
    same, patched = trace(model, IDS, patch={place: here}), trace(model, IDS, patch={place: there})
    torch.testing.assert_close(same.logits, here.logits, rtol=0, atol=1e-9)
    torch.testing.assert_close(patched.output_of(place), there.output_of(place), rtol=0, atol=0)


def test_what_was_computed_before_the_patch_stays_as_it_was():
    model = in_float64()
    here, there = trace(model, IDS), trace(model, OTHER_IDS)
    patched = trace(model, IDS, patch={("feed_forward", 0): there})
    torch.testing.assert_close(patched.residuals[:2], here.residuals[:2], rtol=0, atol=0)
    assert (patched.residuals[2:] != here.residuals[2:]).any(dim=-1).all()


def test_all_heads_patched_are_the_attention_patched_and_all_sublayers_give_the_other_stream():
    model = in_float64(norm_placement="pre")
    here, there = trace(model, IDS), trace(model, OTHER_IDS)
    of_heads, whole = ({("head", 1, head): there for head in (0, 1)}, {("attention", 1): there})
    logits = [trace(model, IDS, patch=patch).logits[-1] for patch in (of_heads, whole)]
    torch.testing.assert_close(*logits, rtol=0, atol=1e-9)

    patch = {(kind, layer): there for kind in ("attention", "feed_forward") for layer in (0, 1)}
    added = trace(model, IDS, patch=patch).residuals - here.residuals[0]
    torch.testing.assert_close(added, there.residuals - there.residuals[0], rtol=0, atol=1e-9)


def test_a_place_that_is_not_there_is_one_clear_line_and_a_patch_must_fit():
    model = in_float64()
    for place in (("head", 1, 2), ("head", 2, 0), ("head", -1, 0), ("heads", 0, 0), ("attention", 2)):
        for changes in ({"knock_out": [place]}, {"patch": {place: trace(model, IDS)}}):
            with pytest.raises(ConfigError, match=r"has no place .*; use \('head', LAYER, HEAD\) up to .*1, 1"):
                trace(model, IDS, **changes)
    with pytest.raises(ConfigError, match="patch: the other text has 2 tokens, this one 5; choose texts of as many"):
        trace(model, IDS, patch={("head", 0, 0): trace(model, [1, 2])})
    for place, shape in [(("attention", 0), {"d_model": 16}), (("feed_forward", 1), {"n_layers": 1})]:
        with pytest.raises(ConfigError, match="patch: the other trace is of a model of another shape"):
            trace(model, IDS, patch={place: trace(in_float64(**shape), IDS)})
    with pytest.raises(ConfigError, match="patch: .* is knocked out, too"):
        trace(model, IDS, knock_out=[("attention", 0)], patch={("attention", 0): trace(model, OTHER_IDS)})


def test_places_are_in_the_order_of_the_data_and_have_names():
    names = list(map(place_name, places_of(in_float64())))
    first = ["head 0.0", "head 0.1", "attention 0", "feed_forward 0"]
    assert names == first + [name.replace(" 0", " 1") for name in first]
