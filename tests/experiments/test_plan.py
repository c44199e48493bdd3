"""The plan of an experiment: which runs it has, what their configs are, and what is said of one that cannot be."""

import sys
from pathlib import Path

import pytest

from pellucid.config.load import load_run_config
from pellucid.errors import ConfigError
from pellucid.experiments.plan import Plan, PlannedRun, plan_experiment

GRID = """\
name: depth
question: Deep or wide?
base: base.yaml
set:
  train.batch_size: 3
grid:
  model.n_layers: [1, 2, 3]
  model.position: [{type: rope, base: 100.0}, {type: none}]
seeds: [7, 8]
"""

RUNS = """\
name: compare
question: Which?
base: base.yaml
runs:
  - {label: as it is}
  - {label: "SGD, fast", set: {optimizer: {type: sgd, lr: 0.5}, train.steps: 9}}
  - {label: slower, set: {optimizer.lr: 1e-3}}
"""


def plan(text: str, *overrides: str) -> Plan:
    Path("x.yaml").write_text(text)
    return plan_experiment(Path("x.yaml"), overrides)


def error_of(text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(text, *overrides)
    return str(caught.value)


def test_a_grid_is_every_value_with_every_other_and_every_seed(place):
    runs = plan(GRID).runs
    points = [(n_layers, position, seed) for n_layers in (1, 2, 3) for position in ("rope", "none") for seed in (7, 8)]
    assert [(run.config.model.n_layers, run.config.model.position.type, run.config.seed) for run in runs] == points
    assert [run.label for run in runs] == [f"n_layers={n_layers}, position={kind}" for n_layers, kind, _ in points]


def test_two_keys_that_end_alike_are_named_in_full(place):
    text = GRID.replace("model.position: [{type: rope, base: 100.0}, {type: none}]", "optimizer.lr: [0.1]")
    assert plan(text).runs[0].label == "n_layers=1, lr=0.1"
    text = text.replace("model.n_layers: [1, 2, 3]", "optimizer.type: [sgd]\n  schedule.type: [constant]")
    assert plan(text).runs[0].label == "optimizer.type=sgd, schedule.type=constant, lr=0.1"


def test_every_run_is_the_base_config_but_for_what_the_experiment_changes(place):
    run = plan(GRID).runs[2]
    expected = load_run_config(
        Path("base.yaml"),
        ["train.batch_size=3", "model.n_layers=1", "model.position={type: none}", "seed=7", f"name={run.config.name}"],
    )
    assert run.config == expected


def test_a_list_of_runs_tells_every_varied_key_of_every_run_also_where_it_is_silent(place):
    base, sgd, slower = plan(RUNS).runs
    assert (base.label, sgd.label, slower.label) == ("as it is", "SGD, fast", "slower")
    assert (sgd.config.optimizer.type, sgd.config.optimizer.lr, sgd.config.train.steps) == ("sgd", 0.5, 9)
    assert base.overrides["optimizer.lr"] == 1e-2
    assert slower.overrides["optimizer.lr"] == 1e-3
    assert sgd.overrides == {"optimizer": {"type": "sgd", "lr": 0.5}, "train.steps": 9, "optimizer.lr": 0.5}
    assert base.overrides["train.steps"] == 4


def test_the_command_line_has_the_last_word_in_every_run(place):
    runs = plan(RUNS, "train.steps=3", "model={context_length: 32, d_model: 4, n_layers: 2, n_heads: 1}").runs
    assert {run.config.train.steps for run in runs} == {3}
    assert {run.config.model.d_model for run in runs} == {4}
    assert [run.overrides["train.steps"] for run in runs] == [3, 3, 3]


def test_an_override_inside_of_a_section_of_the_grid_changes_its_own_run_only(place):
    text = GRID.replace(", {type: none}", "")
    assert {run.config.model.position.base for run in plan(text, "model.position.base=5.0").runs} == {5.0}
    assert {run.config.model.position.base for run in plan(text).runs} == {100.0}


def test_no_two_runs_share_a_folder_and_a_changed_run_gets_another(place):
    folders = [run.directory(Path("e")) for run in plan(GRID).runs]
    assert len(set(folders)) == 12
    assert folders[0].parent == Path("e/runs")
    assert folders[0].name.startswith("n_layers-1-position-rope-seed7-")
    assert not {run.directory(Path("e")) for run in plan(GRID, "train.steps=5").runs} & set(folders)
    assert [run.directory(Path("e")) for run in plan(GRID).runs] == folders


def test_a_label_of_any_signs_makes_a_safe_folder_and_name(place):
    text = RUNS.replace("as it is", "../é → /").replace("slower", "§§§")
    runs = plan(text).runs
    assert [run.config.name for run in runs] == ["run-seed0", "SGD-fast-seed0", "run-seed0"]
    assert all(run.directory(Path("e")).parent == Path("e/runs") for run in runs)
    assert len({run.directory(Path("e")) for run in runs}) == 3


def test_a_planned_run_survives_its_file(place):
    for run in (*plan(GRID).runs, *plan(RUNS).runs):
        assert PlannedRun.model_validate_json(run.model_dump_json()) == run


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("train.batch_size: 3", "train.batch_sise: 3", "x.yaml:5: set: train.batch_sise: unknown key; did you mean"),
        ("[1, 2, 3]", "\n    - 1\n    - 0", "x.yaml:9: grid: model.n_layers: 0 is out of range"),
        ("train.batch_size: 3", "seed: 3", "x.yaml:5: set: the seed of each run is the experiment's to set; list them"),
        ("model.n_layers: [1, 2, 3]", "name: [a, b]", "x.yaml:7: grid: the name of each run is the experiment's"),
        (
            "seeds: [7, 8]",
            "figures: [{type: curves, title: Curves, only: [n_layers=9]}]",
            "experiment depth: figure 'Curves': `only` names 'n_layers=9', which is no variant; choose from 'n_l",
        ),
        (
            "seeds: [7, 8]",
            "measures: {answers: 10}",
            "measures.answers: fables asks no questions whose answers could be judged; ",
        ),
        (
            "seeds: [7, 8]",
            "measures: {texts: {deeper: {corpus.depht: 9}}}",
            "x.yaml:9: measures: corpus.depht: unknown key",
        ),
        (
            "seeds: [7, 8]",
            "measures: {texts: {longer: {model.context_length: 9}}}",
            "measures.texts.longer: other texts differ in keys of the corpus; change no key but those of corpus",
        ),
        (
            "seeds: [7, 8]",
            "measures: {texts: {other: {corpus: {type: text, files: [corpus.txt]}}}}",
            "measures.texts.other: of corpus.type text, no texts with a known truth can be drawn; leave it out",
        ),
        ("train.batch_size: 3", "schedule.warmup_steps: 5", "x.yaml:5: set: schedule.warmup_steps: 5 is longer than"),
        (
            "[7, 8]",
            "[7, 7]",
            "experiment depth: 'n_layers=1, position=rope' and 'n_layers=1, position=rope' with seed 7",
        ),
        ("{type: none}", "{type: rope}", "experiment depth: two different runs are called 'n_layers=1, position=rope'"),
    ],
)
def test_a_run_that_cannot_be_is_answered_with_the_line_that_asks_for_it(place, before, after, message):
    assert error_of(GRID.replace(before, after)).startswith(message)


def test_a_wrong_key_in_a_list_of_runs_is_found_where_it_stands(place):
    message = "x.yaml:7: runs: optimizer.lrr: unknown key; did you mean 'lr'?"
    assert error_of(RUNS.replace("optimizer.lr: 1e-3", "optimizer.lrr: 1e-3")) == message


def test_runs_without_a_loss_of_text_are_refused_before_one_is_trained(place):
    changes = ["corpus={type: preferences, files: [x.jsonl]}", "objective={type: reward_model}"]
    what = "an experiment compares losses of text, and reward_model on preferences has none"
    fix = "use next_token, sft or distill; or dpo, grpo or ppo with corpus.type instructions"
    assert error_of(RUNS, *changes) == f"objective.type: {what}; {fix}"


def test_without_the_packages_of_the_lab_an_experiment_says_what_to_install(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert error_of(GRID) == "experiment: pandas must be installed; pip install 'pellucid[lab]'"
