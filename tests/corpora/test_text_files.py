import codecs
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.corpora import text_files
from pellucid.corpora.text_files import ByteRange, TextFilesCorpus, read_text
from pellucid.errors import DataError, InputOutputError


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def documents(corpus, split):
    return "".join(piece.text + ("¶" if piece.ends_document else "") for piece in corpus.pieces(split))


def test_one_stream_holds_out_exactly_the_last_bytes(tmp_path):
    file = written(tmp_path, "a.txt", "0123456789" * 10)
    corpus = TextFilesCorpus([file])
    assert documents(corpus, "train") == "0123456789" * 9 + "¶"
    assert documents(corpus, "validation") == "0123456789¶"
    assert documents(corpus, "train") == documents(corpus, "train"), "a corpus can be read again"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), min_size=2), st.data())
def test_a_stream_is_cut_between_characters(tmp_path_factory, text, data):
    file = written(tmp_path_factory.mktemp("cut"), "a.txt", text)
    fraction = data.draw(st.floats(0.01, 0.99))
    ranges = TextFilesCorpus([file], validation_fraction=fraction)._ranges
    train, validation = ("".join(t for part in ranges[s] for t in read_text(part)) for s in ("train", "validation"))
    assert train + validation == text
    wanted = len(text.encode()) * (1 - fraction)
    assert wanted - 1 <= len(train.encode()) < wanted + 4


def test_each_file_is_a_document(tmp_path):
    files = [written(tmp_path, name, text) for name, text in [("b.txt", "one"), ("a.txt", "two"), ("c.txt", " \n")]]
    held_out = written(tmp_path, "v.txt", "three")
    corpus = TextFilesCorpus(files, validation_files=[held_out])
    assert documents(corpus, "train") == "one¶two¶", "a file of blanks is no document"
    assert documents(corpus, "validation") == "three¶"


def test_of_several_files_exactly_the_last_bytes_are_held_out_even_from_within_a_file(tmp_path):
    files = [written(tmp_path, name, text) for name, text in [("a.txt", "aaaa"), ("b.txt", "0123456789abcdef")]]
    corpus = TextFilesCorpus(files, validation_fraction=0.25)
    assert documents(corpus, "train") == "aaaa¶0123456789a¶"
    assert documents(corpus, "validation") == "bcdef¶"


@pytest.mark.parametrize(("name", "path"), [("a.jsonl", "json"), ("B.PARQUET", "parquet")])
def test_files_of_rows_are_refused_with_the_corpus_that_reads_them(tmp_path, name, path):
    file = written(tmp_path, name, '{"text": "a"}')
    with pytest.raises(DataError, match=f'rows, not plain text; use "corpus={{type: hugging_face, path: {path}, data'):
        TextFilesCorpus([file])


def test_a_separator_and_the_end_of_a_file_end_documents(tmp_path):
    for name, text in (("1.txt", "a--b--"), ("2.txt", "c--d")):
        written(tmp_path, name, text)
    held_out = written(tmp_path, "v.md", "e")
    corpus = TextFilesCorpus([f"{tmp_path}/*.txt"], separator="--", validation_files=[held_out])
    assert documents(corpus, "train") == "a¶b¶c¶d¶"


@pytest.mark.parametrize(
    ("texts", "fraction", "train", "validation"),
    [
        (["a--b--c--d"], 0.5, "a¶", "b¶c¶d¶"),  # byte 5 of 10 is in the separator after b: b is held out
        (["a--b--c--d"], 0.1, "a¶b¶c¶", "d¶"),
        (["aaaa--b"], 0.9, "aaaa¶", "b¶"),  # the cut is in the first document: the second one is held out
        (["a--bbbbbbbb"], 0.1, "a¶", "bbbbbbbb¶"),
        (["a--b", "cccc"], 0.4, "a¶b¶", "cccc¶"),
        (["aaaaaa", "b"], 0.9, "aaaaaa¶", "b¶"),
    ],
)
def test_a_split_never_cuts_a_document(tmp_path, texts, fraction, train, validation):
    files = [written(tmp_path, f"{i}.txt", text) for i, text in enumerate(texts)]
    corpus = TextFilesCorpus(files, separator="--", validation_fraction=fraction)
    assert (documents(corpus, "train"), documents(corpus, "validation")) == (train, validation)


@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=2, max_size=9), st.floats(0.01, 0.99))
def test_both_splits_hold_whole_documents_and_none_is_lost(tmp_path_factory, stories, fraction):
    file = written(tmp_path_factory.mktemp("split"), "a.txt", "|".join(stories))
    corpus = TextFilesCorpus([file], separator="|", validation_fraction=fraction)
    halves = [documents(corpus, split) for split in ("train", "validation")]
    assert all(halves)
    assert "".join(halves) == "".join(f"{story}¶" for story in stories)


def test_a_file_that_is_held_out_is_not_trained_on(tmp_path):
    written(tmp_path, "a.txt", "train")
    held_out = written(tmp_path, "b.txt", "held out")
    corpus = TextFilesCorpus([f"{tmp_path}/*.txt"], validation_files=[held_out])
    assert documents(corpus, "train") == "train¶"
    with pytest.raises(DataError, match="all of them are validation_files"):
        TextFilesCorpus([held_out], validation_files=[f"{tmp_path}/*.txt"])


def test_globs_are_sorted_and_name_each_file_once(tmp_path):
    for name in "cab":
        written(tmp_path, f"{name}.txt", name)
    (tmp_path / "d.txt").mkdir()
    files = text_files.find_text_files([f"{tmp_path}/b.txt", f"{tmp_path}/*.txt"])
    assert [path.name for path in files] == ["b.txt", "a.txt", "c.txt"]


def test_a_name_with_brackets_is_a_file_before_it_is_a_glob(tmp_path):
    name = written(tmp_path, "a[1].txt", "x")
    assert [str(path) for path in text_files.find_text_files([name])] == [name]


def nothing(path):
    pass


def unreadable(path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path.write_text("x")
    path.chmod(0)


@pytest.mark.parametrize(
    ("make", "pattern", "error"),
    [
        (nothing, "a.txt", "a.txt: no such file (looked in "),
        (nothing, "*.txt", "*.txt: no such file (looked in "),
        (nothing, "a\0b", "a\\x00b: no such file (looked in "),
        (nothing, "a" * 5000, "aaa"),
        (nothing, "a.txt, b.txt", "write several files as a list: [a.txt, b.txt]"),
        (nothing, "https://example.com/a.txt", "a file of the web is read by corpus.download"),
        (nothing, "/dev/zero", "/dev/zero: is not a regular file"),
        (Path.mkdir, "a.txt", "a.txt: is a folder; name the files in it: a.txt/*.txt, or a.txt/**/*.txt with"),
        (os.mkfifo, "a.txt", "a.txt: is not a regular file"),
        (os.mkfifo, "*.txt", "*.txt: no such file (looked in "),
        (lambda path: path.symlink_to("absent.txt"), "a.txt", "a.txt: no such file"),
        (lambda path: path.symlink_to(path.name), "a.txt", "a.txt: no such file"),
        (unreadable, "a.txt", "a.txt: cannot be read (Permission denied)"),
        (Path.touch, "a.txt", "a.txt: empty"),
    ],
)
def test_what_is_no_text_file_is_refused(tmp_path, monkeypatch, make, pattern, error):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "a.txt")
    with pytest.raises(DataError) as refused:
        TextFilesCorpus([pattern])
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("system", "ours"),
    [(PermissionError(13, "Permission denied"), DataError), (OSError(5, "Input/output error"), InputOutputError)],
)
def test_a_file_that_the_system_does_not_open_is_an_error(tmp_path, monkeypatch, system, ours):
    def refuse(*_):
        raise system

    file = written(tmp_path, "a.txt", "x")
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(ours, match=f"cannot be read \\({system.strerror}\\)"):
        TextFilesCorpus([file])


def test_a_disk_that_fails_while_a_file_is_read_is_an_input_output_error(tmp_path, monkeypatch):
    corpus = TextFilesCorpus([written(tmp_path, "a.txt", "some text")])

    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.open", lambda *_: Failing())
    with pytest.raises(InputOutputError, match="a.txt: cannot be read \\(Input/output error\\)"):
        documents(corpus, "train")


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
    "half a character before a NUL": (b"a\xf0\x9f\0", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_text_is_an_error_with_its_place(tmp_path, monkeypatch, fault):
    """Also where a block ends, at byte 64, and where validation begins, near byte 180."""
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 64)
    wrong, n_good = FAULTS[fault]
    for place in (0, 2, 62, 64, 66, 126, 176, 178, 180, 182, 184, 198, 200):
        content = bytearray("é".encode() * 100)
        content[place:place] = wrong
        for separator in (None, "ééé"):
            corpus = TextFilesCorpus([written(tmp_path, "a.txt", bytes(content))], separator=separator)
            with pytest.raises(DataError, match=f"a.txt: not UTF-8 text at byte {place + n_good}: "):
                [documents(corpus, split) for split in ("train", "validation")]


@pytest.mark.parametrize("n_missing", [1, 2, 3])
def test_a_character_that_the_file_does_not_finish_is_an_error(tmp_path, n_missing):
    file = written(tmp_path, "a.txt", b"abc" + "🦊".encode()[:-n_missing])
    with pytest.raises(DataError, match="byte 3: unexpected end"):
        documents(TextFilesCorpus([file], validation_fraction=0.9), "validation")


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf_16_is_named(tmp_path, mark):
    with pytest.raises(DataError, match="UTF-16"):
        TextFilesCorpus([written(tmp_path, "a.txt", mark + b"a\0")])


def test_a_byte_order_mark_is_skipped_and_line_ends_are_kept(tmp_path):
    file = written(tmp_path, "a.txt", codecs.BOM_UTF8 + b"ab\r\ncd\r\n..")
    assert documents(TextFilesCorpus([file], validation_fraction=0.2), "train") == "ab\r\ncd\r\n¶"


def test_characters_over_block_ends_are_read_whole(tmp_path, monkeypatch):
    text = "aé€😀" * 50
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    for length in range(1, 12):
        monkeypatch.setattr(text_files, "BLOCK_BYTES", length)
        assert "".join(read_text(ByteRange(path, 0, path.stat().st_size))) == text


def test_identity_is_made_of_contents(tmp_path):
    (tmp_path / "x").mkdir()
    first = TextFilesCorpus([written(tmp_path, "a.txt", "same")]).identity
    assert TextFilesCorpus([written(tmp_path / "x", "b.txt", "same")]).identity == first
    assert TextFilesCorpus([written(tmp_path, "c.txt", "other")]).identity != first
    assert TextFilesCorpus([str(tmp_path / "a.txt")], separator="a").identity != first
    assert TextFilesCorpus([str(tmp_path / "a.txt")], validation_fraction=0.5).identity != first


def test_a_file_with_two_names_is_read_once_and_a_note_names_a_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a.txt", "text" * 9)
    (tmp_path / "b.txt").symlink_to("a.txt")
    os.link("a.txt", "c.txt")
    (tmp_path / "x").mkdir()
    corpus = TextFilesCorpus(["*.txt", "x/../a.txt"])
    assert documents(corpus, "train") == "texttexttexttexttexttexttexttext¶"
    assert corpus.notes() == ["each file is read once: b.txt is a.txt, c.txt is a.txt, x/../a.txt is a.txt"]
    copy = TextFilesCorpus(["a.txt", written(tmp_path, "d.txt", "text" * 9)])
    assert copy.notes() == [f"{tmp_path}/d.txt holds the same as a.txt: what is held out may be trained on as well"]


@pytest.mark.parametrize(
    ("contents", "separator", "notes"),
    [
        (["a\n\nb", "c"], "\n\n", []),
        (["ab", "cd"], "@@", ["the separator '@@' occurs in none of the files: each is one document"]),
        (
            ["a\r\n\r\nb", "c\r\nd"],
            "\n\n",
            [
                "the separator '\\n\\n' occurs in none of the files: each is one document",
                "the lines of 0.txt end in \\r\\n: write corpus.separator='\"\\r\\n\\r\\n\"'",
            ],
        ),
        (
            ["a\n\nb", "a\r\n\r\nb"],
            "\n\n",
            ["the lines of 1.txt end in \\r\\n: write corpus.separator='\"\\r\\n\\r\\n\"'"],
        ),
        (
            ["a<|endoftext|>b", ""],
            None,
            ['<|endoftext|> is plain text in 0.txt: did you mean "corpus.separator=<|endoftext|>"?'],
        ),
    ],
)
def test_a_note_says_that_a_separator_is_not_that_of_the_files(tmp_path, monkeypatch, contents, separator, notes):
    monkeypatch.chdir(tmp_path)
    for i, content in enumerate(contents):
        written(tmp_path, f"{i}.txt", content)
    assert TextFilesCorpus(["*.txt"], separator=separator).notes() == notes


def test_the_error_of_a_single_document_knows_the_line_ends_of_windows(tmp_path):
    file = written(tmp_path, "a.txt", "a\r\n\r\nb" * 9)
    with pytest.raises(DataError, match=r"a.txt end in \\r\\n: write corpus.separator='\"\\r\\n\\r\\n\"'$"):
        TextFilesCorpus([file], separator="\n\n")
