"""The shipped configs are found by name from anywhere, but never in place of a file that is there; and each builds."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.adapters.build import adapt
from pellucid.config.experiment import load_experiment
from pellucid.config.load import load_run_config
from pellucid.config.run import RunConfig
from pellucid.config.shipped import SHIPPED, find_config, shipped_configs
from pellucid.errors import ConfigError
from pellucid.model.build import build_model
from pellucid.model.language_model import LanguageModel
from pellucid.runtime.precision import resolve_precision
from pellucid.training.optimizers import build_optimizers
from pellucid.training.schedules import build_schedule

RUNS = sorted([*SHIPPED.glob("*.yaml"), *SHIPPED.glob("languages/*.yaml")])


@pytest.mark.parametrize("name", ["debug", "debug.yaml", "configs/debug.yaml"])
def test_a_shipped_config_is_found_by_name_even_beside_a_folder_of_its_name(tmp_path: Path, monkeypatch, name):
    (tmp_path / "debug").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_config(Path(name)) == SHIPPED / "debug.yaml"


@pytest.mark.parametrize("name", ["schema.json", "schema", "experiments", ".", "../README.md", "/debug", "mine.yaml"])
def test_nothing_but_a_config_is_found_and_a_file_that_is_there_comes_first(tmp_path: Path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("name: mine")
    assert find_config(Path(name)) == Path(name)


def test_a_slip_in_the_name_of_a_shipped_config_is_answered_with_the_nearest():
    slips = dict.fromkeys(("debgu", "Debug", "debug.yml", "configs/debug.yml"), "debug")
    for slip, meant in {**slips, "chains": "languages/chains", "hops": "languages/hops"}.items():
        with pytest.raises(ConfigError, match=rf"no such file; did you mean '{meant}'\?"):
            load_run_config(Path(slip))


def test_each_shipped_config_is_listed_and_tells_editors_its_schema():
    listed = dict(shipped_configs())
    files = {path: path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.yaml")}
    assert listed.keys() == {name for name in files.values() if not name.startswith("tours/")}
    assert all(len(purpose) > 20 for purpose in listed.values())
    for path, name in files.items():
        kind = {"experiments": "experiment_", "tours": "tour_"}.get(path.parent.name, "")
        schema = f"{'../' * name.count('/')}{kind}schema.json"
        assert path.read_text().startswith(f"# yaml-language-server: $schema={schema}\n"), name
        if kind == "experiment_":
            assert load_experiment(Path(name)).config.name == path.stem


@pytest.mark.parametrize(("kind", "prefix"), [("run", ""), ("experiment", "experiment_"), ("tour", "tour_")])
def test_a_schema_file_is_what_the_schema_command_prints(kind, prefix, pellucid):
    file = SHIPPED / f"{prefix}schema.json"
    printed = json.loads(pellucid("schema", kind).stdout)
    assert json.loads(file.read_text()) == printed, f"write it again: pellucid schema {kind} > configs/{file.name}"


def without_memory(config: RunConfig, vocab_size: int = 65) -> LanguageModel:
    with torch.device("meta"):
        return build_model(config.model, vocab_size=getattr(config.tokenizer, "vocab_size", vocab_size))


def n_parameters(name: str, vocab_size: int = 66) -> int:
    return sum(parameter.numel() for parameter in without_memory(load_run_config(Path(name)), vocab_size).parameters())


@pytest.mark.usefixtures("trained_before")
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_shipped_run_optimizes_each_of_its_parameters_and_schedules_each_of_its_steps(path: Path):
    config = load_run_config(path)
    assert config.name == path.stem
    model = without_memory(config)
    adapt(model, config.quantization, config.adapter)
    optimizers = build_optimizers(config.optimizer, model, resolve_precision("cpu", "fp32"))
    optimized = [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]
    assert set(map(id, optimized)) == {id(each) for each in model.parameters() if each.requires_grad}
    assert len(optimized) == len(set(map(id, optimized)))
    schedule = build_schedule(config.schedule, config.train.steps)
    assert all(0 <= schedule(step) <= 1 for step in range(0, config.train.steps, 7))


def test_the_lecture_notes_read_what_the_demo_reads_at_its_size():
    notes, demo = (load_run_config(Path(name)) for name in ("lecture_notes", "fables"))
    for section in ("seed", "corpus", "tokenizer", "data", "evaluation"):
        assert getattr(notes, section) == getattr(demo, section)
    assert (notes.train.steps, notes.train.batch_size) == (demo.train.steps, demo.train.batch_size)
    for size in ("context_length", "d_model", "n_layers", "n_heads"):
        assert getattr(notes.model, size) == getattr(demo.model, size)


@pytest.mark.parametrize(
    ("name", "most_parameters", "context_length", "target"),
    [
        ("shakespeare_char", 810_000, 64, None),
        ("speedrun_shakespeare", 105_000, 64, 1.8857),
        ("speedrun_shakespeare_gpu", 10_700_000, 256, 1.4697),
        ("speedrun_shakespeare_cores", 3_200_000, 256, 1.4697),
    ],
)
def test_runs_on_shakespeare_are_as_small_as_the_comparison_demands(name, most_parameters, context_length, target):
    config = load_run_config(Path(name))
    assert n_parameters(name) <= most_parameters
    assert config.model.context_length == context_length
    assert config.evaluation.stop_at_val_loss == target
    assert target is None or config.evaluation.max_tokens is None, "a speedrun is judged on all of the text"


def test_gpt2_124m_has_gpt2s_number_of_parameters():
    assert n_parameters("gpt2_124m") == pytest.approx(124.4e6, rel=0.001)


def test_own_text_is_safe_for_a_short_text():
    config = load_run_config(Path("own_text"), ["corpus.files=[a.txt, b.txt]"])
    assert config.model.dropout > 0
    assert config.optimizer.weight_decay > 0
    assert config.evaluation.early_stopping_patience is not None
    schedule = build_schedule(config.schedule, config.train.steps)
    assert schedule(config.train.steps // 2) < 0.6  # early stopping leaves a learning rate that has fallen
