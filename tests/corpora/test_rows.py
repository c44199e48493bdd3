"""Rows of local files are what the files say: nothing is guessed, and what is odd is refused with its line."""

import bz2
import gzip
import json
import lzma
import zipfile
from datetime import date

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.corpora.rows import rows_of_file
from pellucid.errors import DataError

TEXTS = ["None", "NA", "null", "nan", "N/A", "", "007", "1969-07-21", "true", "1e3", "Infinity", " a "]
TEXTS += ['say "yes", "no"']


def rows(path, file_format, content, wanted=(("text",),)):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [dict(row.values) for row in rows_of_file(path, file_format, wanted)]


def texts(path, file_format, content):
    return [row["text"] for row in rows(path, file_format, content)]


def in_csv(text):
    return '"' + text.replace('"', '""') + '"'


def parquet(columns):
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue().to_pybytes()


def in_format(file_format, texts):
    match file_format:
        case "csv":
            return "text\n" + "".join(in_csv(text) + "\n" for text in texts)
        case "json":
            return "".join(json.dumps({"text": text}) + "\n" for text in texts)
        case _:
            return parquet({"text": pyarrow.array(texts, pyarrow.string())})


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_texts_that_look_like_numbers_dates_or_missing_values_stay_texts(tmp_path, file_format):
    assert texts(tmp_path / "a", file_format, in_format(file_format, TEXTS)) == TEXTS


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_any_text_comes_back_from_csv_and_json(tmp_path_factory, written):
    path = tmp_path_factory.getbasetemp() / "any"
    for file_format in ("csv", "json"):
        assert texts(path, file_format, in_format(file_format, written)) == written


def test_lines_end_as_in_any_system_and_a_byte_order_mark_is_not_text(tmp_path):
    for end in ("\n", "\r\n", "\r"):
        for mark in ("", "\ufeff"):
            for file_format, first in (("text", "one"), ("csv", "text"), ("json", '{"text": "one"}')):
                lines = {"text": ["two"], "csv": ["one", "two"], "json": ['{"text": "two"}']}[file_format]
                content = mark + end.join([first, *lines, ""])
                assert texts(tmp_path / "a", file_format, content) == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[{"text": "a"}, {"text": "b"}]', ["a", "b"]),
        ('\ufeff[\n  {\n    "text": "a"\n  },\n  {"text": "b"}\n]\n', ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('{\n  "text": "a"\n}\n', ["a"]),
        ('{"text": "a"}{"text": "b"}\n', ["a", "b"]),
        ('\n\n{"text": "a"}\n\n', ["a"]),
        ('{"text": "a\\u0000b \\ud83e\\udd8a \u2028 c"}', ["a\0b 🦊 \u2028 c"]),
        ("[]", []),
        ("", []),
    ],
)
def test_json_is_a_record_per_line_or_a_list(tmp_path, content, expected):
    assert texts(tmp_path / "a", "json", content) == expected


GOOD = '{"text": "a"}\n'


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (GOOD * 2 + '{"text": "a",}\n' + GOOD, "a, line 3: not JSON (Expecting property name enclosed in double "),
        ('[\n{"text": "a"},\n{"text": b}\n]', "a, line 3: not JSON (Expecting value, column 10); fix it"),
        ("[" * 100_000, "a, line 1: is nested too deeply; "),
        (GOOD + '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "a, line 2: is nested too deeply; "),
        (GOOD + '{"text": "a", "text": "b"}\n', "a, line 2: the key 'text' appears twice; "),
        (GOOD + '{"text": "\\ud800"}\n', "a, line 2: half of a surrogate pair"),
        (GOOD + '{"n": 1' + "0" * 5000 + "}\n", "a, line 2: Exceeds the limit"),
        (GOOD + "3\n", "a, line 2: holds int, not a record; "),
        ('[{"text": "a"}, [0.5]]', "a, record 2: holds list, not a record; "),
        (GOOD.encode() + b'{"text": "\xe9"}', "a, line 2: not UTF-8 text (byte 11 of the line); save it as UTF-8"),
        (GOOD.encode("utf-16"), "a, line 1: not UTF-8 text (UTF-16); save it as UTF-8"),
        (GOOD.encode("utf-16-le"), "a, line 1: a NUL byte, as in binary files and UTF-16; save it as UTF-8"),
    ],
)
def test_json_that_is_not_is_refused_with_its_line(tmp_path, monkeypatch, content, error):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as refused:
        rows(tmp_path.relative_to(tmp_path) / "a", "json", content)
    assert str(refused.value).startswith(error)


@pytest.mark.parametrize("content", ["[2, 0]\n[1]\n[]\n", "[[2, 0],\n [1], []]", '[2, 0]{"ids": [1]}\n{"ids": []}'])
def test_a_list_of_whole_numbers_is_a_row_of_ids(tmp_path, content):
    assert [row["ids"] for row in rows(tmp_path / "a", "json", content)] == [[2, 0], [1], []]


def test_the_rows_of_a_json_file_may_stand_under_a_key(tmp_path):
    (tmp_path / "a").write_text(json.dumps({"version": 1, "data": [{"text": "a"}, {"text": "b"}]}, indent=1))
    found = list(rows_of_file(tmp_path / "a", "json", [["text"]], "data"))
    assert [(row.where, row.values["text"]) for row in found] == [
        (f"{tmp_path / 'a'}, record 1", "a"),
        (f"{tmp_path / 'a'}, record 2", "b"),
    ]
    with pytest.raises(DataError, match="a, line 1: has no list under the key 'version'; name its key in corpus.field"):
        list(rows_of_file(tmp_path / "a", "json", [["text"]], "version"))


def test_cells_of_csv_may_hold_commas_quotes_and_line_ends_short_rows_are_filled_and_tabs_part_those_of_tsv(tmp_path):
    content = 'n,text\n1,"a, ""b""\r\nc"\n\n2\n3,"' + "x" * 200_000 + '"\n'
    assert rows(tmp_path / "a", "csv", content) == [
        {"n": "1", "text": 'a, "b"\r\nc'},
        {"n": "2", "text": None},
        {"n": "3", "text": "x" * 200_000},
    ]
    for name in ("a.tsv", "a.TSV"):
        assert rows(tmp_path / name, "csv", "n\ttext\n1\ta, b\n") == [{"n": "1", "text": "a, b"}]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("n,text\n1,a\n2,a, b\n", "line 3: 3 cells, but there are 2 columns; put texts with commas"),
        ('text\nfox\n"hen\ncow\n', "line 3: its quotes are not those of CSV (unexpected end of data); "),
        ('text\n"fox"hen\n', "line 2: its quotes are not those of CSV"),
        ("text,text\na,b\n", "line 1: 'text' appears twice; "),
        ("text\na\0b\n", "line 2: a NUL byte"),
        ("n\ttext\n1\ta\n", "line 1: tabs stand between its cells; name the file *.tsv"),
    ],
)
def test_csv_whose_cells_are_not_certain_is_refused_with_its_line(tmp_path, content, error):
    with pytest.raises(DataError) as refused:
        rows(tmp_path / "a", "csv", content)
    assert error in str(refused.value)


def test_parquet_is_read_with_its_own_types_and_only_the_columns_that_are_wanted(tmp_path):
    columns = {"text": ["a", None], "day": [date(1969, 7, 21)] * 2, "n": [1, 2]}
    wanted = [["messages"], ["text", "n"]]
    assert rows(tmp_path / "a", "parquet", parquet(columns), wanted) == [{"text": "a", "n": 1}, {"text": None, "n": 2}]
    assert rows(tmp_path / "a", "parquet", parquet(columns), [["body"]]) == [{"text": None, "day": None, "n": None}]


def in_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("b.jsonl", content)
        archive.writestr("__MACOSX/._b.jsonl", b"\0")
    return path.read_bytes()


def in_zstandard(content):
    buffer = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(buffer, "zstd") as stream:
        stream.write(content)
    return buffer.getvalue().to_pybytes()


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, in_zstandard, "zip"])
def test_files_may_be_compressed_and_a_part_of_one_is_refused(tmp_path, compress):
    content = in_format("json", TEXTS * 99).encode()
    packed = in_zip(tmp_path / "zip", content) if compress == "zip" else compress(content)
    assert texts(tmp_path / "a", "json", packed) == TEXTS * 99
    with pytest.raises(DataError, match="is damaged, or is not json"):
        rows(tmp_path / "a", "json", packed[:-9])


def test_what_is_no_parquet_is_refused(tmp_path):
    for content in (b"", b"text", parquet({"text": ["a"]})[:-9]):
        with pytest.raises(DataError, match="is damaged, or is not parquet"):
            rows(tmp_path / "a", "parquet", content)
