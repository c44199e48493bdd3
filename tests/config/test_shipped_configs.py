"""Every config that we ship loads, names the schema, and builds."""

import json
from pathlib import Path

import pytest
import torch

from pellucid.adapters.build import adapt
from pellucid.config.load import load_run_config
from pellucid.model.build import build_model
from pellucid.runtime.precision import resolve_precision
from pellucid.training.optimizers import build_optimizers
from pellucid.training.schedules import build_schedule

CONFIGS = Path(__file__).parents[2] / "configs"
SHIPPED = sorted([*CONFIGS.glob("*.yaml"), *CONFIGS.glob("languages/*.yaml")])

pytestmark = pytest.mark.usefixtures("trained_before")


def test_the_configs_that_the_readme_names_are_there():
    names = {"debug", "fables", "lecture_notes", "own_text", "shakespeare_char", "speedrun_shakespeare", "tinystories"}
    names |= {"gpt2_124m"}
    assert names <= {path.stem for path in SHIPPED}


def test_the_lecture_notes_read_what_the_demo_reads_at_its_size():
    notes, demo = (load_run_config(CONFIGS / f"{name}.yaml") for name in ("lecture_notes", "fables"))
    for section in ("seed", "corpus", "tokenizer", "data", "evaluation"):
        assert getattr(notes, section) == getattr(demo, section)
    assert (notes.train.steps, notes.train.batch_size) == (demo.train.steps, demo.train.batch_size)
    for size in ("context_length", "d_model", "n_layers", "n_heads"):
        assert getattr(notes.model, size) == getattr(demo.model, size)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_builds_without_memory_and_schedules_every_step(path: Path):
    config = load_run_config(path)
    assert config.name == path.stem
    with torch.device("meta"):
        model = build_model(config.model, vocab_size=getattr(config.tokenizer, "vocab_size", 65))
        adapt(model, config)
    n_parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    in_optimizers = [
        parameter
        for optimizer in build_optimizers(config.optimizer, model, resolve_precision("cpu", "fp32"))
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert sum(parameter.numel() for parameter in in_optimizers) == n_parameters
    schedule = build_schedule(config.schedule, config.train.steps)
    assert all(0 <= schedule(step) <= 1 for step in range(config.train.steps))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_tells_editors_its_schema(path: Path):
    schema = "schema.json" if path.parent == CONFIGS else "../schema.json"
    assert path.read_text().startswith(f"# yaml-language-server: $schema={schema}\n")


@pytest.mark.parametrize(("kind", "prefix"), [("run", ""), ("experiment", "experiment_"), ("tour", "tour_")])
def test_a_schema_file_is_what_the_schema_command_prints(kind, prefix, pellucid):
    file = CONFIGS / f"{prefix}schema.json"
    printed = json.loads(pellucid("schema", kind).stdout)
    assert json.loads(file.read_text()) == printed, f"write it again: pellucid schema {kind} > configs/{file.name}"


def test_shakespeare_char_is_as_small_as_the_comparison_demands():
    config = load_run_config(CONFIGS / "shakespeare_char.yaml")
    with torch.device("meta"):
        model = build_model(config.model, vocab_size=66)
    assert sum(parameter.numel() for parameter in model.parameters()) <= 810_000
    assert (config.model.n_layers, config.model.n_heads, config.model.d_model) == (4, 4, 128)
    assert config.model.context_length == 64


@pytest.mark.parametrize(
    ("name", "most_parameters", "context_length", "target"),
    [("speedrun_shakespeare", 810_000, 64, 1.8857), ("speedrun_shakespeare_gpu", 10_700_000, 256, 1.4697)],
)
def test_the_speedruns_are_as_small_as_the_comparison_demands_and_judged_on_all_of_the_text(
    name, most_parameters, context_length, target
):
    config = load_run_config(CONFIGS / f"{name}.yaml")
    with torch.device("meta"):
        model = build_model(config.model, vocab_size=66)
    assert sum(parameter.numel() for parameter in model.parameters()) <= most_parameters
    assert config.model.context_length == context_length
    assert config.evaluation.stop_at_val_loss == target
    assert config.evaluation.max_tokens is None


def test_own_text_is_safe_for_a_short_text():
    config = load_run_config(CONFIGS / "own_text.yaml", ["corpus.files=[a.txt, b.txt]"])
    assert config.model.dropout > 0
    assert config.optimizer.weight_decay > 0
    assert config.evaluation.early_stopping_patience is not None
    schedule = build_schedule(config.schedule, config.train.steps)
    assert schedule(config.train.steps // 2) < 0.6  # early stopping leaves a learning rate that has fallen


def test_gpt2_124m_has_gpt2s_number_of_parameters():
    config = load_run_config(CONFIGS / "gpt2_124m.yaml")
    with torch.device("meta"):
        model = build_model(config.model, vocab_size=config.tokenizer.vocab_size)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(124.4e6, rel=0.001)
