"""What is shown and measured of a run whose rules were edited after it was trained: never the truth of the new ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from own_rules import OWN_RUN, write_rules
from pellucid.config.load import load_run_config
from pellucid.errors import CheckpointError, DataError
from pellucid.inspection.build import embed_run, explain_run, heads_of_run, knock_out_run
from pellucid.inspection.explain import NO_TRUTH
from pellucid.model.build import build_model
from pellucid.recipe import prepare_data
from pellucid.trained import TrainedModel

CHANGED = "run own: its corpus has changed since training"


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainedModel:
    monkeypatch.chdir(tmp_path)
    write_rules(1)
    Path("own.yaml").write_text(OWN_RUN)
    config = load_run_config(Path("own.yaml"))
    data = prepare_data(config, Path("data"))
    torch.manual_seed(0)
    model = build_model(config.model, data.tokenizer.vocab_size).eval()
    return TrainedModel(config, data.tokenizer, model, 0, data.fingerprint)


def test_a_prompt_is_explained_without_a_truth_and_a_note_says_why(trained):
    def explained():
        return explain_run(trained, "ant bee", number=1, n_candidates=3)

    assert explained().has_truth
    write_rules(3)
    changed = explained()
    assert not changed.has_truth
    assert changed.notes[0].startswith(f"the truth is not shown: {CHANGED}; bring back ")
    assert NO_TRUTH not in changed.notes
    assert [row.model_nats for row in changed.rows] == [row.model_nats for row in explained().rows]
    Path("own.rules").unlink()
    assert explained().notes[0].startswith("the truth is not shown: own.rules: ")
    write_rules(1)
    assert explained().has_truth


@pytest.mark.parametrize(
    "look",
    [
        lambda trained: explain_run(trained, None, number=1, n_candidates=3),
        lambda trained: embed_run(trained, None, layer="last", pooling="mean", most=3),
        lambda trained: heads_of_run(trained, n_documents=2),
        lambda trained: knock_out_run(trained, None, n_documents=2),
    ],
    ids=["explain", "embed", "heads", "knock_out"],
)
def test_what_needs_the_corpus_is_refused(trained, look: Callable[[TrainedModel], object]):
    look(trained)
    write_rules(3)
    with pytest.raises(CheckpointError, match=CHANGED):
        look(trained)
    Path("own.rules").unlink()
    with pytest.raises(DataError, match=r"own\.rules"):
        look(trained)
