"""Configs: what is accepted, and what a file or an override means."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pellucid.config.experiment import load_experiment
from pellucid.config.load import load_run_config, parse_run_config, run_config_to_yaml
from pellucid.config.model import RecurrentConfig
from pellucid.config.overrides import parse_override
from pellucid.config.run import run_and_checkpoint
from pellucid.config.yaml_source import parse_yaml, write_yaml
from pellucid.errors import ConfigError
from small_config import SMALL

AFTER_BASE = SMALL + "tokenizer: {type: bpe}\nstart_from: checkpoints/base\n"


def error_of(text: str = SMALL, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_run_config(text, "small.yaml", overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_config_is_frozen_and_written_out_reads_back_equal():
    config = parse_run_config(SMALL, "small.yaml")
    assert parse_run_config(run_config_to_yaml(config), "written") == config
    with pytest.raises(ValueError, match="frozen"):
        config.train.steps = 3


@settings(max_examples=40)
@given(
    st.floats(allow_nan=False)
    | st.integers(1 - 2**63, 2**63 - 1)
    | st.text()
    | st.from_regex(r"[-+]?[0-9_]*\.?[0-9]*([eE][-+]?[0-9]+)?", fullmatch=True)
)
@example("1e5")
@example("08")
@example("+.5")
@example("yes")
@example("null")
@example("12:30")
def test_every_value_survives_being_written_out_even_a_text_that_looks_like_a_number(value):
    written = write_yaml({"key": value})
    assert parse_yaml(written, "written") == ({"key": value}, {(): 1, ("key",): 1})


@pytest.mark.parametrize(
    ("override", "value"),
    [
        *(("seed=010", 10), ("seed=+7", 7), ("seed=1_000", 1000)),
        *((f"optimizer.lr={number}", 1e-4) for number in ("1e-4", "1.E-4", ".0001", "+1_0e-5")),
        *(("corpus.files=my.txt", ("my.txt",)), ("corpus.validation_files=my.txt", ("my.txt",))),
        ("model.bias=queries_keys_values", ("queries_keys_values",)),
        *((f"train.gradient_checkpointing={word}", word) for word in ("none", "attention", "cheap")),
        *(("train.gradient_checkpointing=true", "block"), ("train.gradient_checkpointing=false", "none")),
    ],
)
def test_a_value_is_read_as_it_was_meant(override, value):
    """A whole number is decimal whatever it begins with, a number needs no point, one of a list is a list of one."""
    text = SMALL.replace("{type: fables}", "{type: text, files: [b.txt]}") if "files" in override else SMALL
    section, _, key = override.partition("=")[0].rpartition(".")
    config = parse_run_config(text, "small.yaml", [override])
    assert getattr(getattr(config, section) if section else config, key) == value


def test_a_config_that_a_run_could_write_but_not_read_is_refused():
    short = f"corpus={{type: text, files: [{'a,' * 10_000}]}}"
    assert error_of(SMALL, short).startswith("small.yaml: more than 50,000 characters once it is written out; ")


def test_an_override_reaches_into_a_section_and_may_replace_a_whole_one():
    config = parse_run_config(
        SMALL,
        "small.yaml",
        ["train.steps=7", "schedule={type: constant}", "corpus={type: text, files: [a.txt]}"],
    )
    assert config.train.steps == 7
    assert config.schedule.type == "constant"
    assert config.corpus.files == ("a.txt",)


SWITCHED = SMALL.replace("n_heads: 2", "n_heads: 2\n  activation: swiglu\n  dropout: 0.1")


def test_another_type_keeps_the_keys_that_it_shares_and_says_which_it_leaves_out():
    notes: list[str] = []
    model = parse_run_config(SWITCHED, "small.yaml", ["model.type=lstm"], note=notes.append).model
    assert model == RecurrentConfig(type="lstm", context_length=64, d_model=64, n_layers=2, dropout=0.1)
    assert notes == ["model.type=lstm leaves out what another type has: n_heads, activation, position"]
    config = parse_run_config(SMALL, "small.yaml", ["model.position.type=none", "schedule.type=constant"])
    assert (config.model.position.type, config.schedule.warmup_steps) == ("none", 10)


def test_a_key_of_another_type_with_other_choices_is_left_out_too():
    """A decoder's activation may be swiglu, that of an MLP may not."""
    assert parse_run_config(SWITCHED, "small.yaml", ["model.type=mlp", "model.window=4"]).model.activation == "tanh"


def test_nothing_is_left_out_that_was_asked_for():
    for order in (["model.type=lstm", "model.n_heads=4"], ["model.n_heads=4", "model.type=lstm"]):
        assert "model.n_heads: lstm has no such key; " in error_of(SMALL, *order)


def test_the_same_type_again_and_an_unknown_one_leave_nothing_out():
    notes: list[str] = []
    parse_run_config(SMALL, "small.yaml", ["model.type=decoder"], note=notes.append)
    with pytest.raises(ConfigError, match="command line: model.type: 'lstn' is not a choice"):
        parse_run_config(SMALL, "small.yaml", ["model.type=lstn"], note=notes.append)
    assert notes == []


def test_quotes_that_a_shell_has_kept_are_told(tmp_path: Path):
    """cmd.exe passes single quotes on, and what was meant as a list becomes the name of a file."""
    for override, is_told in {"name='a'": False, "name=[a]": False, "seed='7'": True, "name='[a]'": True}.items():
        said: list[str] = []
        with pytest.raises(ConfigError) if override != "name='a'" else nullcontext():
            parse_run_config(SMALL, "small.yaml", [override], said.append)
        assert bool(said) == is_told, override
    assert said == ["""the value in name='[a]' is a text, quotes and all; if the shell kept them: "name=[a]\""""]


def test_a_star_or_spaces_in_an_override_are_read_as_meant():
    assert parse_override("corpus.files=*.txt").value == "*.txt", "YAML would take it for an alias"
    assert parse_override("train.steps = 100") == parse_override("train.steps=100")


def test_a_missing_file_is_named(tmp_path: Path):
    (tmp_path / "there.yaml").write_text(SMALL)
    (tmp_path / ".hidden.yaml").write_text(SMALL)
    with pytest.raises(
        ConfigError, match=r"here.yaml: no such file; .*`pellucid configs`, or of those there: [^,]*there.yaml$"
    ):
        load_run_config(tmp_path / "here.yaml")


def test_what_else_one_may_hand_to_train_is_told_its_command(workplace: Path):
    (workplace / "world.rules").touch()
    Path("checkpoints/small").mkdir(parents=True)
    Path("checkpoints/small/config.yaml").touch()
    for file, answer in {
        "corpus.txt": "a text, not a config; to train on it: `pellucid train own_text corpus.files=corpus.txt`",
        "world.rules": "a grammar, not a config; `pellucid language world.rules` describes it",
        "checkpoints/small": "the folder of a run, not a config; its config is checkpoints/small/config.yaml; to go on",
        "demo": "a trained run, not a config; its config is `fables`",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_run_config(Path(file))
        assert str(caught.value).replace("\\", "/").startswith(f"{file}: this is {answer}")
    Path("shouted.TXT").touch()
    with pytest.raises(ConfigError, match="this is a text, .*corpus.files=shouted.TXT`"):
        load_run_config(Path("shouted.TXT"))
    with pytest.raises(ConfigError, match=r"^typo.txt: no such file; check the path; to train on it: `.*=typo.txt`$"):
        load_run_config(Path("typo.txt"))


def test_the_kind_of_file_is_told_before_any_of_its_keys_is_blamed():
    with pytest.raises(ConfigError, match="norms.yaml: this is an experiment, .*; run it with `pellucid experiment`"):
        load_run_config(Path("experiments/norms"))
    with pytest.raises(ConfigError, match="debug.yaml: this is the config of one run, .* run it with `pellucid train`"):
        load_experiment(Path("debug"))


def test_a_model_that_starts_from_a_run_needs_only_the_keys_that_differ(tmp_path: Path):
    base, new = tmp_path / "base", tmp_path / "new.yaml"
    base.mkdir()
    (base / "config.yaml").write_text(SMALL, encoding="utf-8")
    start, _, end = re.split(r"(?ms)(^model:.*?)(?=^optimizer)", SMALL)
    new.write_text(f"{start}start_from: {base.as_posix()}\nmodel: {{context_length: 77}}\n{end}", encoding="utf-8")
    config = load_run_config(new)
    assert config.model == parse_run_config(SMALL, "small.yaml").model.model_copy(update={"context_length": 77})
    new.write_text(run_config_to_yaml(config), encoding="utf-8")
    (base / "config.yaml").unlink()  # as of a run that was copied elsewhere: its own section is complete
    assert load_run_config(new) == config


@pytest.mark.parametrize(
    ("objective", "answers", "unit"),
    [
        ("{type: sft}", 1, "nats per token"),
        ("{type: dpo}", 2, "nats per pair"),
        ("{type: reward_model}", 2, "nats per pair"),
        ("{type: grpo, group_size: 4}", 4, "= -(reward - beta KL)"),
        ("{type: ppo}", 1, "= -(reward - beta KL)"),
    ],
)
def test_all_answers_to_a_prompt_are_rows_that_the_model_reads_and_the_loss_has_its_unit(objective, answers, unit):
    config = parse_run_config(AFTER_BASE, "small.yaml", ["corpus={type: instructions}", f"objective={objective}"])
    assert config.rows_per_micro_batch == 8 * answers
    assert config.tokens_per_step == 8 * answers * 64
    assert config.loss_unit == unit


def test_an_at_sign_in_the_name_of_a_folder_is_not_one_before_a_step(tmp_path: Path):
    (tmp_path / "run@v2").mkdir()
    assert run_and_checkpoint(f"{tmp_path}/run@v2") == (tmp_path / "run@v2", "best")
    assert run_and_checkpoint(f"{tmp_path}/run@v2@500") == (tmp_path / "run@v2", "500")
    assert run_and_checkpoint(f"{tmp_path}/run@500") == (tmp_path / "run", "500")


@pytest.mark.parametrize("where", ["file", "command line"])
def test_a_config_from_before_loads_and_one_line_says_what_has_no_effect_any_more(where):
    changes = ["model.kernels=plain", "model.attention=auto"]
    text = SMALL.replace("  d_model", "  kernels: plain\n  attention: auto\n  d_model")
    notes: list[str] = []
    given = (text, "old.yaml", []) if where == "file" else (SMALL, "small.yaml", changes)
    config = parse_run_config(*given, notes.append)
    assert config == parse_run_config(SMALL, "small.yaml")
    assert [note.split()[0] for note in notes] == ["model.kernels", "model.attention:"]
