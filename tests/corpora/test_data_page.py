"""docs/data.md: each of its corpora is read, each of its commands is understood."""

import json
import re
import shlex
from pathlib import Path

import datasets
import pytest
import yaml

from pellucid.config.load import load_run_config
from pellucid.config.shipped import find_config
from pellucid.corpora.build import build_corpus

PAGE = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)[1:]}
CORPORA = {
    heading: yaml.safe_load(block[1])["corpus"]
    for heading, part in SECTIONS.items()
    if (block := re.search(r"```yaml\n(.*?)```", part, re.DOTALL))
}
ROWS = [f"Row {i}." for i in range(20)]
TEXT = "".join(f"Line {i}.\n" for i in range(10))

NEEDS = {
    "conversations": ["objective={type: sft}"],
    "preferences": ["objective={type: reward_model}"],
    "tokens": ["tokenizer={type: ids}"],
}


def turns_of(pair: int) -> list[str]:
    return [f"Row {pair}?", f"Row {pair}.", f"Row {pair}?", "Who knows."]


# What each corpus holds: its training documents, and those held out.
DOCUMENTS = {
    "One file": ([TEXT[:-8]], [TEXT[-8:]]),
    "Many files": (["a" * 40, "b" * 32], ["b" * 8]),
    "A folder and its subfolders": (["a" * 40, "b" * 40, "c" * 28], ["c" * 12]),
    "Many documents in one file": (["one\n\ntwo", "three"], ["four"]),
    "Your own validation files": (["a" * 40], ["b" * 40]),
    "JSON lines": ([row for row in ROWS if row not in (ROWS[9], ROWS[19])], [ROWS[9], ROWS[19]]),
    "Parquet": ([row for row in ROWS if row not in (ROWS[9], ROWS[19])], [ROWS[9], ROWS[19]]),
    "CSV": (ROWS[:5], ROWS[5:7]),
    "Conversations": ([row for row in ROWS if row not in (ROWS[18], ROWS[19])], [ROWS[18], ROWS[19]]),
    "A run that answers": ([row for row in ROWS if row not in (ROWS[18], ROWS[19])], [ROWS[18], ROWS[19]]),
    "Ids that are no text": ([" 6 7 2 1 0", " 3 4", " 6 7 2 5"], []),
    "Preferences": ([text for pair in range(9) for text in turns_of(pair)], turns_of(9)),
}
FETCHED = {"A file from the web", "A data set of the Hugging Face hub"}  # the first: tests/corpora/test_download.py


@pytest.fixture
def files(workplace: Path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", workplace / "cache")
    (workplace / "stories/more").mkdir(parents=True)
    texts = {
        "my.txt": TEXT,
        "stories/a.txt": "a" * 40,
        "stories/b.txt": "b" * 40,
        "stories/more/c.md": "c" * 40,
        "tales.txt": "one\n\ntwo\n\n\nthree\n\n\nfour",
        "stories.jsonl": "".join(json.dumps({"story": row}) + "\n" for row in ROWS),
        "chats.jsonl": "".join(
            json.dumps({"prompt": question, "answer": answer}) + "\n"
            for question, answer in zip(ROWS[::2], ROWS[1::2], strict=True)
        ),
        "pairs.jsonl": "".join(
            json.dumps({"prompt": f"Row {i}?", "chosen": f"Row {i}.", "rejected": "Who knows."}) + "\n"
            for i in range(10)
        ),
        "train.csv": "text\n" + "\n".join(ROWS[:5]),
        "dev.csv": "text\n" + "\n".join(ROWS[5:7]),
    }
    for name, text in texts.items():
        (workplace / name).write_text(text, encoding="utf-8", newline="")
    exec(re.search(r"```python\n(.*?)```", SECTIONS["Ids that are no text"], re.DOTALL)[1], {})
    datasets.Dataset.from_dict({"text": ROWS}).to_parquet(workplace / "stories-1.parquet")


def test_the_page_has_these_corpora():
    assert CORPORA.keys() == DOCUMENTS.keys() | FETCHED


@pytest.mark.parametrize("heading", CORPORA)
def test_every_corpus_of_the_data_page_gives_the_documents_that_it_says(files, heading):
    needs = NEEDS.get(CORPORA[heading]["type"], [])
    config = load_run_config(Path("tiny.yaml"), [f"corpus={json.dumps(CORPORA[heading])}", *needs])
    if heading in FETCHED:
        return
    corpus = build_corpus(config.corpus)
    documents = tuple([piece.text for piece in corpus.pieces(split)] for split in ("train", "validation"))
    assert documents == DOCUMENTS[heading]


def test_the_download_of_the_page_is_that_of_the_configs():
    for name in ("shakespeare_char", "speedrun_shakespeare", "speedrun_shakespeare_gpu", "speedrun_shakespeare_cores"):
        config = load_run_config(find_config(Path(name)))
        assert config.corpus.model_dump(mode="json")["download"] == CORPORA["A file from the web"]["download"]


def test_the_commands_of_the_page_work(files, pellucid):
    train, *_, evaluate = (shlex.split(line) for line in re.findall(r"^pellucid (.*)", PAGE, re.MULTILINE))
    Path("other.txt").write_text("Line 3.\n", encoding="utf-8")
    small = [
        "train.steps=2",
        "model.d_model=16",
        "model.n_layers=1",
        "model.context_length=8",
        "sample.max_new_tokens=4",
    ]
    small += ["schedule={type: constant}"]
    trained = pellucid(*train, *small)
    assert trained.exit_code == 0, trained.stderr
    evaluated = pellucid(*evaluate)
    assert evaluated.exit_code == 0, evaluated.stderr
    assert "bits/byte" in evaluated.stdout
