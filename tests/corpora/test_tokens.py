"""Documents of ids that are no text: they are trained on as they are, and written as numbers with blanks between."""

import json
import math

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.data import MOST_IDS
from pellucid.config.load import parse_run_config
from pellucid.corpora.build import build_corpus
from pellucid.errors import ConfigError, DataError
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import train_tokenizer
from tiny_run import TINY_RUN, assert_one_error_line

IDS = TINY_RUN.replace("bpe, vocab_size: 300", "ids").replace(
    'text, files: [corpus.txt], separator: "\\n\\n"', "tokens, files: [notes.jsonl]"
)
SCALE = [0, 2, 4, 5, 7, 9, 11]
MELODIES = [[60 + SCALE[(start + step * i) % 7] for i in range(12)] for start in range(7) for step in (1, 2, 3)]


def lines(documents):
    return "".join(json.dumps(ids) + "\n" for ids in documents)


def corpus(path, **options):
    config = parse_run_config(IDS, "tiny.yaml").corpus
    return build_corpus(config.model_copy(update={"files": (str(path),), **options}))


def documents(corpus, split):
    """The ids that stand in the text of each document."""
    found, text = [], ""
    for piece in corpus.pieces(split):
        text += piece.text
        if piece.ends_document:
            found.append(list(map(int, text.split())))
            text = ""
    return found


def test_each_row_is_a_document_and_every_tenth_is_held_out(tmp_path):
    long = np.random.default_rng(0).integers(0, MOST_IDS, 5000).tolist()  # many pieces
    rows = [long, [], *([i] for i in range(18))]
    (tmp_path / "a.jsonl").write_text(lines(rows))
    datasets.Dataset.from_dict({"input_ids": rows}).to_parquet(tmp_path / "a.parquet")
    for read in (corpus(tmp_path / "a.jsonl"), corpus(tmp_path / "a.parquet", ids_field="input_ids")):
        assert documents(read, "train") == [row for i, row in enumerate(rows) if i not in (9, 19)]
        assert documents(read, "validation") == [rows[9], rows[19]]
    (tmp_path / "b.jsonl").write_text(lines([[3], [4]]))
    both = corpus(tmp_path / "*.jsonl", validation_files=(str(tmp_path / "b.jsonl"),))
    assert (documents(both, "train"), documents(both, "validation")) == (rows, [[3], [4]])


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("[1]\n[1, -2]\n", "a.jsonl, line 2: -2 is no id; give whole numbers from 0 to 1,048,575"),
        ('{"ids": [1048576]}', "a.jsonl, line 1: 1048576 is no id"),
        ('{"ids": [true]}', "a.jsonl, line 1: True is no id"),
        ('{"ids": "1 2"}', "a.jsonl, line 1: ids holds str, not a list of ids; "),
        ('{"notes": [1]}', "line 1: there is no column ids; name one of its columns in corpus.ids_field: notes"),
        ("[1]\n[0.5]\n", "a.jsonl, line 2: holds list, not a record; give each record as"),
    ],
)
def test_what_is_no_list_of_ids_is_refused_with_its_line(tmp_path, content, error):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError) as refused:
        documents(corpus(tmp_path / "a.jsonl"), "train")
    assert error in str(refused.value)


def vocabulary(*texts, n_ids=None):
    settings = parse_run_config(IDS, "tiny.yaml").tokenizer.model_copy(update={"n_ids": n_ids})
    return train_tokenizer(settings, texts[:1], texts[1:])


@given(st.lists(st.lists(st.integers(0, 300)), min_size=1))
def test_the_token_of_an_id_is_the_id(rows):
    tokenizer = vocabulary(*(" ".join(map(str, ids)) for ids in rows))
    assert tokenizer.end_of_text == max((id_ for ids in rows for id_ in ids), default=0) + 1
    again = Tokenizer.from_json(tokenizer.to_json())
    texts = ["".join(f" {id_}" for id_ in ids) for ids in rows]
    for each in (tokenizer, again):
        assert [ids.tolist() for ids in each.encode_exactly(texts)] == rows
        assert [each.decode(ids) for ids in rows] == texts
        assert not each.is_text
        assert not each.has_words


def test_the_number_of_ids_is_that_of_the_config_or_one_more_than_the_largest():
    assert vocabulary("0 7", "9 1").vocab_size == 11
    assert vocabulary("0 7", "9 1", n_ids=128).vocab_size == 129
    with pytest.raises(DataError, match="n_ids 9: the corpus holds the id 9; give 10 or more, or leave it out"):
        vocabulary("0 7", "9 1", n_ids=9)
    for text, wrong in (("1 fox", "fox"), ("10", "10"), ("01", "01"), ("\u0661", "\u0661"), ("1,2", "1,2")):
        with pytest.raises(DataError, match=f"'{wrong}' is none of the ids 0 to 9 of this vocabulary; write ids alone"):
            vocabulary("9").encode(text)


@pytest.mark.parametrize(
    ("old", "new"), [("type: ids", "type: bpe"), ("type: tokens", "type: text"), ("type: ids", "type: char")]
)
def test_ids_go_with_their_tokenizer_alone(old, new):
    with pytest.raises(ConfigError, match="does not go with corpus .*: ids are no text; corpus tokens goes with `tok"):
        parse_run_config(IDS.replace(old, new), "tiny.yaml")


def test_a_run_on_ids_trains_is_scored_and_writes_like_any_other(workplace, pellucid):
    (workplace / "notes.jsonl").write_text(lines(MELODIES))
    (workplace / "tiny.yaml").write_text(IDS)
    trained = pellucid("train", "tiny.yaml")
    assert trained.exit_code == 0, trained.stderr
    assert "byte" not in trained.stdout + trained.stderr
    assert "nats/token   perplexity " in trained.stdout
    assert " (a counter of 3-grams " in trained.stdout
    run = "checkpoints/tiny"
    evaluated = pellucid("evaluate", run, "--json")
    figures = json.loads(evaluated.stdout)
    assert figures["bits_per_byte"] is figures["scale"]["xz_bits_per_byte"] is None
    assert math.exp(figures["loss_nats_per_token"]) == pytest.approx(figures["perplexity"])
    assert figures["tokens"] == 2 * 13
    table = pellucid("evaluate", run).stdout
    assert "byte" not in table
    assert "counts of 3 tokens in a row" in table
    (workplace / "held_out.txt").write_text(" ".join(map(str, MELODIES[9])) + "\n")
    assert "nats/token over 13 tokens" in pellucid("evaluate", run, "--text", "held_out.txt").stdout
    written = pellucid("generate", run, "--prompt", "60 62 64", "--greedy", "--max-new-tokens", "6").stdout
    assert written.startswith("60 62 64")
    assert all(number.isdigit() for number in written.split())
    assert_one_error_line(pellucid("generate", run, "--prompt", "Once"), 3, "'Once' is none of the ids 0 to 71")
    assert_one_error_line(pellucid("evaluate", run, "--text", "corpus.txt"), 3, "is none of the ids 0 to 71")
    assert_one_error_line(pellucid("chat", run, "--prompt", "60"), 2, "was not trained on conversations")
    tuned = pellucid("train", "fine_tune", "corpus.files=corpus.txt", f"start_from={run}")
    assert_one_error_line(tuned, 3, "tokenizer: its vocabulary is of ids, and the corpus is not; ")
