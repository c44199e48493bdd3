"""Corpora that are prepared in parts: by several processes, and in several goes."""

import asyncio
import io
import json
import random

import datasets
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import foreign_tokenizers
from pellucid.corpora import local_files, text_files
from pellucid.corpora.hugging_face import HuggingFaceCorpus
from pellucid.corpora.text_files import TextFilesCorpus
from pellucid.data import encoding, prepare
from pellucid.data.prepare import write_split
from pellucid.data.token_file import documents_path
from pellucid.errors import DataError, InputOutputError
from pellucid.files import sha256
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs

END = "<|endoftext|>"
WORDS = [
    "fox",
    "crow,",
    "naïve",
    "猫が",
    "e\u0301",
    "👩‍👩‍👧",
    "\u3000",
    "\xa0x",
    "1984",
    "\t",
    "\x1c",
    "\r",
    END,
    "\ufeffb",
]
BLANKS = [" ", " ", " ", "  ", "\n", "\n\n", "\n\n\n", " \n"]


def unusual_text(n_words, seed=0):
    draw = random.Random(seed)
    return "".join(draw.choice(WORDS) + draw.choice(BLANKS) for _ in range(n_words)) + "."


TOKENIZER = train_byte_pairs([unusual_text(3000)], vocab_size=400, special_tokens=[END])


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few hundred bytes. Tests start processes only where they are what is tested: each takes a second."""
    monkeypatch.setattr(text_files, "PART_BYTES", 500)
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 64)
    monkeypatch.setattr("pellucid.corpora.corpus.PART_BYTES", 500)
    monkeypatch.setattr(encoding, "PARTS_WITHOUT_PROCESSES", 10_000)


def joined(parts):
    """Documents, a mark at the end of each."""
    return "".join(piece.text + ("¶" if piece.ends_document else "") for part in parts for piece in part)


@pytest.mark.parametrize("separator", [None, "\n\n", "\n", " ", "crow,"])
@pytest.mark.parametrize("seed", range(2))
def test_parts_hold_the_documents_of_the_whole(tmp_path, small_parts, separator, seed):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(unusual_text(1200, seed), encoding="utf-8", newline="")
    corpus = TextFilesCorpus([f"{tmp_path}/*.txt"], separator=separator)
    for split in ("train", "validation"):
        parts = list(corpus.parts(split))
        assert len(parts) > 2
        assert joined(parts) == joined([corpus.pieces(split)])
        assert encoded_text(parts) == encoded_text([corpus.pieces(split)])


def encoded_text(parts, tokenizer=TOKENIZER):
    return [id_ for encoded in encoding.encode_parts(tokenizer, map(list, parts)) for id_ in encoded.tokens.tolist()]


@pytest.mark.parametrize(
    "text", ["x" * 20_000, "猫" * 9000, "a" * 9000 + " b" * 900, "\u3000\n" * 3000, " " * 9000 + "."]
)
def test_words_without_an_end_are_cut_where_they_would_be_without_parts(tmp_path, small_parts, text):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = TextFilesCorpus([f"{tmp_path}/a.txt"])
    assert joined(corpus.parts("train")) == joined([corpus.pieces("train")])
    assert encoded_text(corpus.parts("train")) == encoded_text([corpus.pieces("train")])


def a_corpus(kind, folder):
    text = unusual_text(2000)
    match kind:
        case "text":
            (folder / "a.txt").write_text(text, encoding="utf-8", newline="")
            return TextFilesCorpus([f"{folder}/a.txt"])
        case "separator":
            (folder / "a.txt").write_text(text, encoding="utf-8", newline="")
            return TextFilesCorpus([f"{folder}/a.txt"], separator="\n\n")
        case "json":
            rows = (json.dumps({"text": row}) + "\n" for row in text.split("\n\n"))
            (folder / "a.jsonl").write_text("".join(rows), encoding="utf-8")
            return HuggingFaceCorpus("json", data_files=f"{folder}/a.jsonl", streaming=True)


def written(corpus, path, tokenizer=TOKENIZER, **options):
    """Counts and bytes of the training split's token file."""
    parts = corpus.parts("train")
    counts = write_split(parts, tokenizer, path, name="train", **options)
    return counts, path.read_bytes(), documents_path(path).read_bytes()


LLAMA = Tokenizer.from_json(foreign_tokenizers.llama().to_str())


@pytest.mark.parametrize(
    ("kind", "tokenizer", "n_processes"), [("text", TOKENIZER, 2), ("json", TOKENIZER, 1), ("text", LLAMA, 1)]
)
def test_n_processes_write_the_bytes_of_one(tmp_path, small_parts, monkeypatch, kind, tokenizer, n_processes):
    """Also with a tokenizer whose tokens are not those of words, as in Llama 3."""
    assert tokenizer.has_words == (tokenizer is TOKENIZER)
    corpus = a_corpus(kind, tmp_path)
    alone = written(corpus, tmp_path / "1.bin", tokenizer)
    monkeypatch.setattr(encoding, "PARTS_WITHOUT_PROCESSES", 1)
    assert written(corpus, tmp_path / "n.bin", tokenizer, n_processes=n_processes) == alone


def test_parts_do_not_cut_tokens_that_reach_from_a_full_stop_into_the_next_line(tmp_path, small_parts):
    """As in Llama 3, whose tokens do not end where words end."""
    (tmp_path / "a.txt").write_text("The hen is gone...\n\n" * 2000, encoding="utf-8", newline="")
    corpus = TextFilesCorpus([f"{tmp_path}/a.txt"])
    assert len(list(corpus.parts("train"))) > 10
    assert encoded_text(corpus.parts("train"), LLAMA) == encoded_text([corpus.pieces("train")], LLAMA)


class Stopped(BaseException):
    """As KeyboardInterrupt."""


class StopsAt(TextFilesCorpus):
    """A text corpus that can be read up to a part of the training split, and then no further."""

    def __init__(self, corpus, n_parts):
        self.__dict__ |= corpus.__dict__
        self.n_parts = n_parts

    def parts(self, split):
        for i, part in enumerate(super().parts(split)):
            if split == "train" and i == self.n_parts:
                raise Stopped
            yield part


@pytest.fixture
def records_often(small_parts, monkeypatch):
    monkeypatch.setattr(prepare, "PARTS_BETWEEN_RECORDS", 4)


def prepared(corpus, root, learned=None):
    def learn(*_texts):
        if learned is not None:
            learned.append(True)
        return TOKENIZER

    directory, _ = prepare.prepare(corpus, learn, {"vocab_size": 400}, name="text", root=root)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("stops", [(3,), (4,), (9, 13, 17), (5, 5)])
def test_a_preparation_that_was_stopped_goes_on_and_ends_the_same(tmp_path, records_often, stops):
    corpus = a_corpus("text", tmp_path)
    expected = prepared(corpus, tmp_path / "undisturbed")
    learned = []
    for stop in stops:
        with pytest.raises(Stopped):
            prepared(StopsAt(corpus, stop), tmp_path / "data", learned)
    assert prepared(corpus, tmp_path / "data", learned) == expected
    assert len(learned) == (2 if stops == (3,) else 1), "the tokens are learned once, if anything was recorded"
    assert not list((tmp_path / "data").glob(".tmp-*"))


@pytest.mark.parametrize("file", ["train.bin", "train.documents.bin", "tokenizer.json", "progress.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_an_unfinished_folder_that_was_damaged_is_not_used(tmp_path, records_often, file, damage):
    corpus = a_corpus("separator", tmp_path)
    expected = prepared(corpus, tmp_path / "undisturbed")
    with pytest.raises(Stopped):
        prepared(StopsAt(corpus, 9), tmp_path / "data")
    [draft] = (tmp_path / "data").glob(".tmp-*")
    content = bytearray((draft / file).read_bytes())
    (draft / file).unlink()
    match damage:
        case "flip":
            content[3] ^= 1
            (draft / file).write_bytes(content)
        case "cut":
            (draft / file).write_bytes(content[:7])
    assert prepared(corpus, tmp_path / "data") == expected


def test_little_text_records_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "write_progress", None)
    prepared(a_corpus("text", tmp_path), tmp_path / "data")


def test_a_corpus_that_is_edited_between_two_goes_starts_anew(tmp_path, records_often):
    corpus = a_corpus("text", tmp_path)
    with pytest.raises(Stopped):
        prepared(StopsAt(corpus, 9), tmp_path / "data")
    text = (tmp_path / "a.txt").read_bytes()
    (tmp_path / "a.txt").write_bytes(text.replace(b"crow", b"wolf"))
    edited = TextFilesCorpus([f"{tmp_path}/a.txt"])
    assert prepared(edited, tmp_path / "data") == prepared(edited, tmp_path / "undisturbed")


def test_a_corpus_that_is_edited_while_it_is_read_is_refused(tmp_path, records_often, monkeypatch):
    corpus = a_corpus("text", tmp_path)
    text = (tmp_path / "a.txt").read_bytes()

    def edit_then_write(*arguments, **options):
        (tmp_path / "a.txt").write_bytes(text.replace(b"crow", b"wolf"))
        return write_split(*arguments, **options)

    monkeypatch.setattr(prepare, "write_split", edit_then_write)
    with pytest.raises(DataError, match="was changed while it was read"):
        prepared(corpus, tmp_path / "data")
    assert not [path for path in (tmp_path / "data").iterdir() if path.is_dir()]


def test_an_edit_that_is_undone_after_a_stop_leaves_nothing_in_what_was_recorded(tmp_path, records_often):
    corpus, file = a_corpus("text", tmp_path), tmp_path / "a.txt"
    text = file.read_bytes()
    expected = prepared(corpus, tmp_path / "undisturbed")

    class EditedOnTheWay(StopsAt):
        def parts(self, split):
            for i, part in enumerate(super().parts(split)):
                if i == 6:
                    file.write_bytes(text.replace(b"crow", b"wolf"))
                yield part

    learned = []
    with pytest.raises((DataError, Stopped)):
        prepared(EditedOnTheWay(corpus, 14), tmp_path / "data", learned)
    file.write_bytes(text)
    assert prepared(corpus, tmp_path / "data", learned) == expected
    assert len(learned) == 1, "what was recorded before the edit is used"


@pytest.fixture
def streamed(monkeypatch):
    """`streamed(n_breaks)`: a corpus on a server, whose connection breaks at three quarters, so many times."""

    def corpus(n_breaks):
        breaks = iter(range(n_breaks))
        rows = "".join(json.dumps({"text": row}) + "\n" for row in unusual_text(2000).split("\n\n")).encode()

        class Connection(io.BytesIO):
            def read(self, _size=-1):
                if self.tell() > len(rows) * 3 // 4 and next(breaks, None) is not None:
                    raise asyncio.TimeoutError
                return super().read(1000)

        fsspec.filesystem("memory").pipe("/stories.jsonl", rows)
        monkeypatch.setattr(MemoryFileSystem, "open", lambda *_, **__: Connection(rows))
        return HuggingFaceCorpus("json", data_files="memory://stories.jsonl", streaming=True)

    monkeypatch.setattr(datasets.config, "STREAMING_READ_MAX_RETRIES", 4)
    monkeypatch.setattr(datasets.config, "STREAMING_READ_RETRY_INTERVAL", 0)
    yield corpus
    fsspec.filesystem("memory").rm("/stories.jsonl")


def test_a_stream_that_breaks_for_a_while_gives_the_same_bytes(tmp_path, records_often, streamed, caplog):
    expected = prepared(streamed(0), tmp_path / "undisturbed")
    assert prepared(streamed(3), tmp_path / "data") == expected
    assert caplog.text.count("Got disconnected") == 3


def test_a_stream_that_breaks_for_good_is_an_error_and_goes_on_another_time(tmp_path, records_often, streamed):
    expected = prepared(streamed(0), tmp_path / "undisturbed")
    learned = []
    with pytest.raises(InputOutputError, match=r"cannot read split train: Server Disconnected; check the network"):
        prepared(streamed(10_000), tmp_path / "data", learned)
    assert not list((tmp_path / "data").glob("text-*")), "nothing that looks whole"
    assert prepared(streamed(0), tmp_path / "data", learned) == expected
    assert len(learned) == 1


def test_a_text_is_hashed_once_however_often_it_is_recorded_how_far_it_is(tmp_path, records_often, monkeypatch):
    hashed = []
    monkeypatch.setattr(local_files, "sha256", lambda path: hashed.append(path) or sha256(path))
    prepared(a_corpus("text", tmp_path), tmp_path / "data")
    assert len(hashed) == len(set(hashed)) == 1
