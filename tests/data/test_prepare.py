import hashlib
import json
import logging
import math
import multiprocessing
import os
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from listed_corpus import ListedCorpus
from pellucid.corpora import corpus as corpus_module
from pellucid.corpora import local_files
from pellucid.corpora.corpus import Corpus, Piece
from pellucid.corpora.text_files import TextFilesCorpus
from pellucid.data.prepare import _checksums, fingerprint_of, prepare, read_manifest
from pellucid.data.token_file import TokenFile
from pellucid.data.token_truth import TokenTruth
from pellucid.errors import DataError, InputOutputError
from pellucid.files import sha256
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

END = "<|endoftext|>"
SETTINGS = {"type": "bpe", "vocab_size": 300}
STORIES = [f"The {animal} ate {n} figs – and left." for animal in ("fox", "hen", "crow") for n in range(9)]


class Stories(Corpus):
    """A corpus of a list of stories, the last five held out."""

    def __init__(self, stories=STORIES):
        self.stories = stories

    @property
    def identity(self):
        return {"type": "stories", "stories": self.stories}

    def pieces(self, split):
        stories = self.stories[:-5] if split == "train" else self.stories[-5:]
        return (Piece(story, ends_document=True) for story in stories)


def byte_pairs(train_texts, validation_texts):
    return train_byte_pairs(train_texts, vocab_size=300, special_tokens=[END])


def must_not_train(*_):
    raise AssertionError("prepared again")


def prepared(corpus, root, train=byte_pairs, tokenizer_settings=SETTINGS):
    return prepare(corpus, train, tokenizer_settings, name="stories", root=root)


def read(directory, file, vocab_size):
    """The documents of a token file as text."""
    tokenizer = Tokenizer.load(directory / "tokenizer.json")
    tokens = TokenFile.open(directory / file, vocab_size)
    edges = tokens.boundaries.tolist()
    assert set(np.flatnonzero(tokens.tokens == tokenizer.end_of_text).tolist()) == set(edges)
    return [tokenizer.decode(tokens.tokens[a + 1 : b].tolist()) for a, b in pairwise(edges)]


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_prepared_tokens_are_the_documents_and_the_manifest_counts_them(tmp_path):
    directory, manifest = prepared(Stories(), tmp_path)
    assert read(directory, "train.bin", manifest.vocab_size) == STORIES[:-5]
    assert read(directory, "val.bin", manifest.vocab_size) == STORIES[-5:]
    text = "".join(STORIES[-5:])
    counts = manifest.validation
    assert (counts.documents, counts.characters, counts.bytes) == (5, len(text), len(text.encode()))
    assert counts.bytes > counts.characters
    assert counts.tokens == TokenFile.open(directory / "val.bin", manifest.vocab_size).n_targets
    assert manifest.vocab_size == Tokenizer.load(directory / "tokenizer.json").vocab_size
    assert (manifest.validation_nats, manifest.skills) == (None, []), "nobody knows the truth about these"
    assert not (directory / "val.nats.bin").exists()


def test_text_that_spells_a_control_token_ends_no_document(tmp_path):
    stories = [f"a {END} b"] * 9
    directory, manifest = prepared(Stories(stories), tmp_path)
    assert read(directory, "train.bin", manifest.vocab_size) == stories[:-5]


def test_the_truth_about_the_validation_documents_is_written_beside_them(tmp_path):
    corpus = ListedCorpus(dict.fromkeys(STORIES, 1 / len(STORIES)), n_validation=5)
    directory, manifest = prepared(corpus, tmp_path)
    assert manifest.validation_nats == pytest.approx(5 * math.log(len(STORIES)), rel=1e-12)
    truth = TokenTruth.open(directory, manifest.skills)
    assert truth.skills == corpus.language.skills
    assert truth.nats.sum() == pytest.approx(manifest.validation_nats)
    assert len(truth.nats) == manifest.validation.tokens
    assert prepared(corpus, tmp_path, must_not_train) == (directory, manifest)


def test_prepared_data_is_used_again_and_equal_when_made_again(tmp_path):
    directory, manifest = prepared(Stories(), tmp_path / "a")
    assert prepared(Stories(), tmp_path / "a", must_not_train) == (directory, manifest)
    again, _ = prepared(Stories(), tmp_path / "b")
    assert again.name == directory.name
    assert contents(again) == contents(directory)


def test_other_text_or_settings_have_another_fingerprint():
    first = fingerprint_of(Stories().identity, SETTINGS)
    assert fingerprint_of(Stories(STORIES[1:]).identity, SETTINGS) != first
    assert fingerprint_of(Stories().identity, {**SETTINGS, "vocab_size": 301}) != first
    assert fingerprint_of(Stories().identity, SETTINGS) == first
    assert len(first) == 12


FILES = [
    *("tokenizer.json", "train.bin", "train.documents.bin", "val.bin", "val.documents.bin", "manifest.json"),
    "SHA256SUMS",
]


DAMAGES = ["remove", "truncate", "empty", "lengthen", "folder", "remove", "truncate"]


@pytest.mark.parametrize(("file", "damage"), [*zip(FILES, DAMAGES, strict=True)])
def test_damaged_data_is_made_again_and_a_warning_says_so(tmp_path, caplog, file, damage):
    caplog.set_level("WARNING", logger="pellucid")
    directory, _ = prepared(Stories(), tmp_path)
    good = contents(directory)
    assert good.keys() == set(FILES)
    path = directory / file
    match damage:
        case "remove":
            path.unlink()
        case "truncate":
            path.write_bytes(path.read_bytes()[:-2])
        case "empty":  # as a power loss leaves a file that was renamed before it was on the disk
            path.write_bytes(b"")
        case "lengthen":
            path.write_bytes(path.read_bytes() + b"{}")
        case "folder":
            path.unlink()
            path.mkdir()
    assert prepared(Stories(), tmp_path)[0] == directory
    assert contents(directory) == good
    assert caplog.messages == [f"{directory} is not what was written there; preparing it again"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of prepared data, and what is in it."""
    directory, manifest = prepared(Stories(), tmp_path_factory.mktemp("whole"))
    return directory, manifest, contents(directory)


@given(st.data())
def test_no_byte_of_any_file_can_change_unnoticed(whole, data):
    directory, manifest, good = whole
    file = data.draw(st.sampled_from(FILES))
    place = data.draw(st.integers(0, len(good[file]) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[file][place]))
    damaged = bytearray(good[file])
    damaged[place] = byte
    (directory / file).write_bytes(damaged)
    assert read_manifest(directory, manifest.fingerprint) is None
    (directory / file).write_bytes(good[file])
    assert read_manifest(directory, manifest.fingerprint) == manifest


def with_checksums(directory, manifest: str):
    """Another manifest, which the checksums vouch for."""
    (directory / "manifest.json").write_text(manifest, encoding="utf-8")
    (directory / "SHA256SUMS").write_bytes(_checksums(directory))


def test_a_foreign_manifest_is_not_believed(whole):
    directory, manifest, good = whole
    own = json.loads(good["manifest.json"])
    others = [
        *("", "[]", "{}", "\0", '{"train": {"documents": 1e999}}', "9" * 10_000),
        "[" * 100_000,
        '{"a":' * 100_000,
    ]
    others += [
        json.dumps({**own, "fingerprint": "0" * 12}),
        *(json.dumps({**own, key: "a"}) for key in own if key[0] != "f"),
    ]
    others += [json.dumps({**own, "vocab_size": True}), json.dumps({**own, "more": 1})]
    for other in others:
        with_checksums(directory, other)
        assert read_manifest(directory, manifest.fingerprint) is None, other[:40]
        for file in ("manifest.json", "SHA256SUMS"):
            (directory / file).write_bytes(good[file])


def test_checksums_are_those_of_sha256sum(tmp_path):
    directory, _ = prepared(Stories(), tmp_path)
    lines = [line.split("  ") for line in (directory / "SHA256SUMS").read_text().splitlines()]
    expected = {file: hashlib.sha256((directory / file).read_bytes()).hexdigest() for file in FILES[:-1]}
    assert {file: digest for digest, file in lines} == expected


def test_a_text_that_is_edited_while_it_is_read_is_refused_and_hashed_once(tmp_path, monkeypatch):
    hashed, file = [], tmp_path / "a.txt"
    monkeypatch.setattr(local_files, "sha256", lambda path: hashed.append(path) or sha256(path))
    file.write_text("the crow sat. " * 99, encoding="utf-8")

    def edit_and_learn(*texts):
        file.write_text("the wolf sat. " * 99, encoding="utf-8")
        return byte_pairs(*texts)

    with pytest.raises(DataError, match="was changed while it was read"):
        prepared(TextFilesCorpus([str(file)]), tmp_path / "data", edit_and_learn)
    assert hashed == [file]
    assert [path.suffix for path in (tmp_path / "data").iterdir()] == [".lock"]


def test_a_split_without_text_is_an_error_and_leaves_nothing_but_the_lock(tmp_path):
    with pytest.raises(DataError, match="train split: holds no text"):
        prepared(Stories(STORIES[:5]), tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def prepare_and_report(root, results, barrier):
    trained = []

    def train(*texts):
        trained.append(True)
        return byte_pairs(*texts)

    barrier.wait()
    directory, _ = prepared(Stories(), Path(root), train)
    results.put((bool(trained), sorted((name, len(content)) for name, content in contents(directory).items())))


def test_of_many_processes_one_prepares_and_all_find_it_whole(tmp_path):
    context = multiprocessing.get_context("spawn")
    n, results = 2, context.Queue()
    barrier = context.Barrier(n)
    processes = [context.Process(target=prepare_and_report, args=(tmp_path, results, barrier)) for _ in range(n)]
    for process in processes:
        process.start()
    reports = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    assert sum(trained for trained, _ in reports) == 1
    assert all(files == reports[0][1] for _, files in reports)


def test_a_disk_that_cannot_be_written_is_an_input_output_error_and_no_draft_is_left(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputOutputError, match="cannot write prepared data"):
        prepared(Stories(), tmp_path / "file" / "data")

    def full(_writer, ids, ends=()):
        if len(ids) > 1:  # the first end_of_text is still in Python's buffer
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("pellucid.data.token_file.TokenFileWriter.append", full)
    with pytest.raises(InputOutputError, match="No space left on device"):
        prepared(Stories(), tmp_path / "data")
    assert [path.suffix for path in (tmp_path / "data").iterdir()] == [".lock"]


STREAM_TOKENIZER = train_byte_pairs(["ab c 'a ab\n1. b' " * 9], vocab_size=300, special_tokens=[END])


@given(
    st.text(st.sampled_from("ab c\n\t\x1c'.1é猫"), min_size=2, max_size=300),
    st.integers(1, 20),
)
def test_tokens_do_not_depend_on_where_a_stream_is_cut(text, piece_length):
    text += "."  # a text without any visible character is no document
    longest_word = max(map(len, words_of(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "PIECE_LENGTH", piece_length + longest_word)
        pieces = [piece.text for piece in corpus_module.cut_into_pieces([text])]
    assert "".join(pieces) == text
    splits = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)
    assert set(accumulate(map(len, pieces))) <= {end for _, (_, end) in splits}, "as any merges demand"
    assert [id_ for piece in pieces for id_ in STREAM_TOKENIZER.encode(piece)] == STREAM_TOKENIZER.encode(text)


def words_of(text):
    """The texts between the places at which a stream may be cut."""
    words, start = [], 0
    for i in range(1, len(text)):
        if text[i] in " \n" and not text[i - 1].isspace():
            words.append(text[start:i])
            start = i
    return [*words, text[start:]]


def test_characters_are_split_as_in_nanogpt(tmp_path):
    """Its 65 characters and the first int(0.9 * length) of them to train on, for tiny Shakespeare's 1,115,394."""
    characters = "".join(map(chr, range(ord(" "), ord(" ") + 65)))
    text = (characters * 17_160)[:1_115_394]
    (tmp_path / "play.txt").write_text(text, encoding="utf-8")

    def train(texts, more):
        return train_characters([*texts, *more], special_tokens=[END])

    directory, manifest = prepared(TextFilesCorpus([os.fspath(tmp_path / "play.txt")]), tmp_path / "data", train)
    cut = int(0.9 * len(text))
    assert read(directory, "val.bin", manifest.vocab_size) == [text[cut:]]
    assert read(directory, "train.bin", manifest.vocab_size) == [text[:cut]]
    assert (manifest.train.characters, manifest.validation.characters) == (1_003_854, 111_540)
    assert manifest.vocab_size == 65 + 1


def test_one_line_says_what_is_in_prepared_files_and_what_was_left_out(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO", logger="pellucid")
    Path("a.txt").write_text("one--two--three", encoding="utf-8")
    prepared(TextFilesCorpus(["a.txt"], separator="--"), tmp_path / "data")
    Path("b.txt").symlink_to("a.txt")
    Path("c.txt").write_text("four", encoding="utf-8")
    prepared(TextFilesCorpus(["*.txt"], separator="--"), tmp_path / "data")
    prepared(TextFilesCorpus(["*.txt"], separator="--"), tmp_path / "data")
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.INFO, "1 file: 2 documents to train on, 1 held out"),
        (logging.WARNING, "2 files: 3 documents to train on, 1 held out; each file is read once: b.txt is a.txt"),
    ]
