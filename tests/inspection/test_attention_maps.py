"""Attention maps: the numbers of the trace, in a terminal and as JSON."""

import json

import numpy as np
import pytest
import torch

from model.model_axes import build_away_from_zero, tiny_config
from pellucid.errors import ConfigError
from pellucid.inspection.attention_maps import MAP_WIDTH, AttentionMaps, attention_maps, attention_table
from pellucid.inspection.trace import trace

PREVIOUS_TOKEN = np.eye(5, k=-1, dtype=np.float32)
PREVIOUS_TOKEN[0, 0] = 1


@pytest.fixture(scope="module")
def traced():
    return trace(build_away_from_zero(tiny_config()), [1, 2, 3, 4], ["<|endoftext|>", " the", "\n", "fox"])


def test_all_heads_are_in_the_json_and_their_rows_sum_to_one(traced):
    maps = json.loads(json.dumps(attention_maps(traced.texts, traced.attention).to_json()))
    assert maps["tokens"] == ["<|endoftext|>", "␣the", "⏎", "fox"]
    assert [(head["layer"], head["head"]) for head in maps["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in maps["heads"]:
        assert [len(row) for row in head["weights"]] == [1, 2, 3, 4]
        assert [sum(row) for row in head["weights"]] == pytest.approx([1] * 4, abs=1e-5)
    assert maps["heads"][3]["weights"][2] == pytest.approx(traced.attention[1, 1, 2, :3].tolist(), abs=1e-6)


def test_one_head_can_be_chosen_and_one_that_is_not_there_is_refused(traced):
    assert list(attention_maps(traced.texts, traced.attention, "1.0").weights) == ["1.0"]
    for absent in ("2.0", "0.2", "0", "first", ""):
        with pytest.raises(ConfigError, match="use all, or LAYER.HEAD from 0.0 to 1.1"):
            attention_maps(traced.texts, traced.attention, absent)


def test_only_weights_that_sum_to_one_are_shown():
    """Those of linear attention do, but where RoPE has turned it."""
    config = tiny_config(attention="linear", position={"type": "rope", "unrotated_last_layers": 1})
    traced = trace(build_away_from_zero(config), [1, 2, 3, 4])
    with pytest.raises(ConfigError, match=r"weights of head 0.0 do not sum to 1.*; ask for a head of a layer without"):
        attention_maps(traced.texts, traced.attention)
    torch.testing.assert_close(traced.attention[1].sum(-1), torch.ones(2, 4), rtol=0, atol=1e-4)
    assert list(attention_maps(traced.texts, traced.attention, "1.1").weights) == ["1.1"]


def test_the_table_of_heads_tells_a_head_that_looks_at_the_token_before():
    heads = {"0.0": PREVIOUS_TOKEN, "0.1": np.tril(np.full((5, 5), 0.2, dtype=np.float32))}
    row = attention_table(AttentionMaps(list("abcde"), heads)).splitlines()[2]
    assert row.split() == ["0.0", "0.0%", "100.0%", "0.0%", "0.0%", "d", "−1", "100%"]


def test_a_text_of_two_tokens_has_no_averages():
    heads = {f"0.{head}": np.tril(np.full((2, 2), 0.5, dtype=np.float32)) for head in (0, 1)}
    assert attention_table(AttentionMaps(["a", "b"], heads)).splitlines()[2].split()[:5] == ["0.0", "—", "—", "—", "—"]


def test_a_map_has_a_row_for_each_token_and_a_column_for_each_it_may_look_at():
    lines = attention_table(AttentionMaps(["one", "b", "c", "d", "e"], {"0.0": PREVIOUS_TOKEN})).splitlines()
    assert [line.split() for line in lines[1:4]] == [["o"], ["n"], list("ebcde")]
    assert [line.split() for line in lines[4:9]] == [
        ["one", "██"],
        ["b", "██··"],
        ["c", "··██··"],
        ["d", "····██··"],
        ["e", "······██··"],
    ]


def test_a_map_of_a_long_text_shows_its_end_and_fits_a_terminal():
    n = MAP_WIDTH + 30
    lines = attention_table(
        AttentionMaps([str(t) for t in range(n)], {"0.0": np.eye(n, dtype=np.float32)})
    ).splitlines()
    assert all(len(line) <= 100 for line in lines[1:])
    assert lines[-1] == f"(the last {MAP_WIDTH} tokens)"
    assert lines[-3].split()[0] == str(n - 1)
    assert lines[-3].endswith("·█")
