"""`pellucid tokenize`: what a class sees of byte-pair encoding."""

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pellucid.tokenizer import Tokenizer, pieces
from pellucid.tokenizer.train import train_byte_pairs, train_characters

PAGE = Path(__file__).parents[2] / "docs/tokenizer.md"
END = "<|endoftext|>"
TEXT = "the fox and the 🦊 isn't there, the other\nis "
TOKENIZER = train_byte_pairs([TEXT * 3], vocab_size=400, special_tokens=[END])
BYTE_IDS = {TOKENIZER.token_bytes(id_)[0]: id_ for id_ in range(256)}


@given(st.text() | st.text(TEXT))
def test_the_merges_of_a_token_make_it_from_its_bytes(text):
    """Made in their order, wherever they can be, they leave the token alone."""
    joined = b""
    for piece in pieces.cut(TOKENIZER, text):
        word = [pieces.visible(pieces.token_text(TOKENIZER, BYTE_IDS[byte])) for byte in piece.bytes]
        for _, left, right, token in piece.merges:
            i = 0
            while i < len(word):
                if word[i : i + 2] == [left, right]:
                    word[i : i + 2] = [token]
                i += 1
        assert word == [piece.text]
        joined += piece.bytes
    assert joined == text.encode()


def test_the_examples_of_the_page_are_what_the_command_prints(pellucid, workplace):
    Path("foxes.txt").write_text(re.search(r"foxes\.txt says `(.+)`", PAGE.read_text(encoding="utf-8"))[1])
    examples = re.findall(r"^    \$ pellucid (.+)\n((?:    .*\n|\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(examples) == 2
    for command, output in examples:
        words = [quoted or plain for quoted, plain in re.findall(r'"(.+)"|(\S+)', command)]
        shown = "".join(line.removeprefix("    ") for line in output.splitlines(keepends=True))
        assert pellucid(*words).stdout.strip() == shown.strip()


def test_the_tokenizer_of_a_run_is_the_one_it_trained_with(pellucid, workplace):
    assert pellucid("train", "tiny.yaml", "train.steps=2").exit_code == 0
    for run in ("checkpoints/tiny", "checkpoints/tiny/step-00000002"):
        shown = json.loads(pellucid("tokenize", "The red fox.\n", "--run", run, "--json").stdout)
        assert shown["vocab_size"] == 300
        assert bytes(byte for token in shown["tokens"] for byte in token["bytes"]) == b"The red fox.\n"
        assert (shown["n_words"], shown["n_bytes"]) == (3, 13)
        merges = [merge for token in shown["tokens"] for merge in token["merges"]]
        assert all(0 < merge["rank"] <= shown["n_merges"] for merge in merges)
        assert {"left", "right", "token"} < set(merges[0])


def test_a_character_vocabulary_has_no_merges():
    tokenizer = train_characters(["fox\n"], special_tokens=[END])
    assert [(piece.text, piece.id, piece.merges) for piece in pieces.cut(tokenizer, "o\n")] == [
        ("o", 2, []),
        ("⏎", 0, []),
    ]
    assert "0 merges" in pieces.table(tokenizer, "fox")


def test_many_merges_are_wrapped_and_none_is_cut_apart(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    tokenizer = train_byte_pairs(["abcdefghijklmnopqrstuvwxyz" * 3], vocab_size=400, special_tokens=[END])
    lines = pieces.table(tokenizer, "abcdefghijklmnopqrstuvwxyz").splitlines()
    assert len(lines) > 5
    assert all(line.count("+") == line.count("→") == line.count("(#") for line in lines)


def test_a_text_that_names_a_file_is_a_text_and_a_note_tells_of_the_file(pellucid, workplace):
    Path("small.txt").write_text("fox")
    shown = pellucid("tokenize", "small.txt")
    assert "9 bytes" in shown.stdout
    assert shown.stderr == "these are the tokens of its name; to learn tokens from the file: --learn-from small.txt\n"
    assert pellucid("tokenize", "small.txt", "--learn-from", "small.txt").stderr == ""


def test_a_byte_order_mark_is_not_part_of_a_text_or_a_tokenizer(pellucid, workplace):
    marked = b"\xef\xbb\xbf"
    Path("marked.txt").write_bytes(marked + b"abab")
    Path("plain.txt").write_bytes(b"abab")
    marks = pellucid("tokenize", "ab", "--learn-from", "marked.txt").stdout
    assert marks == pellucid("tokenize", "ab", "--learn-from", "plain.txt").stdout
    Path("tokenizer.json").write_bytes(marked + TOKENIZER.to_json().encode())
    assert Tokenizer.load(Path("tokenizer.json")).to_json() == TOKENIZER.to_json()


def test_errors_are_one_line(pellucid, workplace):
    assert pellucid("train", "tiny.yaml", "train.steps=2", "tokenizer={type: char}").exit_code == 0
    Path("latin.txt").write_bytes(b"caf\xe9")
    for arguments, exit_code, message in [
        (["жук", "--run", "checkpoints/tiny"], 3, "the character 'ж' (U+0436) is not in the vocabulary"),
        (["fox", "--run", "nowhere"], 4, "nowhere: no such run"),
        (["fox", "--run", "checkpoints/tiny", "--vocab-size", "300"], 2, "--run excludes --learn-from"),
        (["fox", "--learn-from", "nowhere.txt"], 5, "nowhere.txt: No such file"),
        (["caf\udce9"], 3, "half of a surrogate pair, or the byte 0xe9, which is not UTF-8"),
        (["fox", "--learn-from", "latin.txt"], 2, "latin.txt: byte 3 is not UTF-8"),
    ]:
        result = pellucid("tokenize", *arguments)
        assert result.exit_code == exit_code, result
        assert result.stderr.count("\n") == 1
        assert message in result.stderr
