"""`pellucid heads`: as a table, as JSON, and for runs of which less is known."""

import json

import pytest

import pellucid as library

FABLES_RUN = """
name: heads
corpus: {type: fables, size: 20, world_size: 3, validation_fraction: 0.2}
tokenizer: {type: bpe, vocab_size: 600}
model: {context_length: 400, d_model: 8, n_layers: 1, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant, warmup_steps: 2}
train: {steps: 3, batch_size: 2, precision: fp32, device: cpu}
data: {packing: documents}
evaluation: {every_steps: 3}
"""

BIGRAM = {"type": "bigram", "context_length": 32}


@pytest.fixture
def trained(workplace):
    (workplace / "heads.yaml").write_text(FABLES_RUN)
    return library.train("heads.yaml", "run", data_dir="data")


def test_heads_of_a_run_on_fables_are_measured_by_skill(trained, pellucid):
    result = pellucid("heads", "run", "--fables", "3", "--json")
    assert result.exit_code == 0
    figures = json.loads(result.stdout)
    assert (figures["run"], figures["step"]) == ("heads", 3)
    assert [(head["layer"], head["head"]) for head in figures["scores"]] == [(0, 0), (0, 1)]
    assert figures["attribution"]["fables"] == 3
    assert {"agreement", "recall", "fact"} <= set(figures["attribution"]["evenly"])
    same = trained.heads(fables=3)
    assert figures["attribution"] == json.loads(json.dumps(same.attribution.to_json()))
    assert pellucid("heads", "run", "--fables", "3").stdout == same.table() + "\n"

    [row] = trained.knock_out([("head", 0, 1)], fables=3).rows
    assert row == same.attribution.heads[1].costs

    groups = ([("head", 0, 1)], [("attention", 0)])
    together = trained.knock_out(*groups).rows
    assert together == [row for group in groups for row in trained.knock_out(group).rows]


def test_where_no_grammar_knows_the_text_only_the_scores_are_shown(tiny_place, pellucid):
    run = library.load(tiny_place / "base")
    result = pellucid("heads", tiny_place / "base")
    assert result.exit_code == 0
    assert "unclassified" in result.stdout
    assert "what heads do" not in result.stdout
    assert run.heads().attribution is None
    with pytest.raises(library.errors.ConfigError, match="knock_out: of text it is not known which skills"):
        run.knock_out()


def test_a_model_without_heads_is_one_clear_line(workplace, pellucid):
    library.train("tiny.yaml", "run", steps=2, data_dir="data", overrides={"model": BIGRAM})
    result = pellucid("heads", "run")
    assert result.exit_code == 2
    what = "this kind of model has no attention heads and no residual stream"
    assert result.stderr == f"error: heads: {what}; take a run of model.type decoder\n"
