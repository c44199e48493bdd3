"""Only what Pellucid wrote is deleted or replaced, whatever other files are called."""

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.checkpoint import ownership
from pellucid.checkpoint.ownership import NOT_SAVED_YET, begin_run, is_own, require_own, sweep
from pellucid.checkpoint.run_directory import keep_last_and_best, steps_in
from pellucid.checkpoint.snapshots import write_snapshot
from pellucid.checkpoint.step_directory import write_checkpoint
from pellucid.errors import ConfigError
from pellucid.training.plots import loss_figure, save_figure
from tiny_checkpoint import tiny_checkpoint

NAMES = [
    *("config.yaml", "tokenizer.json", "metrics.jsonl", "samples.md", "loss.png", "skills.png", ".not-saved-yet"),
    *("step-00000005", "step-00000007", "snapshots", "tensorboard", "wandb", "notes.md", "data", ".tmp-step-00000009"),
]
OWN = {
    NOT_SAVED_YET: "",
    "config.yaml": "name: mine\nseed: 1\n",
    "tokenizer.json": '{\n  "version": "1.0"\n}',
    "metrics.jsonl": '{"step": 1, "train_loss": 2.0}\n{"st',
    "samples.md": "## After 10 steps\n\n> The\n",
    "tensorboard/events.out.tfevents.1.host": "",
    "wandb/run_id": "01234567",
    "wandb/offline-run-1/run.wandb": "",
}


def write_run(folder: Path) -> None:
    for name, text in OWN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write_checkpoint(folder, tiny_checkpoint())
    write_snapshot(folder, tiny_checkpoint())
    save_figure(loss_figure([], None, "tiny"), folder / "loss.png")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_run(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_run_takes_the_place_of_all_that_a_run_wrote(run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    (tmp_path / "notes.md").write_text("mine")
    require_own(tmp_path)
    begin_run(tmp_path)
    assert sorted(contents(tmp_path)) == [NOT_SAVED_YET, "notes.md"]


files = st.dictionaries(
    st.sampled_from(["step-00000001", "a.txt", "run_id", "model.safetensors", ""]), st.binary(max_size=9)
)


@settings(max_examples=60)
@given(st.sets(st.sampled_from(NAMES)), st.dictionaries(st.sampled_from(NAMES), files, max_size=4))
def test_no_file_of_anybody_else_is_deleted(run: Path, names: set[str], mine: dict[str, dict[str, bytes]]):
    """`mine` are files, where their only name is empty, and folders; all others are a run's."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for own in names - mine.keys():
            if (run / own).is_dir():
                shutil.copytree(run / own, folder / own)
            elif (run / own).exists():
                shutil.copyfile(run / own, folder / own)
        for entry, inner in mine.items():
            if inner.keys() == {""}:
                (folder / entry).write_bytes(b"mine" + inner[""])
            for file in inner.keys() - {""}:
                (folder / entry).mkdir(exist_ok=True)
                (folder / entry / file).write_bytes(b"mine" + inner[file])
        before = contents(folder)
        is_draft = ".tmp-step-00000009/model.safetensors".__eq__  # it may be cut anywhere: its name has to do
        theirs = {path: each for path, each in before.items() if each.startswith(b"mine") and not is_draft(path)}
        is_refused = False
        try:
            require_own(folder)
        except ConfigError:
            is_refused = True
        assert contents(folder) == before
        begin_run(folder)  # even after a refusal
        sweep(folder)
        keep_last_and_best(folder, 1)
        assert theirs.items() <= contents(folder).items()
        assert is_refused or not [path for path in theirs if Path(path).parts[0] in NAMES[:12]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "# my notes\nname: mine\n"),
        ("config.yaml", "name: [unclosed"),
        ("config.yaml", "name:   mine\n"),
        ("metrics.jsonl", '{"loss": 1}\n'),
        ("samples.md", "# Samples of fabric\n"),
        ("step-00000005/notes.md", "mine"),
        ("snapshots/photo.txt", "mine"),
        ("snapshots/step-00000005/photo.txt", "mine"),
        ("tensorboard/mine.txt", "mine"),
        ("wandb/mine.txt", "mine"),
    ],
)
def test_beside_a_run_too_a_file_of_anybody_else_is_named_and_left(run: Path, tmp_path: Path, name: str, text: str):
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{Path(name).parts[0]}: .*what is there is not of a run"):
        require_own(tmp_path)
    begin_run(tmp_path)
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "snapshots", "step-00000001"])
def test_a_file_in_the_place_of_a_folder_is_not_of_a_run(tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"{name}: a run writes files of this name"):
        require_own(tmp_path)
    (tmp_path / NOT_SAVED_YET).touch()
    assert not is_own(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path):
    for name in ("config.yaml", "metrics.jsonl", "step-00000001"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match="config.yaml, metrics.jsonl, step-00000001: "):
        require_own(tmp_path)
    assert not any(map(is_own, tmp_path.iterdir()))


def test_a_link_is_left_alone_and_so_is_what_it_leads_to(run: Path, tmp_path: Path):
    for name in ("wandb", "metrics.jsonl"):
        (tmp_path / name).symlink_to(run / name)
        assert not is_own(tmp_path / name)
    before = contents(run)
    begin_run(tmp_path)
    assert (tmp_path / "wandb").is_symlink()
    assert contents(run) == before


def test_a_checkpoint_in_which_somebody_keeps_a_file_is_not_deleted_after_later_saves(tmp_path: Path):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, tiny_checkpoint(step=step, val_loss=None))
    (tmp_path / "step-00000001/notes.md").write_text("mine")
    keep_last_and_best(tmp_path, 1)
    assert steps_in(tmp_path) == [1, 3]


def test_a_run_that_an_earlier_version_began_and_that_was_killed_before_its_log_is_one(run: Path, tmp_path: Path):
    for name in ("config.yaml", "tokenizer.json"):
        shutil.copyfile(run / name, tmp_path / name)
    with pytest.raises(ConfigError):
        require_own(tmp_path)
    (tmp_path / ".lock").touch()  # a run leaves it, and nothing else does
    require_own(tmp_path)


def test_a_run_whose_texts_got_the_line_ends_of_windows_is_one(run: Path, tmp_path: Path):
    for name in ("config.yaml", "tokenizer.json", "metrics.jsonl", "samples.md"):
        (tmp_path / name).write_bytes((run / name).read_bytes().replace(b"\n", b"\r\n"))
    require_own(tmp_path)


def test_what_another_process_deletes_meanwhile_is_no_reason_to_refuse(run: Path, monkeypatch):
    """It trains in this folder, which the lock will tell."""
    listed = Path.iterdir

    def vanish(folder: Path):
        if folder.name == "step-00000005":
            raise FileNotFoundError(folder)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", vanish)
    require_own(run)


def test_until_the_checkpoints_of_the_run_before_are_deleted_its_logs_stay(run: Path, tmp_path: Path, monkeypatch):
    def die(folder: Path) -> None:
        raise SystemExit(9)

    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(ownership, "discard", die)
    with pytest.raises(SystemExit):
        begin_run(tmp_path)
    assert contents(tmp_path) == contents(run)  # it can be resumed
    monkeypatch.undo()
    begin_run(tmp_path)
    assert sorted(contents(tmp_path)) == [NOT_SAVED_YET]


def test_a_damaged_checkpoint_is_still_one(run: Path, tmp_path: Path):
    step = shutil.copytree(run / "step-00000005", tmp_path / "step-00000005")
    (step / "model.safetensors").write_bytes(b"")
    (step / "state.json").unlink()
    assert is_own(step)
