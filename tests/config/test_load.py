"""Configs: what is accepted, what is refused, and what the one line of an error says."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from pellucid.config.base import Section
from pellucid.config.experiment import load_experiment
from pellucid.config.faults import explain
from pellucid.config.generation import SampleConfig
from pellucid.config.load import load_run_config, parse_run_config, run_config_to_yaml
from pellucid.config.model import AttentionWord, RecurrentConfig
from pellucid.config.overrides import parse_override
from pellucid.config.run import run_and_checkpoint
from pellucid.errors import ConfigError

ATTENTIONS = get_args(AttentionWord)
SMALL = """\
name: small
corpus: {type: fables}
model:
  context_length: 64
  d_model: 64
  n_layers: 2
  n_heads: 2
  position: {type: rope, base: 1e4}
optimizer:
  type: adamw
  lr: 3e-4
schedule: {type: cosine, warmup_steps: 10}
train:
  steps: 100
  batch_size: 8
"""

AFTER_BASE = SMALL + "tokenizer: {type: bpe}\nstart_from: checkpoints/base\n"


def error_of(text: str = SMALL, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_run_config(text, "small.yaml", overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_numbers_in_scientific_notation_are_numbers():
    config = parse_run_config(SMALL, "small.yaml", ["train.max_gradient_norm=1e1", "optimizer.lr=2E-3"])
    assert config.model.position.base == 10_000.0
    assert config.train.max_gradient_norm == 10.0
    assert config.optimizer.lr == 0.002


def test_a_config_written_out_reads_back_equal():
    config = parse_run_config(SMALL, "small.yaml")
    assert parse_run_config(run_config_to_yaml(config), "written") == config


@settings(max_examples=30)
@given(lr=st.floats(1e-12, 1e12), weight_decay=st.floats(0, 1), seed=st.integers(0, 2**63 - 1))
def test_every_number_survives_being_written_out(lr, weight_decay, seed):
    overrides = [f"optimizer.lr={lr}", f"optimizer.weight_decay={weight_decay}", f"seed={seed}"]
    config = parse_run_config(SMALL, "small.yaml", overrides)
    assert (config.optimizer.lr, config.optimizer.weight_decay, config.seed) == (lr, weight_decay, seed)
    assert parse_run_config(run_config_to_yaml(config), "written") == config


@settings(max_examples=40)
@given(st.text() | st.from_regex(r"[-+]?[0-9_]*\.?[0-9]*([eE][-+]?[0-9]+)?", fullmatch=True))
@example("1e5")
@example("08")
@example("+.5")
@example("yes")
@example("null")
@example("12:30")
def test_every_text_survives_being_written_out_even_one_that_looks_like_a_number(text):
    config = parse_run_config(SMALL, "small.yaml").model_copy(update={"sample": SampleConfig(prompt=text)})
    assert parse_run_config(run_config_to_yaml(config), "written") == config


def test_a_text_that_is_read_again_does_not_remember_what_was_changed():
    assert parse_run_config(SMALL, "small.yaml", ["seed=7"]).seed == 7
    assert parse_run_config(SMALL, "small.yaml").seed == 0


@pytest.mark.parametrize(("number", "value"), [("010", 10), ("08", 8), ("+7", 7), ("1_000", 1000), ("0", 0)])
def test_a_whole_number_is_decimal_whatever_it_begins_with(number, value):
    assert parse_run_config(SMALL, "small.yaml", [f"seed={number}"]).seed == value


def test_a_config_that_a_run_could_write_but_not_read_is_refused():
    short = f"corpus={{type: text, files: [{'a,' * 20_000}]}}"
    assert error_of(SMALL, short).startswith("small.yaml: more than 50,000 characters once it is written out; ")


@pytest.mark.parametrize(
    ("value", "where"),
    [("5", ""), ("[a, 5]", ".1"), ("{train: 5}", ".train"), ("{train: [a, 5]}", ".train.1")],
)
def test_a_fault_inside_of_a_choice_of_types_is_found_where_it_is(value, where):
    message = error_of(SMALL, f"corpus={{type: hugging_face, path: json, data_files: {value}}}")
    assert message == f"command line: corpus.data_files{where}: 5 is of the wrong type; give text"


def test_a_key_may_have_the_name_of_its_section_s_type():
    class Hops(Section):
        type: Literal["hops"]
        hops: int = 4
        names: int = 8

    class Chains(Section):
        type: Literal["chains"]

    class Run(Section):
        corpus: Annotated[Hops | Chains, Field(discriminator="type")]

    lines = {(): "x.yaml:1", ("corpus",): "x.yaml:1"}
    lines |= {("corpus", key): f"x.yaml:{line}" for line, key in enumerate(("type", "hops", "names"), 2)}
    for key in ("hops", "names"):
        data = {"corpus": {"type": "hops", "hops": 2, "names": 8, key: "many"}}
        with pytest.raises(ValidationError) as caught:
            Run.model_validate(data)
        error = explain(caught.value.errors(), data, lines, Run, ())
        assert str(error) == f"{lines['corpus', key]}: corpus.{key}: 'many' is of the wrong type; give a whole number"


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        (
            "{type: sums, modulus: 7, digits: 3}",
            "digits: it has no effect, because the numbers of `modulus` are one symbol each",
        ),
        ("{type: hidden, states: 5}", "states: it has no effect, because the `process` is mess3"),
        ("{type: hidden, process: random, own: 0.5}", "own: it has no effect, because the `process` is random"),
    ],
)
def test_a_key_of_a_language_that_would_have_no_effect_is_refused(corpus, message):
    text = SMALL.replace("{type: fables}", corpus)
    assert error_of(text) == f"small.yaml:2: corpus.{message}; leave it out"
    for key in ("digits: 3", "states: 5", "own: 0.5"):
        text = text.replace(f", {key}", "")
    config = parse_run_config(text, "small.yaml")
    assert parse_run_config(run_config_to_yaml(config), "again.yaml") == config


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ("{type: lookup, pairs: 9, keys: 7}", "pairs: 9 pairs need as many keys, not 7; raise `keys`"),
        (
            "{type: lookup, pairs: 3, fewest_pairs: 4}",
            "fewest_pairs: 4 are more than `pairs`, 3; give fewer, or leave it out",
        ),
    ],
)
def test_pairs_that_a_document_cannot_have_are_refused(corpus, message):
    assert error_of(SMALL.replace("{type: fables}", corpus)) == f"small.yaml:2: corpus.{message}"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "warmup_steps: 10",
            "warmup_steps: 101",
            "small.yaml:12: schedule.warmup_steps: 101 is longer than train.steps 1",
        ),
        ("d_model: 64", "d_model: 63", "small.yaml:5: model.d_model: 63 is not a multiple of n_heads 2; "),
        (
            "d_model: 64",
            "d_model: 6",
            "small.yaml:5: model.d_model: RoPE rotates pairs, but a head has 3 coordinates; ",
        ),
        (
            "base: 1e4",
            "base: 1e4, rotated_fraction: 0.1",
            "small.yaml:8: model.position.rotated_fraction: RoPE rotates pairs, but 0.1 of a head's 32 coordinates",
        ),
        (
            "base: 1e4",
            "base: 1e4, rotated_fraction: 0.03",
            "small.yaml:8: model.position.rotated_fraction: RoPE rotates pairs, but 0.03 of a head's 32 coordinates",
        ),
        (
            "n_heads: 2",
            "n_heads: 2\n  n_kv_heads: 1\n  copying_init: true",
            "small.yaml:9: model.copying_init: ",
        ),
        (
            "n_heads: 2",
            "n_heads: 2\n  n_kv_heads: 3",
            "small.yaml:7: model.n_heads: 2 is not a multiple of n_kv_heads 3; ",
        ),
        (
            "corpus: {type: fables}",
            "corpus: {type: fables}\ntokenizer: {type: bpe, vocab_size: 257, special_tokens: [a, b]}",
            "small.yaml:3: tokenizer.vocab_size: 257 has no room for 256 bytes and 2 special tokens; give at least 258",
        ),
        (
            "corpus: {type: fables}",
            "corpus: {type: fables}\ntokenizer:\n  type: char\n  special_tokens: [a, a]",
            "small.yaml:5: tokenizer.special_tokens: a token is empty or appears twice; name each token once",
        ),
    ],
)
def test_a_rule_between_keys_blames_one_of_them(before, after, message):
    assert error_of(SMALL.replace(before, after)).startswith(message)


def test_sinusoidal_positions_blame_an_odd_width():
    message = error_of(SMALL, "model.position={type: sinusoidal}", "model.d_model=63", "model.n_heads=1")
    assert message == "command line: model.d_model: sinusoidal positions need an even width, not 63; add one"


def test_a_config_is_frozen():
    config = parse_run_config(SMALL, "small.yaml")
    with pytest.raises(ValueError, match="frozen"):
        config.train.steps = 3


def test_an_override_reaches_into_a_section_and_may_replace_a_whole_one():
    config = parse_run_config(
        SMALL,
        "small.yaml",
        ["train.steps=7", "schedule={type: constant}", "corpus={type: text, files: [a.txt]}"],
    )
    assert config.train.steps == 7
    assert config.schedule.type == "constant"
    assert config.corpus.files == ("a.txt",)


@pytest.mark.parametrize("key", ["files", "validation_files"])
def test_one_file_is_a_list_of_one(key):
    text = SMALL.replace("{type: fables}", "{type: text, files: [b.txt]}")
    assert getattr(parse_run_config(text, "small.yaml", [f"corpus.{key}=my.txt"]).corpus, key) == ("my.txt",)


SWITCHED = SMALL.replace("n_heads: 2", "n_heads: 2\n  activation: swiglu\n  dropout: 0.1")


def test_another_type_keeps_the_keys_that_it_shares_and_says_which_it_leaves_out():
    notes: list[str] = []
    model = parse_run_config(SWITCHED, "small.yaml", ["model.type=lstm"], note=notes.append).model
    assert model == RecurrentConfig(type="lstm", context_length=64, d_model=64, n_layers=2, dropout=0.1)
    assert notes == ["model.type=lstm leaves out what another type has: n_heads, activation, position"]


def test_a_key_of_another_type_with_other_choices_is_left_out_too():
    """A decoder's activation may be swiglu, that of an MLP may not."""
    assert parse_run_config(SWITCHED, "small.yaml", ["model.type=mlp", "model.window=4"]).model.activation == "tanh"


def test_a_key_that_another_type_needs_is_asked_for_where_the_type_was_changed():
    message = error_of(SMALL, "model.type=mlp")
    assert message == "command line: model.window: this key is missing; add `model.window=...`"


def test_a_key_of_a_section_without_a_type_is_found_there():
    """A model of no type is a decoder; nothing that is spelled alike is as near as the same name."""
    for key in ("n_layers", "d_model", "position", "n_heads", "context_length", "dropout"):
        message = error_of(SMALL, f"{key}=3")
        assert message == f"command line: {key}: unknown key; did you mean 'model.{key}'?"


@pytest.mark.parametrize(
    ("written", "read"), [("true", "block"), ("false", "none"), ("none", "none"), ("attention", "attention")]
)
def test_gradient_checkpointing_was_once_true_or_false(written, read):
    train = parse_run_config(SMALL, "small.yaml", [f"train.gradient_checkpointing={written}"]).train
    assert train.gradient_checkpointing == read


def test_gradient_checkpointing_is_no_number():
    said = error_of(SMALL, "train.gradient_checkpointing=1")
    assert "train.gradient_checkpointing: 1 is not a choice; use 'none', 'attention' or 'block'" in said


def test_one_place_of_a_bias_is_a_list_of_one():
    model = parse_run_config(SMALL, "small.yaml", ["model.bias=queries_keys_values"]).model
    assert model.bias == ("queries_keys_values",)
    assert "model.bias: 'everywhere' is not a choice; use 'norms', " in error_of(SMALL, "model.bias=everywhere")


def test_another_type_inside_of_a_section_is_the_same():
    config = parse_run_config(SMALL, "small.yaml", ["model.position.type=none", "schedule.type=constant"])
    assert (config.model.position.type, config.schedule.warmup_steps) == ("none", 10)


def test_nothing_is_left_out_that_was_asked_for():
    for order in (["model.type=lstm", "model.n_heads=4"], ["model.n_heads=4", "model.type=lstm"]):
        assert "model.n_heads: lstm has no such key; " in error_of(SMALL, *order)


def test_the_same_type_again_and_an_unknown_one_leave_nothing_out():
    notes: list[str] = []
    parse_run_config(SMALL, "small.yaml", ["model.type=decoder"], note=notes.append)
    with pytest.raises(ConfigError, match="command line: model.type: 'lstn' is not a choice"):
        parse_run_config(SMALL, "small.yaml", ["model.type=lstn"], note=notes.append)
    assert notes == []


def test_a_misspelled_key_is_named_with_its_line_and_a_suggestion():
    message = error_of(SMALL.replace("steps: 100", "stepz: 100"))
    assert message == "small.yaml:14: train.stepz: unknown key; did you mean 'steps'?"


def test_a_key_unlike_any_other_is_answered_with_the_list_of_keys():
    message = error_of(SMALL + "  zzz: 1\n")
    assert message.startswith("small.yaml:16: train.zzz: unknown key; the keys here are steps, batch_size,")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=fast", "command line: optimizer.lr: 'fast' is of the wrong type; give a number"),
        ("optimizer.lr=-1", "command line: optimizer.lr: -1 is out of range; give a value greater than 0.0"),
        ("optimizer.lr=.nan", "command line: optimizer.lr: nan is of the wrong type; give a finite number"),
        ("optimizer.lr=", "command line: optimizer.lr: '' is of the wrong type; give a number"),
        ("train.steps=1.5", "command line: train.steps: 1.5 is of the wrong type; give a whole number"),
        ("train.steps=1e3", "command line: train.steps: 1000.0 is of the wrong type; give a whole number: 1000"),
        ("seed=99999999999999999999", "command line: seed: this number is too large; give one of at most 18 digits"),
        ("train.steps=true", "command line: train.steps: True is of the wrong type; give a whole number"),
        ("train.steps='100'", "command line: train.steps: '100' is of the wrong type; give a whole number"),
        ("train.compile=yes", "command line: train.compile: 'yes' is of the wrong type; give true or false"),
        (
            "model.feed_forward={type: moe, n_experts: 4, top_k: 5}",
            "command line: model.feed_forward.top_k: a token cannot ask 5 of 4 experts; choose at most n_experts",
        ),
        (
            "train.device=gpu",
            "command line: train.device: 'gpu' is not a choice; use 'auto', 'cpu', 'cuda' or 'mps'",
        ),
        (
            "model.position.type=spiral",
            "command line: model.position.type: 'spiral' is not a choice; "
            "use one of 'sinusoidal', 'rope', 'learned', 'none'",
        ),
        (
            "model.position={type: rope, bse: 3}",
            "command line: model.position.bse: unknown key; did you mean 'base'?",
        ),
        (
            "model.attention=linaer",
            "command line: model.attention: 'linaer' is not a choice; "
            f"use {', '.join(map(repr, ATTENTIONS[:-1]))} or {ATTENTIONS[-1]!r} or give a section of keys and values",
        ),
        (
            "model.attention=sliding_window",
            "command line: model.attention: a sliding window needs its width; write {type: sliding_window, window: 64}",
        ),
        (
            "model.attention={type: linear}",
            "command line: model.attention: 'linear' has no knobs; write the word alone, as `attention: linear`",
        ),
        (
            "model.attention={type: sliding_window}",
            "command line: model.attention.window: this key is missing; add `window: ...`",
        ),
        (
            "model.attention={type: sliding_window, windw: 3}",
            "command line: model.attention.windw: unknown key; did you mean 'window'?",
        ),
        (
            "model.attention={type: sliding_window, window: 0}",
            "command line: model.attention.window: 0 is out of range; give a value of at least 1",
        ),
        (
            "corpus={files: [a]}",
            "command line: corpus.type: this key is missing; "
            "add `type: ...`, one of fables, instructions, grammar, chains, lookup, hops, brackets, sums, hidden, "
            "trees, text, hugging_face, conversations, preferences, none",
        ),
        (
            "corpus={type: text}",
            "command line: corpus.files: no text is named; "
            "give `files: [FILE]`, or `download: {url: ..., sha256: ...}`",
        ),
        (
            "corpus={type: hugging_face, path: jsonl, data_files: a.jsonl}",
            "command line: corpus.path: 'jsonl' is no format; did you mean 'json'?",
        ),
        (
            "corpus={type: hugging_face, path: json}",
            "command line: corpus.data_files: json is a format, and no files are named; add `data_files: FILE`",
        ),
        (
            "corpus={type: text, download: {url: input.txt, sha256: abc}}",
            "command line: corpus.download.url: 'input.txt' is not a web address; write https://...",
        ),
        (
            "corpus={type: text, download: {url: 'https://a.org/b', sha256: abc}}",
            "command line: corpus.download.sha256: this is no SHA-256; give the 64 digits that `sha256sum FILE` prints",
        ),
        (
            "corpus={type: text, files: [a, 3]}",
            "command line: corpus.files.1: 3 is of the wrong type; give text",
        ),
        ("optimizer.betas=[0.9]", "command line: optimizer.betas: too few values; give a longer list"),
        (
            "optimizer.betas=[0.9, 2]",
            "command line: optimizer.betas.1: 2 is out of range; give a value less than 1.0",
        ),
        ("model=3", "command line: model: 3 is of the wrong type; give a section of keys and values"),
        ("steps", "command line: 'steps' is not key=value; write it without spaces, as optimizer.lr=3e-4"),
        (
            "train..steps=3",
            "command line: 'train..steps=3' is not key=value; write it without spaces, as optimizer.lr=3e-4",
        ),
        (
            "train.steps.x=3",
            "command line: train.steps.x: 'steps' is a value, not a section; leave out what follows it",
        ),
        (
            "model.n_heads=3",
            "command line: model.n_heads: d_model 64 is not a multiple of n_heads 3; "
            "choose a multiple, or set head_width",
        ),
        (
            "train.steps=5",
            "command line: train.steps: schedule.warmup_steps 10 is longer than train.steps 5; warm up for fewer steps",
        ),
        (
            "model.n_heads=64",
            "command line: model.n_heads: RoPE rotates pairs, but a head has 1 coordinates; "
            "choose d_model / n_heads even",
        ),
        (
            "corpus.files=[a.txt]",
            "command line: corpus.files: fables has no such key; "
            'leave it out, or set type: text or conversations or preferences, as "corpus={type: text, files: ...}"',
        ),
        (
            "corpus.files=my.txt",
            "command line: corpus.files: fables has no such key; "
            'leave it out, or set type: text or conversations or preferences, as "corpus={type: text, files: my.txt}"',
        ),
        (
            "model={type: lstm, context_length: 8, d_model: 8, n_heads: 2}",
            "command line: model.n_heads: lstm has no such key; "
            'leave it out, or set type: decoder, as "model={type: decoder, n_heads: 2}"',
        ),
        (
            "optimizer=sgd",
            "command line: optimizer: 'sgd' is a type, not a section; "
            "write `{type: sgd}`, or optimizer.type=sgd on the command line",
        ),
        (
            "model=lstm",
            "command line: model: 'lstm' is a type, not a section; "
            "write `{type: lstm}`, or model.type=lstm on the command line",
        ),
        (
            "model.position=alibi",
            "command line: model.position: 'alibi' is not a choice; use one of sinusoidal, rope, learned, none, "
            "as `{type: sinusoidal}`, or model.position.type=sinusoidal on the command line",
        ),
        (
            "model.attention={type: sliding_window, window: 4, size: 3}",
            "command line: model.attention.size: unknown key; the keys here are type, window",
        ),
        ("steps=5", "command line: steps: unknown key; did you mean 'train.steps'?"),
        ("lr=1e-3", "command line: lr: unknown key; did you mean 'optimizer.lr'?"),
        ("train.seed=3", "command line: train.seed: unknown key; did you mean 'seed' or 'corpus.seed'?"),
        (
            "every_steps=3",
            "command line: every_steps: unknown key; "
            "did you mean 'evaluation.every_steps' or 'sample.every_steps' or 'checkpoint.every_steps'?",
        ),
        (
            "optimizer.adamw_lr=1",
            "command line: optimizer.adamw_lr: adamw has no such key; "
            'leave it out, or set type: muon, as "optimizer={type: muon, adamw_lr: 1}"',
        ),
        (
            "trackers=wandb",
            "command line: trackers: 'wandb' is of the wrong type; give a list, as \"trackers=[wandb]\"",
        ),
        (
            "'train.steps=5'",
            "command line: \"'train.steps=5'\" is not key=value; "
            'your shell has kept its quote: put double ones around all of it, as "optimizer.lr=3e-4"',
        ),
        (
            "corpus.files=[*.txt]",
            "command line: corpus.files: not readable as YAML: expected alphabetic or numeric character, but found "
            """'.'; put single quotes around what begins with a star, as "corpus.files=['*.txt']\"""",
        ),
        (".", "command line: '.' is not key=value; to train on the files in it: \"corpus.files=./*.txt\""),
        ("small.txt", "command line: 'small.txt' is not key=value; to train on this file: corpus.files=small.txt"),
        ("my.rules", "command line: 'my.rules' is not key=value; to train on this file: corpus.file=my.rules"),
        (
            "corpus='{type:",
            "command line: corpus: not readable as YAML: found unexpected end of stream; "
            'if the shell has split it, quote all of it: "corpus={type: text, files: [a.txt]}"',
        ),
        (
            "corpus={type:",
            "command line: corpus: not readable as YAML: expected the node content, but found '<stream end>'; "
            'if the shell has split it, quote all of it: "corpus={type: text, files: [a.txt]}"',
        ),
        (
            "corpus=type:text",
            "command line: corpus: 'type:text' is of the wrong type; "
            'give a section of keys and values, quoted: "corpus={type: text, files: [a.txt]}"',
        ),
        (
            "name=my run",
            "command line: name: 'my run' is not accepted; "
            "use letters, digits, '.', '_' and '-', the first a letter or a digit",
        ),
    ],
)
def test_a_bad_override_is_explained_in_one_line(override, message):
    assert error_of(SMALL, override) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            SMALL + "train: {}\n",
            "small.yaml:16: train: this key appears twice, first on line 13; keep one of the two",
        ),
        (
            SMALL + "a: [1\n",
            "small.yaml:17: not readable as YAML: expected ',' or ']', but got '<stream end>'",
        ),
        (SMALL + "a: &x 1\nb: *x\n", "small.yaml:17: not readable as YAML: alias *x found"),
        (
            SMALL + "a: !!python/object:os.system {}\n",
            "small.yaml:16: not readable as YAML: tag tag:yaml.org,2002:python",
        ),
        (SMALL + "? [1]\n: 2\n", "small.yaml:16: a key must be a plain word; write `key: value`"),
        ("[" * 10_000, "small.yaml:1: nested too deeply"),
        ("- 1\n", "small.yaml: no `key: value` lines found; start from a file in configs/"),
        ("a: 1\n\0", "small.yaml:2: the character U+0000 may not stand in YAML"),
        ("x" * 300_000, "small.yaml: 300,000 characters are too many for a config"),
    ],
)
def test_text_that_is_no_config_is_refused_with_its_line(text, message):
    assert error_of(text).startswith(message)


@pytest.mark.parametrize("text", ["", "# later\n", "null", "- a", "name"])
def test_a_file_without_keys_says_so(text: str):
    assert error_of(text) == "small.yaml: no `key: value` lines found; start from a file in configs/"


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


def test_a_slip_in_the_name_of_a_shipped_config_is_suggested():
    for slip in ("debgu", "Debug", "debug.yml", "configs/debug.yml"):
        with pytest.raises(ConfigError, match=r"no such file; did you mean 'debug'\?"):
            load_run_config(Path(slip))


def test_a_folder_and_a_binary_file_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="this is a folder, not a config; name a YAML file"):
        load_run_config(tmp_path)
    (tmp_path / "weights").write_bytes(b"ab\xff")
    with pytest.raises(ConfigError, match="byte 2 is not UTF-8"):
        load_run_config(tmp_path / "weights")


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


def test_the_kind_of_file_is_told_before_any_of_its_keys_is_blamed():
    with pytest.raises(ConfigError, match="norms.yaml: this is an experiment, .*; run it with `pellucid experiment`"):
        load_run_config(Path("experiments/norms"))
    with pytest.raises(ConfigError, match="debug.yaml: this is the config of one run, .* run it with `pellucid train`"):
        load_experiment(Path("debug"))


def test_experts_are_not_compiled():
    """How many tokens each gets depends on the text."""
    error = error_of(SMALL, "model.feed_forward={type: moe}", "train.compile=true")
    assert "train.compile: a compiled graph has fixed shapes" in error
    assert error.endswith("; leave it out, or use model.feed_forward dense")


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
    ("objective", "answers"),
    [("{type: dpo}", 2), ("{type: reward_model}", 2), ("{type: grpo, group_size: 4}", 4), ("{type: ppo}", 1)],
)
def test_all_answers_to_a_prompt_count_as_rows_that_the_model_reads(objective, answers):
    config = parse_run_config(AFTER_BASE, "small.yaml", ["corpus={type: instructions}", f"objective={objective}"])
    assert config.rows_per_micro_batch == 8 * answers
    assert config.tokens_per_step == 8 * answers * 64


@pytest.mark.parametrize(
    ("objective", "unit"),
    [("sft", "nats per token"), ("dpo", "nats per pair"), ("grpo", "= -(reward - beta KL)")],
)
def test_the_unit_of_a_loss_is_that_of_its_objective(objective, unit):
    changes = ["corpus={type: instructions}", f"objective={{type: {objective}}}"]
    assert parse_run_config(AFTER_BASE, "small.yaml", changes).loss_unit == unit


@pytest.mark.parametrize("objective", ["reward_model", "ppo"])
def test_a_scalar_head_is_not_compiled(objective):
    changes = ["corpus={type: instructions}", f"objective={{type: {objective}}}", "train.compile=true"]
    assert "train.compile: the graph would leave out the scalar head" in error_of(AFTER_BASE, *changes)


@pytest.mark.parametrize("objective", ["{type: ppo, reward_at: settled", "{type: grpo, credit_decay: 0.9"])
def test_only_the_verifier_says_which_token_settled_a_reward(objective):
    changes = ["corpus={type: instructions}", f"objective={objective}, reward: {{type: model, run: judge}}}}"]
    error = error_of(AFTER_BASE, *changes)
    assert "only the verifier says which token settled a reward" in error
    assert "set credit_decay to null, or reward to" in error or "set reward_at to end, or reward to" in error


@pytest.mark.parametrize(
    "objective", ["type: dpo, fork: true", "type: dpo, cut: each", "type: reward_model, fork: true"]
)
def test_nobody_knows_where_the_answers_of_a_file_went_wrong(objective):
    changes = ["corpus={type: preferences, files: [pairs.jsonl]}", f"objective={{{objective}}}"]
    assert "set fork to false and cut to none, or use corpus instructions" in error_of(AFTER_BASE, *changes)


@pytest.mark.parametrize("objective", ["dpo", "grpo", "ppo", "reward_model"])
def test_a_balance_of_experts_that_no_loss_has_a_part_for_is_refused(objective):
    changes = ["corpus={type: instructions}", f"objective={{type: {objective}}}"]
    experts = "model.feed_forward={type: moe, load_balance_weight: %s}"
    assert "load_balance_weight: the loss of" in error_of(AFTER_BASE, *changes, experts % 0.01)
    parse_run_config(AFTER_BASE, "small.yaml", [*changes, experts % 0])


@pytest.mark.parametrize(
    ("objective", "corpora"),
    [("sft", "instructions or conversations"), ("dpo", "instructions or preferences"), ("grpo", "instructions")],
)
def test_a_corpus_without_conversations_is_answered_with_those_that_the_objective_learns_from(objective, corpora):
    assert error_of(AFTER_BASE, f"objective={{type: {objective}}}").endswith(f"use {corpora}")


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
