from pathlib import Path

import pytest

from pellucid.config.load import load_run_config
from pellucid.data.build import build_batches, prepare_data
from tiny_run import TINY_RUN


def test_the_config_decides_tokens_and_batches(workplace):
    config = load_run_config(Path("tiny.yaml"), [])
    data = prepare_data(config, Path("data"))
    assert data.directory == Path("data") / f"text-{data.fingerprint}"
    assert data.tokenizer.vocab_size == 300 == data.manifest.vocab_size
    assert data.train.end_of_text == data.validation.end_of_text == data.tokenizer.end_of_text
    assert data.truth is data.validation_floor_nats_per_token is None
    text = (workplace / "corpus.txt").read_text()
    assert len(data.train.boundaries) - 1 + len(data.validation.boundaries) - 1 == len(text.split("\n\n"))
    batch = build_batches(config, data).batch(0)
    assert batch.inputs_BT.shape == batch.targets_BT.shape
    assert len(batch.inputs_BT) == 2
    assert batch.inputs_BT.size(1) <= 32, "as wide as its longest row"
    assert set(batch.inputs_BT[:, 0].tolist()) == {data.tokenizer.end_of_text}, "each row starts at a document"


@pytest.mark.parametrize("override", ["tokenizer={type: char}", "tokenizer.vocab_size=290", "corpus.separator=null"])
def test_another_corpus_or_tokenizer_is_prepared_apart(workplace, override):
    first, second = (
        prepare_data(load_run_config(Path("tiny.yaml"), overrides), Path("data")).directory
        for overrides in ([], [override])
    )
    assert first != second
    assert "vocab_size: 300" in TINY_RUN


@pytest.mark.parametrize(
    "override", ["model.context_length=16", "train.batch_size=3", "data.packing=contiguous", "seed=7"]
)
def test_what_changes_no_token_is_not_prepared_again(workplace, override):
    first, second = (
        prepare_data(load_run_config(Path("tiny.yaml"), overrides), Path("data")).directory
        for overrides in ([], [override])
    )
    assert first == second
