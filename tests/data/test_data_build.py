import json
import shutil
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter

from pellucid.config.data import CorpusConfig, FileTokenizerConfig
from pellucid.config.load import load_run_config
from pellucid.errors import CheckpointError, DataError, PellucidError
from pellucid.recipe import build_batches, prepare_data
from pellucid.runs.cost_of_run import vocab_size_of
from pellucid.trained import TrainedModel
from tiny_run import VERSES


def test_the_config_decides_tokens_and_batches(workplace):
    config = load_run_config(Path("tiny.yaml"), [])
    data = prepare_data(config, Path("data"))
    assert data.directory == Path("data") / f"text-{data.fingerprint}"
    assert data.tokenizer.vocab_size == 300 == data.manifest.vocab_size
    assert data.train.end_of_text == data.validation.end_of_text == data.tokenizer.end_of_text
    assert data.truth is data.validation_floor_nats_per_token is None
    text = (workplace / "corpus.txt").read_text()
    assert len(data.train.boundaries) - 1 + len(data.validation.boundaries) - 1 == len(text.split("\n\n"))
    batch = build_batches(config, data).batch(0)
    assert batch.inputs_BT.shape == batch.targets_BT.shape
    assert len(batch.inputs_BT) == 2
    assert batch.inputs_BT.size(1) <= 32, "as wide as its longest row"
    assert set(batch.inputs_BT[:, 0].tolist()) == {data.tokenizer.end_of_text}, "each row starts at a document"


def test_only_what_changes_the_tokens_is_prepared_apart(workplace):
    def directory(*overrides):
        return prepare_data(load_run_config(Path("tiny.yaml"), overrides), Path("data")).directory

    first = directory()
    for override in ("tokenizer={type: char}", "tokenizer.vocab_size=290", "corpus.separator=null"):
        assert directory(override) != first, override
    for override in ("model.context_length=16", "train.batch_size=3", "data.packing=contiguous", "seed=7"):
        assert directory(override) == first, override


def test_a_tokenizer_of_a_file_gives_its_tokens_and_is_known_by_its_contents_not_its_place(workplace):
    first = prepare_data(load_run_config(Path("tiny.yaml")), Path("data"))
    prepared = []
    for path in ("a.json", "b.json"):
        shutil.copy(first.directory / "tokenizer.json", path)
        config = load_run_config(Path("tiny.yaml"), [f"tokenizer={{type: file, path: {path}}}"])
        assert vocab_size_of(config) == first.tokenizer.vocab_size
        prepared.append(prepare_data(config, Path("data")))
    assert prepared[0].directory == prepared[1].directory != first.directory
    assert prepared[0].train.tokens.tolist() == first.train.tokens.tolist()
    Path("b.json").write_text(Path("a.json").read_text() + "\n")  # the same vocabulary, formatted otherwise
    assert prepare_data(config, Path("data")).directory == prepared[1].directory
    smaller = prepare_data(load_run_config(Path("tiny.yaml"), ["tokenizer.vocab_size=280"]), Path("data"))
    shutil.copy(smaller.directory / "tokenizer.json", "b.json")
    assert prepare_data(config, Path("data")).directory != prepared[1].directory


def test_a_missing_tokenizer_file_is_an_error(workplace):
    config = load_run_config(Path("tiny.yaml"), ["tokenizer={type: file, path: gone.json}"])
    with pytest.raises(DataError, match="tokenizer.path: 'gone.json' cannot be read"):
        prepare_data(config, Path("data"))


def test_what_needs_a_text_says_that_there_is_none(workplace, pellucid):
    for command in (["prepare"], ["train"]):
        result = pellucid(*command, "tiny.yaml", "corpus={type: none}")
        assert result.exit_code == 3
        assert result.stderr.splitlines()[-1].startswith("error: corpus: this run has no text of its own; name some: ")


TALKS = [{"prompt": f"How many on day {day}?", "answer": f"{day} hens."} for day in range(12)]
PAIRS = [{"prompt": talk["prompt"], "chosen": talk["answer"], "rejected": "None."} for talk in TALKS]
FILES = {
    "corpus.txt": VERSES,
    "held_out.txt": "A red fox.",
    "own.rules": "s\n    1 " + "[w] " * 8 + "\nw\n    1 ant\n    1 bee\n    2 cow\n",
    "talks.jsonl": "".join(json.dumps(talk) + "\n" for talk in TALKS),
    "pairs.jsonl": "".join(json.dumps(pair) + "\n" for pair in PAIRS),
}


@pytest.mark.parametrize(
    ("corpus", "file", "edit"),
    [
        ("{type: text, files: [corpus.txt]}", "corpus.txt", ("fox", "FOX")),
        ("{type: text, files: ['c*.txt']}", "corpus.txt", ("fox", "f0x")),
        ("{type: text, files: [corpus.txt], validation_files: [held_out.txt]}", "held_out.txt", ("red", "Red")),
        ("{type: grammar, file: own.rules, size: 40, validation_fraction: 0.03}", "own.rules", ("1 ant", "3 ant")),
        ("{type: conversations, files: [talks.jsonl]}", "talks.jsonl", ("hens", "cows")),
        ("{type: preferences, files: [pairs.jsonl]}", "pairs.jsonl", ("None", "Two")),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_a_run_has_the_corpus_it_was_trained_on_or_none(workplace, corpus, file, edit):
    for name, text in FILES.items():
        Path(name).write_text(text)
    config = load_run_config(Path("tiny.yaml"))
    shutil.copy(prepare_data(config, Path("data")).directory / "tokenizer.json", "t.json")
    vocabulary = FileTokenizerConfig(type="file", path="t.json")
    section = TypeAdapter(CorpusConfig).validate_python(yaml.safe_load(corpus))
    config = config.model_copy(update={"corpus": section, "tokenizer": vocabulary})
    data = prepare_data(config, Path("data"))
    Path("t.json").unlink()  # the run has its own
    run = TrainedModel(config, data.tokenizer, None, 0, data.fingerprint)
    assert run.corpus().identity == data.manifest.corpus

    text = Path(file).read_text()
    Path(file).write_text(text.replace(*edit, 1))
    with pytest.raises(CheckpointError, match="run tiny: its corpus has changed since training; bring back"):
        run.corpus()
    Path(file).write_text(text)
    assert run.corpus().identity == data.manifest.corpus
    Path(file).unlink()
    with pytest.raises(PellucidError):
        run.corpus()
