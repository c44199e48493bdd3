"""F9 to F12: a checkpoint that was cut, flipped, mixed up or made up is detected; the run goes on from a whole one."""

import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from damage import flip, sign
from pellucid.checkpoint.run_directory import steps_in
from pellucid.checkpoint.step_directory import MANIFEST, TENSOR_FILES, TEXT_FILES, read_checkpoint, step_name
from pellucid.errors import CheckpointError
from reference_run import Trace, trace
from tiny_run import assert_one_error_line

FILES = (*TENSOR_FILES, *TEXT_FILES, MANIFEST)


@pytest.fixture
def run(fault_place: Path, reference: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished reference run beside its corpus, where we are, to be spoilt."""
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.txt", "reference.yaml"):
        shutil.copy(fault_place / name, tmp_path)
    shutil.copytree(fault_place / "data", tmp_path / "data")
    shutil.copytree(fault_place / "undisturbed", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def newest(run: Path) -> Path:
    return run / step_name(steps_in(run)[-1])


RESUME = ("train", "reference.yaml", "--run-dir", "run", "--resume")


def assert_refused(directory: Path, *fragments: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        read_checkpoint(directory)
    assert len(str(refused.value).splitlines()) == 1
    for fragment in fragments:
        assert fragment in str(refused.value)


def lengths(content: bytes, name: str) -> list[int]:
    edges = [0, 1, 7, 8, len(content) // 2, len(content) - 1, len(content) + 1]
    if name in TENSOR_FILES:
        header_end = 8 + struct.unpack("<Q", content[:8])[0]
        edges += [header_end - 1, header_end, header_end + 1]
    return edges


def test_f9_every_truncation_is_detected(newest: Path, tally):
    """Tensor files are also cut under a manifest that fits."""
    manifest = (newest / MANIFEST).read_bytes()
    for name in FILES:
        content = (newest / name).read_bytes()
        for length in lengths(content, name):
            with tally.attempt(f"{name} at {length} of {len(content)} bytes"):
                (newest / name).write_bytes((content + b"\0")[:length])
                assert_refused(newest, "damaged: ", name)
                if name in TENSOR_FILES:
                    sign(newest)
                    assert_refused(newest, "damaged: ")
                    (newest / MANIFEST).write_bytes(manifest)
        (newest / name).write_bytes(content)
    read_checkpoint(newest)


def test_f9_the_run_goes_on_from_the_checkpoint_before_a_damaged_one(run, newest, reference: Trace, pellucid):
    os.truncate(newest / "state.json", (newest / "state.json").stat().st_size // 2)
    done = pellucid(*RESUME)
    assert done.exit_code == 0, done
    assert f"warning: run/{newest.name}: damaged" in done.stderr
    assert "resuming reference in run at step 25" in done.stderr
    assert trace(run) == reference


@pytest.mark.usefixtures("soak_only")  # its shorter relative: checkpoint/test_step_directory.py
def test_f10_every_flipped_bit_is_detected(newest: Path, tally):
    """Every byte of the manifest, the texts and the headers, and random bits of every tensor file."""
    chance = random.Random(0)
    for name in FILES:
        content = (newest / name).read_bytes()
        positions = list(range(len(content)))
        if name in TENSOR_FILES:
            header_end = 8 + struct.unpack("<Q", content[:8])[0]
            positions = positions[:header_end] + [chance.randrange(header_end, len(content)) for _ in range(1000)]
        for position in positions:
            bit = chance.randrange(8)
            with tally.attempt(f"{name}, bit {bit} of byte {position}"):
                flip(newest / name, position, bit)
                assert_refused(newest, "damaged: ")
            flip(newest / name, position, bit)
    read_checkpoint(newest)
    assert tally.tries >= 5000


def delete(directory: Path, name: str) -> None:
    (directory / name).unlink()


def link(directory: Path, name: str) -> None:
    (directory / name).rename(directory.parent / "elsewhere")
    (directory / name).symlink_to(directory.parent / "elsewhere")


def hang(directory: Path, name: str) -> None:
    (directory / name).unlink()
    os.mkfifo(directory / name)


def folder(directory: Path, name: str) -> None:
    (directory / name).unlink()
    (directory / name).mkdir()


def swap_with_another_step(directory: Path, name: str) -> None:
    shutil.copy(directory.parent / "step-00000025" / name, directory / name)


def add(directory: Path, name: str) -> None:
    (directory / f".{name}.bak").write_text("mine")


def restored(directory: Path, contents: dict[str, bytes]) -> None:
    shutil.rmtree(directory)
    directory.mkdir()
    for name, content in contents.items():
        (directory / name).write_bytes(content)


def test_f11_files_that_are_not_the_saved_ones_are_rejected(newest: Path, tally):
    before = {name: (newest / name).read_bytes() for name in FILES}
    same_in_both = {name for name in FILES if (newest.parent / "step-00000025" / name).read_bytes() == before[name]}
    for name in FILES:
        for fault in (delete, link, hang, folder, add, swap_with_another_step):
            if fault is not swap_with_another_step or name not in same_in_both:
                with tally.attempt(f"{fault.__name__} {name}"):
                    fault(newest, name)
                    assert_refused(newest, "damaged: ", "" if fault is swap_with_another_step else name)
                restored(newest, before)
    read_checkpoint(newest)


def test_f11_two_files_of_a_checkpoint_swapped_are_rejected(newest: Path, pellucid):
    for a, b in [("model.safetensors", "optimizer.safetensors"), ("config.yaml", "state.json")]:
        contents = [(newest / name).read_bytes() for name in (a, b)]
        (newest / a).write_bytes(contents[1])
        (newest / b).write_bytes(contents[0])
        assert_refused(newest, "damaged: ")
        sign(newest)
        assert_refused(newest) if a == "config.yaml" else read_checkpoint(newest)  # the weights then do not fit:
        if a != "config.yaml":
            assert_one_error_line(pellucid("generate", "run"), 4, "in the checkpoint", "in the model")
        (newest / a).write_bytes(contents[0])
        (newest / b).write_bytes(contents[1])
        sign(newest)


def test_f11_a_manifest_that_names_files_elsewhere_is_rejected_and_reads_none(newest: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("not yours")
    manifest = (newest / MANIFEST).read_text()
    for name in ("../../secret", str(tmp_path / "secret"), "model.safetensors/../../../secret", "a\\u0000b", ""):
        (newest / MANIFEST).write_text(manifest.replace('"state.json"', f'"{name}"'))
        assert_refused(newest, "damaged: ")
        (newest / MANIFEST).write_text(manifest.replace("\n}}", f',\n  "{name}": {{"bytes": 9, "sha256": "0"}}\n}}}}'))
        assert_refused(newest, "damaged: ")


def test_f12_where_every_checkpoint_is_corrupt_nothing_starts_anew(run: Path, pellucid):
    for step in steps_in(run):
        flip(run / step_name(step) / "model.safetensors", 3000, 5)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = pellucid(*RESUME)
    assert_one_error_line(done, 4, "run: no checkpoint is intact", "--overwrite")
    assert done.stderr.count("warning: ") == 3
    for command, which in [("generate", "latest"), ("generate", "25"), ("evaluate", "best")]:
        done = pellucid(command, "run", "--checkpoint", which)
        assert_one_error_line(done, 4)
        assert done.stdout == ""
    assert_one_error_line(pellucid("verify", "run"), 4, "3 of 3 checkpoints cannot be used")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_f12_a_bad_checkpoint_that_is_asked_for_by_name_is_refused_and_no_other_is(run: Path, pellucid):
    flip(run / step_name(30) / "tokenizer.json", 10, 5)
    damaged = "step-00000030: damaged: tokenizer.json is not what manifest.json says"
    for options in (["run", "--checkpoint", "30"], ["run", "--checkpoint", "latest"], ["run/step-00000030"]):
        assert_one_error_line(pellucid("generate", *options), 4, damaged)
    assert pellucid("generate", "run", "--checkpoint", "25").exit_code == 0
    best = pellucid("generate", "run")
    assert best.exit_code == 0
    assert damaged in best.stderr
    assert ", the best of run; --checkpoint latest" in best.stderr


def test_f12_verify_gives_a_line_for_each_checkpoint(run: Path, pellucid):
    whole = pellucid("verify", "run")
    assert whole.exit_code == 0
    steps = ("step-00000020", "step-00000025", "step-00000030")
    assert whole.stdout == "".join(f"run/{step}: intact\n" for step in steps)
    (run / "step-00000025/rng.safetensors").unlink()
    bad = pellucid("verify", "run")
    assert_one_error_line(bad, 4, "run: 1 of 3 checkpoints cannot be used")
    lines = bad.stdout.splitlines()
    assert lines[1].startswith("run/step-00000025: damaged: missing, added or not a regular file: rng.safetensors")
    assert [lines[0], lines[2]] == [f"run/{steps[0]}: intact", f"run/{steps[2]}: intact"]
    one = pellucid("verify", "run/step-00000030")
    assert (one.exit_code, one.stdout) == (0, "run/step-00000030: intact\n")
    assert_one_error_line(pellucid("verify", "absent"), 4, "absent: no such run")


def test_f12_verify_finds_what_hashes_cannot(run: Path, pellucid):
    """NaN, and weights of another shape, under a manifest that fits them."""
    import safetensors.torch

    for step, spoil in [(25, lambda tensor: tensor.fill_(float("nan"))), (30, lambda tensor: tensor[:-1].clone())]:
        file = run / step_name(step) / "model.safetensors"
        tensors = safetensors.torch.load_file(file)
        name = "embedding.weight" if "embedding.weight" in tensors else sorted(tensors)[0]
        tensors[name] = spoil(tensors[name])
        safetensors.torch.save_file(tensors, file)
        sign(file.parent)
    done = pellucid("verify", "run")
    assert_one_error_line(done, 4, "2 of 3 checkpoints cannot be used")
    assert "step-00000025: " in done.stdout
    assert "holds NaN or infinity" in done.stdout
    assert "in the checkpoint, " in done.stdout
