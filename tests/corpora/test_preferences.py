"""Preference files are read pair by pair; one that says nothing about a preference is refused in one line."""

import json

import datasets
import pytest

from pellucid.corpora.preferences import preferences
from pellucid.errors import DataError

PAIRS = [
    {"prompt": f"Who found the {thing}?", "chosen": f"The fox found the {thing}.", "rejected": "I do not know."}
    for thing in ("cheese", "corn", "key", "hat", "ring", "boat", "egg", "nut", "pie", "shoe")
]


def write(folder, rows, name="pairs.jsonl"):
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return preferences([str(file)], 0.2)


def test_each_pair_is_two_conversations_the_chosen_one_first(tmp_path):
    corpus = write(tmp_path, PAIRS)
    train, held_out = ([*corpus.conversations(split)] for split in ("train", "validation"))
    assert (len(train), len(held_out)) == (16, 4)
    assert [[tuple(turn) for turn in turns] for turns in train[:2]] == [
        [("user", PAIRS[0]["prompt"]), ("assistant", PAIRS[0][side])] for side in ("chosen", "rejected")
    ]
    texts = {turns[1].text for turns in (*train, *held_out)}
    assert texts == {pair[side] for pair in PAIRS for side in ("chosen", "rejected")}


RANKINGS = [
    {"prompt": pair["prompt"], "ranked": [pair["chosen"], f"The hen did, {i}.", pair["rejected"]]}
    for i, pair in enumerate(PAIRS)
]


def write_rankings(folder, rows, answers=3):
    write(folder, rows)
    return preferences([str(folder / "pairs.jsonl")], 0.2, answers)


def test_each_ranking_is_as_many_conversations_the_best_answer_first(tmp_path):
    corpus = write_rankings(tmp_path, RANKINGS)
    train, held_out = ([*corpus.conversations(split)] for split in ("train", "validation"))
    assert (len(train), len(held_out)) == (24, 6)
    assert [[tuple(turn) for turn in turns] for turns in train[:3]] == [
        [("user", RANKINGS[0]["prompt"]), ("assistant", answer)] for answer in RANKINGS[0]["ranked"]
    ]
    assert corpus.identity["answers"] == 3
    assert "answers" not in write(tmp_path, PAIRS).identity, "what was prepared before is still found"


def test_rankings_that_are_read_as_pairs_and_pairs_as_rankings_are_refused(tmp_path):
    with pytest.raises(DataError, match="no column chosen or rejected, .* or set corpus.answers to the number of"):
        [*write(tmp_path, RANKINGS).conversations("train")]
    with pytest.raises(DataError, match="no column ranked, only prompt, chosen, rejected; name the columns prompt, r"):
        [*write_rankings(tmp_path, PAIRS).conversations("train")]


def test_an_error_names_the_number_of_the_pair_also_among_thousands(tmp_path):
    corpus = write(tmp_path, [*PAIRS * 300, {**PAIRS[0], "chosen": ""}])
    with pytest.raises(DataError, match="pair 3,001: chosen is empty"):
        [*corpus.conversations("train")]


def test_parquet_and_other_columns_and_lines_say_the_same(tmp_path):
    in_lines = write(tmp_path, PAIRS)
    datasets.Dataset.from_list([{**pair, "score": 1.0} for pair in PAIRS]).to_parquet(tmp_path / "pairs.parquet")
    in_parquet = preferences([str(tmp_path / "*.parquet")], 0.2)
    assert [*in_parquet.conversations("train")] == [*in_lines.conversations("train")]


def test_the_identity_is_that_of_the_contents(tmp_path):
    before = write(tmp_path, PAIRS).identity
    assert write(tmp_path, PAIRS, "others.jsonl").identity == before
    assert write(tmp_path, [*PAIRS[:-1], {**PAIRS[-1], "chosen": "The hen did."}]).identity != before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"rejected": PAIRS[3]["chosen"]}, "pair 4: chosen and rejected are the same answer"),
        ({"chosen": " "}, "pair 4: chosen is empty; leave out this pair"),
        ({"prompt": ""}, "pair 4: prompt is empty"),
        ({"rejected": None}, "pair 4: rejected is missing"),
        ({"rejected": 7}, "pair 4: rejected holds int, not text"),
        ({"ranked": ["The fox.", "The hen."]}, "ranking 4: the number of ranked answers is 2, but corpus.answers is 3"),
        ({"ranked": ["A fox.", "A hen.", "A fox."]}, "ranking 4: two answers are the same answer: nothing was"),
        ({"ranked": ["The fox.", "", "The hen."]}, "ranking 4: answer 2 is empty; leave out this ranking"),
        ({"ranked": ["The fox.", None, "The hen."]}, "ranking 4: answer 2 is missing; write all of it"),
        ({"ranked": None}, "ranking 4: the number of ranked answers is 1, but corpus.answers is 3"),
    ],
)
def test_a_pair_or_a_ranking_that_says_nothing_is_refused(tmp_path, change, error):
    rows, read = (RANKINGS, write_rankings) if "ranked" in change else (PAIRS, write)
    corpus = read(tmp_path, [*rows[:3], {**rows[3], **change}, *rows[4:]])
    with pytest.raises(DataError, match=error):
        [*corpus.conversations("train")]


@pytest.mark.parametrize("files", [["a.csv"], ["a.jsonl", "b.parquet"], ["pairs"]])
def test_files_of_another_format_or_of_several_are_refused(files):
    with pytest.raises(DataError, match="corpus.files: .*name files of one suffix"):
        preferences(files, 0.1)
