import json
from pathlib import Path

import datasets
import pytest

from pellucid.config.data import ConversationsConfig
from pellucid.corpora.build import build_corpus
from pellucid.corpora.corpus import ConversationCorpus, Turn
from pellucid.errors import DataError

PAIRS = [(f"Who is number {i}?", f"I am number {i}.") for i in range(20)]
MESSAGES = [
    {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}], "n": i}
    for i, (question, answer) in enumerate(PAIRS)
]
COLUMNS = [{"n": i, "prompt": question, "answer": answer} for i, (question, answer) in enumerate(PAIRS)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    datasets.disable_progress_bars()
    return tmp_path


def lines(name: str, records: list) -> str:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return name


def corpus_of(*files: str, **knobs) -> ConversationCorpus:
    corpus = build_corpus(ConversationsConfig(type="conversations", files=files, **knobs))
    assert isinstance(corpus, ConversationCorpus)
    return corpus


def said(corpus: ConversationCorpus, split: str) -> list[tuple[str, ...]]:
    return [tuple(turn.text for turn in turns) for turns in corpus.conversations(split)]


@pytest.mark.parametrize("records", [MESSAGES, COLUMNS], ids=["messages", "columns"])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "csv"])
def test_every_tenth_conversation_of_a_file_is_held_out_whatever_its_format(records, suffix):
    if suffix == "csv" and records is MESSAGES:
        return  # a cell holds no list
    file = f"chats.{suffix}"
    if suffix == "jsonl":
        lines(file, records)
    elif suffix == "json":
        Path(file).write_text(json.dumps(records), encoding="utf-8")
    else:
        getattr(datasets.Dataset.from_list(records), f"to_{suffix}")(file)
    corpus = corpus_of(file)
    assert said(corpus, "validation") == [PAIRS[9], PAIRS[19]]
    assert said(corpus, "train") == [pair for pair in PAIRS if pair not in (PAIRS[9], PAIRS[19])]
    assert [(piece.text, piece.ends_document) for piece in corpus.pieces("validation")] == [
        (text, True) for text in (*PAIRS[9], *PAIRS[19])
    ]


def test_files_to_validate_on_are_held_out_whole_and_globs_are_understood():
    lines("a-1.jsonl", COLUMNS[:3]), lines("a-2.jsonl", COLUMNS[3:6]), lines("b.jsonl", COLUMNS[6:7])
    corpus = corpus_of("a-*.jsonl", validation_files=("b.jsonl",))
    assert (said(corpus, "train"), said(corpus, "validation")) == (PAIRS[:6], PAIRS[6:7])
    assert sorted(path.name for path in corpus.local_files()) == ["a-1.jsonl", "a-2.jsonl", "b.jsonl"]


def test_columns_may_have_other_names():
    lines("a.jsonl", [{"question": "Who?", "reply": "Me."}])
    corpus = corpus_of("a.jsonl", prompt_field="question", answer_field="reply")
    assert said(corpus, "train") == [("Who?", "Me.")]


def test_a_conversation_has_many_turns_and_what_the_system_says_is_put_before_the_first():
    roles = ("system", "user", "assistant", "user", "assistant")
    long = [{"role": role, "content": f"{role} {i}"} for i, role in enumerate(roles)]
    corpus = corpus_of(lines("a.jsonl", [{"messages": long}]))
    [turns] = corpus.conversations("train")
    assert turns == [
        Turn("user", "system 0\n\nuser 1"),
        Turn("assistant", "assistant 2"),
        Turn("user", "user 3"),
        Turn("assistant", "assistant 4"),
    ]


def test_a_thought_is_the_beginning_of_the_answer_and_only_the_assistants():
    asked, answer = message("user", "Who?"), message("assistant", "Me.")
    thinking = [asked, answer | {"reasoning_content": "Who is it?"}, asked, answer | {"reasoning_content": None}]
    corpus = corpus_of(lines("a.jsonl", [{"messages": thinking}]))
    [turns] = corpus.conversations("train")
    assert [turn.text for turn in turns[1::2]] == ["<think>Who is it?</think>Me.", "Me."]
    assert corpus.notes() == []
    for place, thought in ((0, "Hm."), (1, 7)):
        messages = [asked, answer]
        messages[place] = messages[place] | {"reasoning_content": thought}
        with pytest.raises(DataError, match=f"line 1, turn {place + 1}, reasoning_content: a thought is text, and"):
            said(corpus_of(lines("b.jsonl", [{"messages": messages}])), "train")


def test_other_contents_are_another_corpus_and_the_same_contents_the_same():
    identities = []
    for records in (COLUMNS, COLUMNS[:-1], COLUMNS):
        lines("a.jsonl", records)
        identities.append(corpus_of("a.jsonl").identity)
    assert identities[0] == identities[2] != identities[1]
    assert json.loads(json.dumps(identities[0])) == identities[0]


def message(role: object, content: object) -> dict[str, object]:
    return {"role": role, "content": content}


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"text": "Who?"}, "no column prompt; name a column by corpus.prompt_field, or give messages; there are text"),
        ({"prompt": "Who?"}, "no column answer; name a column by corpus.answer_field, or give messages; there are "),
        ({"prompt": "Who?", "answer": " \n"}, "turn 2 is empty; "),
        ({"prompt": "Who?", "answer": 7}, "turn 2 is int, not text; "),
        ({"messages": "Who?"}, "messages is not a list of messages; "),
        ({"messages": ["Who?"]}, "messages is not a list of messages; "),
        ({"messages": [message("user", "Who?")]}, "no answer at the end; "),
        ({"messages": [message("system", "Be kind.")]}, "no answer at the end; "),
        ({"messages": [message("assistant", "Me.")]}, "turn 1 is of 'assistant', not of the user; "),
        ({"messages": [message("user", "Who?"), message("tool", "7")]}, "turn 2 is of 'tool', not of the assistant; "),
        ({"messages": [message("system", "Be kind."), message("assistant", "Me.")]}, "turn 2 is of 'assistant', not"),
        ({"messages": [{"from": "human", "value": "Who?"}]}, "turn 1 is empty; "),
        (
            {"messages": [message("user", "Who?"), message("assistant", "") | {"reasoning_content": "Me?"}]},
            "turn 2 is empty; ",
        ),
    ],
)
def test_a_record_that_is_no_conversation_is_refused_in_one_line_with_its_number(record, error):
    good = MESSAGES[:4] if "messages" in record else []
    lines("bad.jsonl", [*good, record])
    with pytest.raises(DataError) as refused:
        list(corpus_of("bad.jsonl").pieces("train"))
    assert str(refused.value).startswith(f"bad.jsonl, line {len(good) + 1}: {error}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("knobs", "error"),
    [
        ({}, "files: give either files or path; "),
        ({"files": ("a.jsonl",), "path": "b"}, "files: give either files or path; "),
        ({"files": ("a.txt",)}, "files: they end in none of .jsonl, .json, .parquet, .csv, .tsv, or not all alike; "),
        ({"files": ("a.json", "b.csv")}, "files: they end in none of "),
        ({"path": "b", "validation_files": ("a.json",)}, "validation_files: they go with files alone; "),
        ({"files": ("a.json",), "validation_split": "test"}, "validation_split: it goes with path alone; "),
    ],
)
def test_knobs_that_contradict_each_other_are_refused(knobs, error):
    with pytest.raises(ValueError, match="Value error, " + error.replace(".", r"\.")):
        ConversationsConfig(type="conversations", **knobs)


def test_a_data_set_of_a_folder_or_the_hub_has_splits_of_its_own(place):
    (place / "set").mkdir()
    for name, records in (("train", MESSAGES[:4]), ("test", MESSAGES[4:6])):
        lines(f"set/{name}.jsonl", records)
    config = ConversationsConfig(type="conversations", path="set", validation_split="test")
    corpus = build_corpus(config)
    assert isinstance(corpus, ConversationCorpus)
    assert (said(corpus, "train"), said(corpus, "validation")) == (PAIRS[:4], PAIRS[4:6])
    lines("set/test.jsonl", [{"messages": []}])
    with pytest.raises(DataError, match=r"set/test.jsonl, line 1: no answer at the end; "):
        list(build_corpus(config).pieces("validation"))


def test_a_turn_that_is_not_to_be_learned_is_refused_and_a_note_names_keys_that_are_not_read():
    asked, answer = message("user", "Who?"), message("assistant", "Me.")
    lines("a.jsonl", [{"messages": [asked | {"name": None}, answer | {"weight": 1, "name": "bot"}]}])
    corpus = corpus_of("a.jsonl")
    assert said(corpus, "train") == [("Who?", "Me.")]
    assert corpus.notes() == ["keys of messages that are not read: name"]
    lines("a.jsonl", [{"messages": [asked, answer | {"weight": 0}, asked, answer]}])
    with pytest.raises(DataError, match=r"a.jsonl, line 1: turn 2 has the weight 0; every answer is learned: "):
        said(corpus_of("a.jsonl"), "train")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_records_of_both_kinds_may_stand_in_one_file(suffix):
    nothing = {"messages": None, "prompt": None, "answer": None}
    records = [nothing | COLUMNS[0], nothing | MESSAGES[1]]
    if suffix == "jsonl":
        lines("a.jsonl", [*records, COLUMNS[2]])
    else:
        datasets.Dataset.from_list([*records, nothing | COLUMNS[2]]).to_parquet("a.parquet")
    assert said(corpus_of(f"a.{suffix}"), "train") == PAIRS[:3]


def test_numbers_truth_values_and_dates_in_a_file_of_text_are_answers():
    answers = ["4", "true", "None", "1969-07-21"]
    Path("a.csv").write_text("prompt,answer\n" + "".join(f"What?,{answer}\n" for answer in answers))
    lines("b.jsonl", [{"prompt": "What?", "answer": answer} for answer in answers])
    for file in ("a.csv", "b.jsonl"):
        assert said(corpus_of(file), "train") == [("What?", answer) for answer in answers]
