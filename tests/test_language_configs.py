"""The shipped config of each language trains, in a shrunken form."""

from pathlib import Path

import pytest
from measurements import beliefs

import in_this_process
from pellucid.api import load
from pellucid.config.languages import SumsConfig
from pellucid.config.load import load_run_config
from pellucid.corpora.build import build_corpus
from pellucid.errors import ConfigError

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs/languages").glob("*.yaml"))
SMALL = {
    "corpus": {"size": 60, "validation_fraction": 0.05},
    "train": {"steps": 2, "batch_size": 2},
    "schedule": {"warmup_steps": 0},
    "evaluation": {"every_steps": 2, "max_tokens": 400},
}


def test_a_document_may_fill_a_context_of_four_thousand_tokens_and_no_more():
    """Longer ones would take minutes to write, or to know."""
    most = [*((language, "length", 4096) for language in ("chains", "brackets", "hidden")), ("brackets", "depth", 2048)]
    most += [(language, "queries", 1024) for language in ("lookup", "hops")]
    for language, key, value in [*most, ("chains", "alpha", 1e6)]:
        load_run_config(Path(f"languages/{language}"), [f"corpus.{key}={value}"])
        with pytest.raises(ConfigError, match=f"corpus.{key}: "):
            load_run_config(Path(f"languages/{language}"), [f"corpus.{key}={2 * value}"])


def test_of_very_many_sums_all_are_held_out_and_some_are_scored(monkeypatch):
    config = SumsConfig(type="sums", digits=1, size=400)
    before = build_corpus(config)
    identity, held_out = before.identity, list(before.documents("validation"))
    monkeypatch.setattr("pellucid.corpora.sums.MOST_HELD_OUT", 10)
    corpus = build_corpus(config)
    assert list(corpus.documents("validation")) == held_out[:10]
    assert not set(corpus.documents("train")) & set(held_out)
    assert corpus.identity != identity


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("languages")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_language_trains_and_knows_its_floor(config, folder, monkeypatch):
    monkeypatch.chdir(folder)
    small = [f"{section}.{key}={value}" for section, keys in SMALL.items() for key, value in keys.items()]
    if config.stem == "weather":
        small.append(f"corpus.file={config.with_suffix('.rules')}")
    if config.stem == "sums":
        small.append("corpus.digits=1")
    in_this_process.pellucid(["train", str(config), *small])
    run = Path("checkpoints", config.stem)
    evaluation = load(run).evaluate()
    assert 0 < evaluation.floor_nats_per_token < evaluation.loss_nats_per_token
    if config.stem in ("hops", "sums"):
        answers = load(run).evaluate(answers=3, samples=2).answers
        assert [len(each.answers) for each in answers.answered] == [2, 2, 2]
    if config.stem == "hidden":
        monkeypatch.setattr(beliefs, "N_DOCUMENTS", 4)
        [measured] = beliefs.measure(run, pictures=folder)
        assert list(measured.figures)[:2] == ["embedding", "block 1"]
        assert Path("beliefs.png").stat().st_size > 1000
