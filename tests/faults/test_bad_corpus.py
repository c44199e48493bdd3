"""F16: whatever lies where the corpus should be, it is trained on as it is, or refused with its file and its byte.

That the byte is the right one for each fault at each place, and the line for rows, tests/corpora shows.
"""

import codecs
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

import datasets
import numpy as np
import pytest

from pellucid.data.token_file import TokenFile
from pellucid.tokenizer import Tokenizer
from processes import command_line
from tiny_run import TINY_RUN, VERSES, Result, assert_one_error_line

BYTE_PAIRS, CHARACTERS = "tokenizer={type: bpe, vocab_size: 300}", "tokenizer={type: char}"
TEXT = VERSES.encode()
END = "<|endoftext|>"

WORKS = {
    "a byte-order mark": codecs.BOM_UTF8 + TEXT,
    "a byte-order mark in mid-text": TEXT + codecs.BOM_UTF8 + TEXT,
    "CRLF": TEXT.replace(b"\n", b"\r\n"),
    "lone CR": TEXT.replace(b"\n", b"\r"),
    "control tokens spelled out": f"{VERSES}{END}\n\n{END * 9}{VERSES}<|endof{END}text|>".encode(),
    "one line": TEXT.replace(b"\n", b" "),
    "control characters": TEXT + bytes(range(1, 32)) * 9,
    "characters of many code points": "👩\u200d🚀e\u0301\u0323".encode() * 99,
}
REFUSED = {
    "empty": (b"", ["corpus.txt: empty"]),
    "a byte-order mark alone": (codecs.BOM_UTF8, ["corpus.txt: empty"]),
    "blanks alone": (b" \t\r\n" * 999, ["holds no text"]),
    "one byte": (b"a", ["holds no text"]),
    "shorter than a context": (b"The fox.", ["tokens are fewer than one row", "model.context_length"]),
    "all bytes": (bytes(range(256)) * 9, ["corpus.txt: ", "at byte 0: a NUL"]),
    "all bytes but NUL": (bytes(range(1, 256)) * 9, ["corpus.txt: ", "at byte 127: "]),
    "PNG": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 99, ["corpus.txt: ", "at byte 0: "]),
    "Latin-1": (("né " * 99).encode("latin-1"), ["corpus.txt: ", "at byte 1: "]),
    "UTF-16": (VERSES.encode("utf-16"), ["corpus.txt: ", "at byte 0: the byte-order mark of UTF-16"]),
    "UTF-16 without a mark": (VERSES.encode("utf-16-le"), ["corpus.txt: ", "at byte 1: a NUL"]),
    "UTF-32": (VERSES.encode("utf-32"), ["corpus.txt: ", "at byte 0: "]),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, where we are, with a config that trains on corpus.txt, which is one document, for two steps."""
    monkeypatch.chdir(tmp_path)
    config = TINY_RUN.replace("steps: 20", "steps: 2").replace(', separator: "\\n\\n"', "")
    (tmp_path / "tiny.yaml").write_text(config.replace("packing: documents", "packing: contiguous"))
    return tmp_path


@pytest.fixture
def prepare(place: Path, pellucid: Callable[..., Result]) -> Callable[..., Result]:
    """`pellucid prepare` with this corpus, all from the start; or another command."""

    def prepare(content: bytes, *overrides: str, command: str = "prepare") -> Result:
        shutil.rmtree("data", ignore_errors=True)
        Path("corpus.txt").write_bytes(content)
        return pellucid(command, "tiny.yaml", *overrides)

    return prepare


def prepared_text(place: Path) -> str:
    """What the token files of the one prepared corpus say. Control tokens stand at the documents' edges alone."""
    [directory] = (place / "data").glob("text-*")
    tokenizer = Tokenizer.load(directory / "tokenizer.json")
    text = ""
    for file in ("train.bin", "val.bin"):
        tokens = TokenFile.open(directory / file, tokenizer.vocab_size)
        is_control = np.isin(tokens.tokens, tokenizer.control_ids)
        assert np.flatnonzero(is_control).tolist() == tokens.boundaries.tolist()
        text += tokenizer.decode(tokens.tokens.tolist())
    return text


def test_f16_odd_text_is_trained_on_as_it_is(place, prepare, tally):
    for name, content in WORKS.items():
        for tokenizer in (BYTE_PAIRS, CHARACTERS):
            with tally.attempt(f"{name}, {tokenizer}"):
                result = prepare(content, tokenizer)
                assert result.exit_code == 0, result.stderr
                assert prepared_text(place) == content.removeprefix(codecs.BOM_UTF8).decode()


def test_f16_a_control_token_may_separate_documents(place, prepare):
    result = prepare(END.join([VERSES] * 9).encode(), f"corpus.separator={END}")
    assert result.exit_code == 0, result.stderr
    assert prepared_text(place) == VERSES * 9


def test_f16_what_is_no_text_is_refused(prepare, tally, soak):
    for name, (content, fragments) in REFUSED.items():
        for tokenizer in (BYTE_PAIRS, CHARACTERS) if soak else (BYTE_PAIRS,):
            with tally.attempt(f"{name}, {tokenizer}"):
                command = "train" if name == "shorter than a context" else "prepare"
                assert_one_error_line(prepare(content, tokenizer, command=command), 3, *fragments)


MEGABYTE = 1_000_000


def test_f16_memory_does_not_grow_with_the_length_of_a_line(place, tally, soak):
    """One line of 16 MB, in the long form of 100 MB. What grows is the set of distinct words, up to 8 MB of them."""
    n_bytes = (100 if soak else 16) * MEGABYTE
    lines = {"one letter": b"a" * n_bytes, "foxes": "🦊".encode() * (n_bytes // 4), "words": b"fox " * (n_bytes // 4)}
    for name, line in lines.items() if soak else [("foxes", lines["foxes"])]:
        for tokenizer in (BYTE_PAIRS, CHARACTERS) if soak else (BYTE_PAIRS,):
            with tally.attempt(f"{name}, {tokenizer}"):
                assert peak_megabytes(place, line, tokenizer) < 64
    if soak:
        with tally.attempt("random letters"):
            letters = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, n_bytes, dtype=np.uint8).tobytes()
            assert peak_megabytes(place, letters, BYTE_PAIRS) < 1000


def peak_megabytes(place: Path, corpus: bytes, tokenizer: str) -> float:
    """By how much preparing a corpus raises the most memory that the process ever had."""
    shutil.rmtree(place / "data", ignore_errors=True)
    (place / "corpus.txt").write_bytes(corpus)
    fault = partial(write_peak_at_exit, place / "peak")
    result = command_line(place, "prepare", "tiny.yaml", tokenizer, fault=fault)
    assert result.exit_code == 0, result.stderr
    return float((place / "peak").read_text())


def write_peak_at_exit(file: Path) -> None:
    os.environ["RAYON_NUM_THREADS"] = "1"  # of the tokenizer: each thread would set memory aside
    before = peak_bytes()
    Finalize(None, lambda: file.write_text(str((peak_bytes() - before) / MEGABYTE)), exitpriority=0)


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def json_lines(**columns: object) -> bytes:
    return (json.dumps(columns) + "\n").encode() * 50


def parquet() -> bytes:
    """The verses in a Parquet file."""
    from io import BytesIO

    file = BytesIO()
    datasets.Dataset.from_dict({"text": VERSES.split("\n\n")}).to_parquet(file)
    return file.getvalue()


STORIES = json_lines(text="The fox said: I found the cheese.")
NO_TEXT = "holds no text"
HUGGING_FACE_WORKS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "rows without text among others": ("json", lambda: STORIES + json_lines(text=None) + json_lines(text=" \n")),
    "control tokens spelled out": ("json", lambda: STORIES + json_lines(text=END)),
    "blank lines between": ("text", lambda: TEXT),
    "columns": ("parquet", parquet),
}
HUGGING_FACE_REFUSED: dict[str, tuple[str, Callable[[], bytes], list[str]]] = {
    "truncated": ("json", lambda: STORIES[:-20], ["line 50: not JSON"]),
    "an empty file": ("json", lambda: b"", [NO_TEXT]),
    "UTF-16": ("json", lambda: STORIES.decode().encode("utf-16"), ["line 1: not UTF-8 text (UTF-16)"]),
    "another column": ("json", lambda: json_lines(body="a"), ["corpus.text_field text: no such column", "body"]),
    "numbers": ("json", lambda: json_lines(text=1), ["text_field text holds int, not text"]),
    "blank text": ("text", lambda: b" \n \n", [NO_TEXT]),
    "text in UTF-16": ("text", lambda: VERSES.encode("utf-16"), ["line 1: not UTF-8 text (UTF-16)"]),
    "no Parquet file": ("parquet", lambda: TEXT, ["is damaged, or is not parquet"]),
}


@pytest.fixture
def hugging_face(
    place: Path, pellucid: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """`pellucid prepare` with a file of a format, in this process, with no network and a cache of its own."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("local files need no network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", place / "cache")
    monkeypatch.chdir(place)

    def prepare(file_format: str, content: bytes, streaming: bool) -> Result:
        Path(f"corpus.{file_format}").write_bytes(content)
        corpus = f"type: hugging_face, path: {file_format}, data_files: corpus.{file_format}"
        streams = str(streaming).lower()
        shutil.rmtree("data", ignore_errors=True)
        return pellucid("prepare", "tiny.yaml", f"corpus={{{corpus}, streaming: {streams}}}")

    return prepare


def test_f16_odd_data_sets_are_trained_on(hugging_face, tally, soak):
    for name, (file_format, content) in HUGGING_FACE_WORKS.items():
        for streaming in (False, True) if soak else (False,):
            with tally.attempt(f"{name}, {file_format}, streaming {streaming}"):
                result = hugging_face(file_format, content(), streaming)
                assert result.exit_code == 0, result.stderr


def test_f16_what_is_no_data_set_is_refused(hugging_face, tally):
    for name, (file_format, content, fragments) in HUGGING_FACE_REFUSED.items():
        with tally.attempt(f"{name}, {file_format}"):
            result = hugging_face(file_format, content(), streaming=False)
            assert_one_error_line(result, 3, *fragments)
            if any("line" in fragment or "damaged" in fragment for fragment in fragments):
                assert f"error: corpus.{file_format}" in result.stderr
