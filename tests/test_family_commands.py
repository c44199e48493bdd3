"""Every kind of model is trained, written with, scored, explained, counted and compared by the same commands."""

import json
from pathlib import Path

import pytest
import yaml

from experiments.conftest import BASE
from model.family import FAMILY
from pellucid.experiments.plan import plan_experiment
from pellucid.experiments.worker import make_run
from tiny_run import assert_one_error_line

NO_ATTENTION = ["bigram", "mlp", "lstm"]  # rnn and gru are lstm's siblings
ONE_OF_EACH_KIND = ["decoder", *NO_ATTENTION]


def config_of(name, **changes):
    """A run of four steps on a few fables."""
    config = yaml.safe_load(BASE)
    model = {**FAMILY[name], "context_length": 16}
    config["corpus"]["size"] = 20
    return {**config, "name": name.replace(" ", "-"), "model": model, **changes}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """One folder for all runs: they read the same fables, so these are prepared once."""
    return tmp_path_factory.mktemp("family")


@pytest.fixture
def write_config(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(place)

    def write(name, **changes):
        (place / "run.yaml").write_text(yaml.safe_dump(config_of(name, **changes)), encoding="utf-8")

    return write


@pytest.mark.parametrize("name", ["linear decoder", "decoder with experts", *NO_ATTENTION])
def test_each_kind_of_model_does_what_it_can_and_refuses_the_rest_in_one_line(name, write_config, pellucid):
    write_config(name)
    assert pellucid("train", "run.yaml", "--run-dir", "run", "--overwrite").exit_code == 0
    written = json.loads(pellucid("generate", "run", "--max-new-tokens", "40", "--greedy", "--json").stdout)
    assert written["samples"][0]["tokens"] > 0
    scores = json.loads(pellucid("evaluate", "run", "--json").stdout)
    assert scores["excess_nats_per_token"] > 0
    assert "truth" in pellucid("explain", "run", "--prompt", "This is the story of").stdout
    assert json.loads(pellucid("cost", "run.yaml", "--json").stdout)["memory_bytes"]["state"] >= 0
    assert pellucid("verify", "run").exit_code == 0
    if name in NO_ATTENTION:
        look, recompute = (
            ("explain", "run", "--prompt", "Once", "--attention", "all"),
            "train.gradient_checkpointing=true",
        )
        assert_one_error_line(pellucid(*look), 2, "this kind of model has no")
        assert_one_error_line(pellucid("train", "run.yaml", recompute), 2, f"the {name} has no")


def test_an_experiment_compares_all_types_of_models(write_config, pellucid):
    write_config("decoder")
    experiment = {
        "name": "kinds",
        "question": "Which is best?",
        "base": "run.yaml",
        "runs": [{"label": name, "set": {"model": config_of(name)["model"]}} for name in ONE_OF_EACH_KIND],
        "set": {"train.steps": 2},
        "figures": [
            {"type": "curves", "title": "Learning", "x": "flops"},
            {"type": "skills", "title": "Skills"},
            {"type": "lines", "title": "Compute", "x": "flops", "y": "excess", "log_x": True},
        ],
    }
    Path("kinds.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False), encoding="utf-8")
    forecast = pellucid("experiment", "kinds.yaml", "--dry-run")
    assert forecast.exit_code == 0
    assert all(name in forecast.stdout for name in ONE_OF_EACH_KIND)
    for run in plan_experiment(Path("kinds.yaml")).runs:  # in this process, which has imported PyTorch already
        make_run(run, run.directory(Path("checkpoints/experiments/kinds")), Path("data"))
    made = pellucid("experiment", "kinds.yaml", "--report", "report")
    assert made.exit_code == 0, made.stderr
    report = Path("report/report.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in report for name in ONE_OF_EACH_KIND)
