"""The trained model in the package: `demo`, wherever Pellucid is installed."""

from pathlib import Path

import pytest
from scripts.results import read

import pellucid
from pellucid.checkpoint.step_directory import MODEL_FILE, load_tensors, read_state
from pellucid.cli.arguments import read_run
from pellucid.config.load import load_run_config
from pellucid.config.run import run_and_checkpoint
from pellucid.config.shipped import DEMO
from pellucid.corpora.build import build_corpus
from pellucid.errors import CheckpointError
from pellucid.evaluation.written import judge
from pellucid.files import sha256
from pellucid.languages.fables import Fables
from pellucid.runs import evaluate_run

MADE = read()["shipped_demo"]["figures"]


@pytest.fixture(scope="module")
def demo() -> pellucid.Run:
    return pellucid.load("demo")


def test_the_shipped_demo_is_the_one_that_was_recorded_and_small(demo):
    assert read_state(demo.directory).step == MADE["steps"]
    assert sha256(demo.directory / MODEL_FILE) == MADE["sha256"]
    assert sum(tensor.nbytes for tensor in load_tensors(demo.directory / MODEL_FILE).values()) < 1.5e6


def test_the_shipped_demo_is_a_run_with_a_config_and_a_curve_for_the_page(demo):
    assert load_run_config(DEMO / "config.yaml") == demo.config
    assert demo.metrics[-1]["step"] == demo.step
    assert demo.metrics[-1]["val_loss"] > demo.metrics[-1]["val_floor"]


def test_a_folder_named_demo_goes_before_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_run("demo") == DEMO
    assert run_and_checkpoint("demo") == (DEMO, "best")
    (tmp_path / "demo").mkdir()
    assert read_run("demo") == run_and_checkpoint("demo")[0] == Path("demo")


def test_the_shipped_demo_writes_whole_fables(demo):
    corpus = build_corpus(demo.config.corpus)
    assert isinstance(corpus.language, Fables)
    stories = [demo.generate(seed=seed, min_p=0.05, max_new_tokens=191) for seed in range(6)]
    assert judge(corpus.language, stories).whole >= 4 / 6, stories


def test_other_runs_can_start_from_the_shipped_demo():
    notes: list[str] = []
    config = load_run_config(Path("instructions_sft"), ["start_from=demo"], notes.append)
    assert Path(config.tokenizer.path).is_file()
    assert notes == [], "nobody can change how the demo was written"
    assert (config.model.d_model, config.model.n_layers) == (128, 2)


def test_other_runs_can_be_evaluated_on_the_text_of_the_shipped_demo(demo, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    prepared = []
    monkeypatch.setattr(evaluate_run, "data_of_run", lambda config, *_: prepared.append(config.corpus))
    with pytest.raises(CheckpointError, match="its corpus has changed"):
        demo.evaluate(on="demo")
    assert [corpus.type for corpus in prepared] == ["fables"]
