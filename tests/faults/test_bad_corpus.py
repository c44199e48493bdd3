"""F16: whatever lies where the corpus should be, it is trained on as it is, or refused with its file and its byte."""

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

from pellucid.corpora.text_files import BLOCK_BYTES
from pellucid.data.token_file import TokenFile
from pellucid.tokenizer import Tokenizer
from processes import assert_one_error_line, command_line
from tiny_run import TINY_RUN, VERSES, Result

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
# What is no text, and how many good bytes are before the fault.
FAULTS = {
    "NUL": (b"\0", 0),
    "a byte that UTF-8 never uses": (b"\xff", 0),
    "a character without its first byte": (b"\x80", 0),
    "a character without its last byte": (b"\xe2\x82(", 0),
    "half a surrogate pair": (b"\xed\xa0\x80", 0),
    "a slash in two bytes": (b"\xc0\xaf", 0),
    "beyond Unicode": (b"\xf4\x90\x80\x80", 0),
    "a NUL before a wrong byte": (b"ab\0\xff", 2),
    "a wrong byte before a NUL": (b"ab\xff\0", 2),
}
LETTER = "é".encode()
N_LETTERS = 50_000  # so that the file is read in two blocks
VALIDATION_START = 2 * N_LETTERS * 9 // 10
PLACES = [0, BLOCK_BYTES - 2, BLOCK_BYTES, VALIDATION_START - 2, VALIDATION_START, 2 * N_LETTERS - 2, 2 * N_LETTERS]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, where we are, with a config that trains on corpus.txt, which is one document, for two steps."""
    monkeypatch.chdir(tmp_path)
    config = TINY_RUN.replace("steps: 20", "steps: 2").replace(', separator: "\\n\\n"', "")
    (tmp_path / "tiny.yaml").write_text(config.replace("packing: documents", "packing: contiguous"))
    return tmp_path


@pytest.fixture
def train_on(place: Path, pellucid: Callable[..., Result]) -> Callable[..., Result]:
    """`pellucid train` with this corpus, all from the start."""

    def train(content: bytes, *overrides: str) -> Result:
        shutil.rmtree("data", ignore_errors=True)
        Path("corpus.txt").write_bytes(content)
        return pellucid("train", "tiny.yaml", *overrides, "--overwrite")

    return train


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


@pytest.mark.parametrize("tokenizer", [BYTE_PAIRS, CHARACTERS])
def test_f16_odd_text_is_trained_on_as_it_is(place, train_on, tally, tokenizer):
    for name, content in WORKS.items():
        with tally.attempt(name):
            result = train_on(content, tokenizer)
            assert result.exit_code == 0, result.stderr
            assert prepared_text(place) == content.removeprefix(codecs.BOM_UTF8).decode()


def test_f16_a_control_token_may_separate_documents(place, train_on, tally):
    with tally.attempt(END):
        result = train_on(END.join([VERSES] * 9).encode(), f"corpus.separator={END}")
        assert result.exit_code == 0, result.stderr
        assert prepared_text(place) == VERSES * 9


def test_f16_what_is_no_text_is_refused(train_on, tally, soak):
    for name, (content, fragments) in REFUSED.items():
        for tokenizer in (BYTE_PAIRS, CHARACTERS) if soak else (BYTE_PAIRS,):
            with tally.attempt(f"{name}, {tokenizer}"):
                assert_one_error_line(train_on(content, tokenizer), 3, *fragments)


def test_f16_the_byte_of_the_fault_is_named(train_on, tally, soak):
    every = [(name, at) for name in FAULTS for at in PLACES]
    few = [(name, BLOCK_BYTES) for name in FAULTS] + [("a character without its last byte", at) for at in PLACES]
    for name, at in every if soak else few:
        fault, n_good = FAULTS[name]
        content = bytearray(LETTER * N_LETTERS)
        content[at:at] = fault
        for overrides in [(), (f"corpus.separator={LETTER.decode() * 3}",)] if soak else [()]:
            with tally.attempt(f"{name} at byte {at} {overrides}"):
                result = train_on(bytes(content), CHARACTERS, *overrides)
                assert_one_error_line(result, 3, "corpus.txt: ", f"at byte {at + n_good}: ")


def test_f16_a_file_that_ends_inside_a_character_is_refused(train_on, tally):
    for n_missing in (1, 2, 3):
        with tally.attempt(f"{n_missing} bytes missing"):
            result = train_on(TEXT + "🦊".encode()[:-n_missing])
            assert_one_error_line(result, 3, "corpus.txt: ", f"at byte {len(TEXT)}: unexpected end of data")


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


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_nothing(path: Path) -> None:
    pass


def make_dangling_link(path: Path) -> None:
    path.symlink_to("absent.txt")


def make_endless_link(path: Path) -> None:
    path.symlink_to(path.name)


def make_unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path.write_bytes(TEXT)
    path.chmod(0)


def make_a_file_that_the_disk_refuses(path: Path) -> None:
    if not Path("/proc/self/mem").exists():
        pytest.skip("needs a file that opens and cannot be read")
    path.symlink_to("/proc/self/mem")  # no process has anything at address 0


@pytest.mark.parametrize(
    ("make", "files", "exit_code", "fragments"),
    [
        (make_folder, "corpus.txt", 3, ["corpus.txt: is a folder", "corpus.txt/*.txt"]),
        (make_pipe, "corpus.txt", 3, ["corpus.txt: is not a regular file"]),
        (make_nothing, "corpus.txt", 3, ["corpus.txt: no such file (looked in "]),
        (make_nothing, "corpus/*.txt", 3, ["corpus/*.txt: no such file (looked in "]),
        (make_pipe, "corpus*", 3, ["corpus*: no such file (looked in "]),
        (make_nothing, "/dev/zero", 3, ["/dev/zero: is not a regular file"]),
        (make_nothing, '"a\\0b"', 3, ["no such file"]),
        (make_nothing, '"a\\nb"', 3, ["no such file"]),
        (make_nothing, '"\\uDCFF*"', 2, ["half of a surrogate pair"]),
        (make_nothing, "a" * 5000, 3, ["no such file"]),
        (make_dangling_link, "corpus.txt", 3, ["corpus.txt: no such file"]),
        (make_endless_link, "corpus.txt", 3, ["corpus.txt: no such file"]),
        (make_unreadable, "corpus.txt", 3, ["corpus.txt: cannot be read (Permission denied)"]),
        (make_a_file_that_the_disk_refuses, "corpus.txt", 5, ["corpus.txt: cannot be read (Input/output error)"]),
    ],
)
def test_f16_what_is_no_file_is_refused(place, pellucid, make, files, exit_code, fragments):
    make(place / "corpus.txt")
    overrides = [f"corpus={{type: text, files: [{files}]}}"]
    assert_one_error_line(pellucid("train", "tiny.yaml", *overrides), exit_code, *fragments)


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
    "lines": ("json", lambda: STORIES),
    "a byte-order mark": ("json", lambda: codecs.BOM_UTF8 + STORIES),
    "rows without text among others": ("json", lambda: STORIES + json_lines(text=None) + json_lines(text=" \n")),
    "NUL": ("json", lambda: STORIES + json_lines(text="a\0b")),
    "control tokens spelled out": ("json", lambda: STORIES + json_lines(text=END)),
    "blank lines between": ("text", lambda: TEXT),
    "CRLF": ("text", lambda: TEXT.replace(b"\n", b"\r\n")),
    "lone CR": ("text", lambda: TEXT.replace(b"\n", b"\r")),
    "columns": ("parquet", parquet),
}
HUGGING_FACE_REFUSED: dict[str, tuple[str, Callable[[], bytes], list[str]]] = {
    "truncated": ("json", lambda: STORIES[:-20], ["line 50: not JSON"]),
    "an empty file": ("json", lambda: b"", [NO_TEXT]),
    "blank lines": ("json", lambda: b"\n\n", []),
    "a brace": ("json", lambda: b"{", ["line 1: not JSON"]),
    "a number": ("json", lambda: b"3\n", ["line 1: holds int, not a record"]),
    "binary": ("json", lambda: bytes(range(256)) * 50, ["line 1: a NUL byte"]),
    "brackets": ("json", lambda: b"[" * 100_000, ["line 1: is nested too deeply"]),
    "UTF-16": ("json", lambda: STORIES.decode().encode("utf-16"), ["line 1: not UTF-8 text (UTF-16)"]),
    "a wrong byte": ("json", lambda: STORIES + STORIES.replace(b"fox", b"f\xffx"), ["line 51: not UTF-8 text (byte "]),
    "half a surrogate pair": ("json", lambda: json_lines(text="\ud800"), ["line 1: half of a surrogate pair"]),
    "nulls": ("json", lambda: json_lines(text=None), [NO_TEXT]),
    "blanks": ("json", lambda: json_lines(text=" \r\n"), [NO_TEXT]),
    "another column": ("json", lambda: json_lines(body="a"), ["corpus.text_field text: no such column", "body"]),
    "numbers": ("json", lambda: json_lines(text=1), ["text_field text holds int, not text"]),
    "lists": ("json", lambda: json_lines(text=["a"]), ["text_field text holds list, not text"]),
    "no lines": ("text", lambda: b"", []),
    "blank text": ("text", lambda: b" \n \n", [NO_TEXT]),
    "text with a wrong byte": ("text", lambda: TEXT + b"\xff", ["not UTF-8 text (byte "]),
    "text in UTF-16": ("text", lambda: VERSES.encode("utf-16"), ["line 1: not UTF-8 text (UTF-16)"]),
    "an empty Parquet file": ("parquet", lambda: b"", ["is damaged, or is not parquet", "0 bytes"]),
    "no Parquet file": ("parquet", lambda: TEXT, ["is damaged, or is not parquet"]),
    "a truncated Parquet file": ("parquet", lambda: parquet()[:-9], ["is damaged, or is not parquet"]),
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
        for streaming in (False, True):
            with tally.attempt(f"{name}, {file_format}, streaming {streaming}"):
                result = hugging_face(file_format, content(), streaming)
                assert_one_error_line(result, 3, *fragments)
                if any("line" in fragment or "damaged" in fragment for fragment in fragments):
                    assert f"error: corpus.{file_format}" in result.stderr


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_pipe, "is not a regular file"),
        (make_folder, "is a folder"),
        (make_nothing, "no such file"),
        (make_endless_link, "no such file"),
    ],
)
def test_f16_what_is_no_file_is_no_data_set(place, pellucid, monkeypatch, make, reason):
    make(place / "corpus.json")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", place / "cache")
    override = "corpus={type: hugging_face, path: json, data_files: corpus.json}"
    assert_one_error_line(pellucid("train", "tiny.yaml", override), 3, reason, "corpus.json")


def test_f16_prepared_data_that_has_changed_is_prepared_again(place, train_on, pellucid, tally, soak):
    """One flipped bit in any of its files: a warning, and the same data as before."""
    assert train_on(TEXT * 9).exit_code == 0
    [directory] = (place / "data").glob("text-*")
    good = {path.name: path.read_bytes() for path in directory.iterdir()}
    random = np.random.default_rng(0)
    for name in sorted(good) * (20 if soak else 1):
        place_of_fault, bit = int(random.integers(len(good[name]))), 1 << int(random.integers(8))
        with tally.attempt(f"{name}, byte {place_of_fault}, bit {bit}"):
            damaged = bytearray(good[name])
            damaged[place_of_fault] ^= bit
            (directory / name).write_bytes(damaged)
            result = pellucid("train", "tiny.yaml", "--overwrite")
            assert result.exit_code == 0, result.stderr
            assert f"warning: data/{directory.name} is not what was written there" in result.stderr
            assert {path.name: path.read_bytes() for path in directory.iterdir()} == good
