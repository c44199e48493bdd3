"""The shipped config of each language trains, in a shrunken form; and what a model believes is read from it."""

import random
from pathlib import Path

import draw_beliefs
import numpy as np
import pytest

import in_this_process
from pellucid.api import load
from pellucid.languages.hidden import Hidden, mess3

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs/languages").glob("*.yaml"))
SMALL = {
    "corpus": {"size": 60, "validation_fraction": 0.05},
    "train": {"steps": 2, "batch_size": 2},
    "schedule": {"warmup_steps": 0},
    "evaluation": {"every_steps": 2, "max_tokens": 400},
}


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
    if config.stem == "hidden":
        monkeypatch.setattr(draw_beliefs, "N_DOCUMENTS", 4)
        monkeypatch.setattr("sys.argv", ["draw_beliefs", str(run), "beliefs.png"])
        draw_beliefs.main()
        assert Path("beliefs.png").stat().st_size > 1000


def test_a_linear_map_reads_beliefs_that_are_there_and_none_that_are_not(monkeypatch):
    language, rng = Hidden(mess3(0.05, 0.85), length=30), np.random.default_rng(0)
    texts = [language.write(random.Random(n)) for n in range(40)]
    there = rng.normal(size=(3, 8))

    def layers(model, tokenizer, texts):
        for text in texts:
            beliefs = np.array(language.beliefs(text))
            yield [beliefs @ there, rng.normal(size=(len(beliefs), 8))]

    monkeypatch.setattr(draw_beliefs, "layers_of_texts", layers)

    class Nothing:
        model = tokenizer = None

    in_all, in_none = draw_beliefs.read_beliefs(Nothing, language, texts).explained
    assert in_all == pytest.approx(1)
    assert abs(in_none) < 0.1
