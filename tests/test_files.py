import errno

import pytest

from pellucid import files
from pellucid.files import written_whole


class Stopped(BaseException):
    """As Ctrl-C is."""


def write(path, text, kind):
    if kind == "folder":
        path.mkdir()
        path = path / "a.txt"
    path.write_text(text)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_draft_takes_the_place_of_what_was_there(tmp_path, kind):
    for text in ("old", "new"):
        with written_whole(tmp_path / "x") as draft:
            write(draft, text, kind)
    assert contents(tmp_path) == {"x" if kind == "file" else "x/a.txt": "new"}


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("error", [Stopped, OSError])
def test_what_goes_wrong_leaves_the_old_and_no_draft(tmp_path, kind, error):
    with written_whole(tmp_path / "x") as draft:
        write(draft, "old", kind)
    before = contents(tmp_path)
    with pytest.raises(error), written_whole(tmp_path / "x") as draft:  # noqa: PT012
        write(draft, "half", kind)
        raise error
    assert contents(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_disk_that_fails_at_the_last_moment_leaves_the_old(tmp_path, monkeypatch):
    (tmp_path / "x").write_text("old")

    def fail(_path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"), written_whole(tmp_path / "x") as draft:
        draft.write_text("new")
    assert contents(tmp_path) == {"x": "old"}


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    target = tmp_path / "absent" / "page.html"
    with pytest.raises(FileNotFoundError) as caught, written_whole(target) as draft:
        draft.write_text("<p>")
    assert caught.value.filename == str(target)


def test_the_error_of_a_full_disk_names_the_file_too(tmp_path):
    with pytest.raises(OSError) as full, written_whole(tmp_path / "page.html"):  # noqa: PT011
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(tmp_path / "page.html")


def test_a_file_never_takes_the_place_of_a_folder(tmp_path):
    write(tmp_path / "x", "kept", "folder")
    with pytest.raises((IsADirectoryError, PermissionError)), written_whole(tmp_path / "x") as draft:
        write(draft, "new", "file")
    assert contents(tmp_path) == {"x/a.txt": "kept"}


@pytest.mark.parametrize("name", [".", "..", "x/.."])
def test_a_folder_without_a_name_of_its_own_is_no_target(tmp_path, monkeypatch, name):
    (tmp_path / "here" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(IsADirectoryError), written_whole(files.Path(name)) as draft:
        draft.write_text("new")
    assert contents(tmp_path) == {}


def test_what_a_killed_process_left_is_no_hindrance(tmp_path):
    for leftover in (".tmp-x", ".trash-x", "x"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "old.txt").write_text("old")
    with written_whole(tmp_path / "x") as draft:
        write(draft, "new", "folder")
    assert contents(tmp_path) == {"x/a.txt": "new"}
