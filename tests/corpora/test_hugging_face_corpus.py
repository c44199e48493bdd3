import asyncio
import io
import json
import os
import pickle
import shutil
from pathlib import Path

import datasets
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pellucid.corpora.corpus import PIECE_LENGTH
from pellucid.corpora.hugging_face import HuggingFaceCorpus
from pellucid.errors import DataError, InputOutputError

STORIES = [f"Story number {i}." for i in range(20)]


@pytest.fixture(autouse=True)
def _cache_in_a_temporary_folder(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    asked_for = []

    def refuse(*address, **_):
        asked_for.append(address)
        raise OSError("no network here")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    yield
    assert asked_for == [], "local files need no network"


def texts(corpus, split):
    return [piece.text for piece in corpus.pieces(split)]


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def stories_file(tmp_path, request):
    """The stories in a file of the format asked for."""
    path = tmp_path / f"stories.{request.param}"
    rows = [{"n": i, "text": story} for i, story in enumerate(STORIES)]
    if request.param == "json":
        json_lines(path, rows)
    elif request.param == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    else:
        path.write_text("\n".join(STORIES) + "\n", encoding="utf-8")
    return request.param, str(path)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("stories_file", ["json", "parquet", "text"], indirect=True)
def test_every_tenth_row_of_a_local_file_is_held_out(stories_file, streaming):
    file_format, path = stories_file
    corpus = HuggingFaceCorpus(file_format, data_files=[path], streaming=streaming)
    assert texts(corpus, "validation") == [STORIES[9], STORIES[19]]
    assert texts(corpus, "train") == [story for story in STORIES if story not in (STORIES[9], STORIES[19])]
    assert texts(corpus, "train") == texts(corpus, "train"), "a corpus can be read again"


def test_a_validation_split_is_used_whole(tmp_path):
    train = json_lines(tmp_path / "a.jsonl", [{"story": "a"}])
    held_out = json_lines(tmp_path / "b.jsonl", [{"story": "b"}, {"story": None}, {"story": " "}, {"story": "c"}])
    corpus = HuggingFaceCorpus(
        "json", data_files={"train": train, "dev": held_out}, validation_split="dev", text_field="story"
    )
    assert texts(corpus, "train") == ["a"]
    assert texts(corpus, "validation") == ["b", "c"], "rows without text are left out"


def test_rows_without_text_do_not_count_among_the_rows_of_which_every_tenth_is_held_out(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_text("\n\n".join(STORIES) + "\n", encoding="utf-8")  # every other line is empty
    corpus = HuggingFaceCorpus("text", data_files=str(path))
    assert texts(corpus, "validation") == [STORIES[9], STORIES[19]]


def test_a_long_document_comes_in_pieces(tmp_path):
    text = "many words " * (PIECE_LENGTH // 4)
    path = json_lines(tmp_path / "a.jsonl", [{"text": text}, {"text": "short"}])
    pieces = list(HuggingFaceCorpus("json", data_files=path, validation_fraction=0.01).pieces("train"))
    assert "".join(piece.text for piece in pieces) == text + "short"
    assert [piece.ends_document for piece in pieces] == [False, False, True, True]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"data_files": "missing.json"}, "missing.json: no such file (looked in "),
        ({"split": "dev"}, "corpus.split dev: there is no such split; name one of train, or a slice such as train[:"),
        ({"split": "train[:x]"}, "corpus.split train[:x]: there is no such split; name one of train, or "),
        ({"data_files": "bad.json"}, "bad.json, line 1: not JSON (Expecting property name enclosed in double quotes"),
        ({"text_field": "n"}, "a.jsonl, line 1: corpus.text_field n holds int, not text; name a column of text"),
        ({"text_field": "body"}, "corpus.text_field body: no such column in json; name one of its columns: text, n"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, monkeypatch, options, error):
    monkeypatch.chdir(tmp_path)
    json_lines(tmp_path / "a.jsonl", [{"text": "a", "n": 1}])
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    options = {"data_files": "a.jsonl", **options}
    with pytest.raises(DataError) as caught:
        texts(HuggingFaceCorpus("json", **options), "train")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize("where", ["file", "folder"])
def test_an_edit_that_keeps_name_size_and_date_is_noticed_and_is_another_corpus(tmp_path, where):
    """The library's cache alone would give the old text."""
    path = tmp_path / "train.jsonl"
    identities = []
    for animal in ("fox", "hen"):
        json_lines(path, [{"text": f"{animal} {i}"} for i in range(20)])
        os.utime(path, (1_000_000_000, 1_000_000_000))
        for streaming in (False, True):
            options = {"path": "json", "data_files": str(path)} if where == "file" else {"path": str(tmp_path)}
            corpus = HuggingFaceCorpus(**options, streaming=streaming)
            assert texts(corpus, "validation") == [f"{animal} 9", f"{animal} 19"]
            identities.append(json.dumps(corpus.identity))
    assert identities[0] == identities[1] != identities[2] == identities[3]


def test_a_data_set_of_the_hub_that_was_read_before_is_read_again_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    files = json_lines(tmp_path / "a.jsonl", [{"text": story} for story in STORIES])
    builder = datasets.load_dataset_builder("json", data_files=files, cache_dir=str(tmp_path / "first"))
    builder.download_and_prepare()
    # As the library keeps what it downloads: OWNER___NAME / configuration / version / hash.
    cached = Path(datasets.config.HF_DATASETS_CACHE, "someone___stories", "default", "0.0.0", "0123")
    shutil.copytree(builder.cache_dir, cached)
    (cached / "json-train.arrow").rename(cached / "stories-train.arrow")
    info = json.loads((cached / "dataset_info.json").read_text())
    (cached / "dataset_info.json").write_text(json.dumps({**info, "config_name": "default"}))
    assert texts(HuggingFaceCorpus("someone/stories"), "validation") == [STORIES[9], STORIES[19]]


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("way", ["pandas", "in a folder"])
def test_f13_a_format_that_is_unpickled_is_refused_by_name(tmp_path, monkeypatch, way):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "evil.pkl").write_bytes(pickle.dumps(Malicious(tmp_path / "executed")))
    if way == "in a folder":  # whose README chooses the reader
        corpus = HuggingFaceCorpus("folder", data_files="evil.pkl")
    else:
        corpus = HuggingFaceCorpus("pandas", data_files="folder/evil.pkl")
    with pytest.raises(DataError) as refused:
        texts(corpus, "train")
    assert len(str(refused.value).splitlines()) == 1
    assert not (tmp_path / "executed").exists()
    if way == "pandas":
        assert "data in the format pandas is not read; Pellucid reads" in str(refused.value)
        assert "json, text, parquet, csv" in str(refused.value)


def test_no_script_of_a_data_set_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "folder.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.setenv("HF_DATASETS_TRUST_REMOTE_CODE", "1")
    with pytest.raises(DataError):
        texts(HuggingFaceCorpus("folder"), "train")
    assert not (tmp_path / "executed").exists()


def test_a_name_with_brackets_or_a_tilde_is_the_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    json_lines(tmp_path / "a1.jsonl", [{"text": "another"}])
    json_lines(tmp_path / "a[1].jsonl", [{"text": "this"}])
    for name in ("a[1].jsonl", "~/a[1].jsonl"):
        corpus = HuggingFaceCorpus("json", data_files=name)
        assert texts(corpus, "train") == ["this"]
        assert [path.name for path in corpus.local_files()] == ["a[1].jsonl"]
    (tmp_path / "set").mkdir()
    json_lines(tmp_path / "set" / "train.jsonl", [{"text": "of a folder"}])
    assert texts(HuggingFaceCorpus("~/set"), "train") == ["of a folder"]
    assert HuggingFaceCorpus("~/set").local_files() == [tmp_path / "set" / "train.jsonl"]


def test_each_file_is_read_once_and_a_copy_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    json_lines(tmp_path / "a.jsonl", [{"text": "a"}, {"text": " "}])
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    shutil.copy("a.jsonl", "c.jsonl")
    corpus = HuggingFaceCorpus("json", data_files=["*.jsonl", f"{tmp_path}/a.jsonl"])
    assert texts(corpus, "train") == ["a", "a"]
    assert corpus.notes() == [
        f"each file is read once: b.jsonl is a.jsonl, {tmp_path}/a.jsonl is a.jsonl",
        "c.jsonl holds the same as a.jsonl: what is held out may be trained on as well",
        "2 rows without text left out",
    ]


def test_what_is_held_out_is_not_trained_on_even_if_a_glob_matches_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        json_lines(tmp_path / f"{name}.jsonl", [{"text": name}])
    corpus = HuggingFaceCorpus("json", data_files={"train": "*.jsonl", "dev": "b.jsonl"}, validation_split="dev")
    assert (texts(corpus, "train"), texts(corpus, "validation")) == (["a"], ["b"])


def test_a_split_may_be_a_slice_or_a_sum(tmp_path):
    files = {"train": json_lines(tmp_path / "a.jsonl", [{"text": story} for story in STORIES])}
    files["dev"] = json_lines(tmp_path / "b.jsonl", [{"text": "b"}])
    expected_of = {"train[:10%]": STORIES[:2], "train[-1:]+dev": [STORIES[-1], "b"], "all": [*STORIES, "b"]}
    for split, expected in expected_of.items():
        corpus = HuggingFaceCorpus("json", data_files=files, split=split, validation_split="train[5:7]")
        assert (texts(corpus, "train"), texts(corpus, "validation")) == (expected, STORIES[5:7])
    (tmp_path / "folder").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").rename(tmp_path / "folder" / ("train.jsonl" if name == "a" else "test.jsonl"))
    for split, expected in {"train[:2]": STORIES[:2], "all": [*STORIES, "b"]}.items():
        assert (
            texts(HuggingFaceCorpus(str(tmp_path / "folder"), split=split, validation_split="test"), "train")
            == expected
        )


ODD_CELLS = ["NA", "None", "007", "1969-07-21"]


@pytest.mark.parametrize("where", ["file", "folder", "web"])
def test_no_cell_of_a_csv_is_dropped_or_changed(tmp_path, where):
    content = "text\n" + "\n".join(ODD_CELLS) + "\n"
    (tmp_path / "train.csv").write_text(content)
    if where == "file":
        corpus = HuggingFaceCorpus("csv", data_files=str(tmp_path / "train.csv"))
    elif where == "folder":
        corpus = HuggingFaceCorpus(str(tmp_path))
    else:
        fsspec.filesystem("memory").pipe("/train.csv", content.encode())
        corpus = HuggingFaceCorpus("csv", data_files="memory://train.csv")
    assert texts(corpus, "train") == ODD_CELLS
    if where != "web":
        assert corpus.identity["cells_are_text"] is True, "what an earlier version prepared is another text"


def test_a_cache_that_cannot_be_written_is_named_and_files_need_none(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = json_lines(tmp_path / "a.jsonl", [{"text": "a"}])
    assert texts(HuggingFaceCorpus("json", data_files=file), "train") == ["a"]
    fsspec.filesystem("memory").pipe("/a.jsonl", b'{"text": "a"}')
    with pytest.raises(InputOutputError, match="cannot write its cache .*; set HF_HOME to a folder"):
        texts(HuggingFaceCorpus("json", data_files="memory://a.jsonl"), "train")


@pytest.fixture
def streamed(monkeypatch):
    """`streamed(n_breaks)`: a corpus on a server, whose connection breaks at three quarters, so many times."""

    def corpus(n_breaks):
        breaks = iter(range(n_breaks))
        rows = "".join(json.dumps({"text": f"{story} " * 50}) + "\n" for story in STORIES).encode()

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


def test_a_stream_may_break_for_a_while_but_not_for_good(streamed, caplog):
    expected = texts(streamed(0), "train")
    assert texts(streamed(3), "train") == expected
    assert caplog.text.count("Got disconnected") == 3
    with pytest.raises(InputOutputError, match=r"cannot read split train: Server Disconnected; check the network"):
        texts(streamed(10_000), "train")
    with pytest.raises(DataError, match="download it, and name the file in corpus.data_files"):
        texts(HuggingFaceCorpus("json", data_files="memory://other.jsonl"), "train")
    assert texts(streamed(0), "train") == expected
