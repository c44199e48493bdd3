"""F21: what does not fit into memory ends in one line that names the setting to lower, and harms nothing on disk."""

import errno
import mmap
import os
import resource
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.checkpoint.step_directory import step_name
from pellucid.errors import DataError, InputOutputError, is_out_of_memory
from processes import command_line
from reference_run import trace
from tiny_run import TINY_RUN, VERSES, assert_one_error_line

STATUS = Path("/proc/self/status")
pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="needs to know the size of a process")

MEGABYTE = 1_000_000
ROOM = 150 * MEGABYTE  # what the tiny run needs, and half as much again
LARGE_BATCH = "train.batch_size=1024"


def leave_room(n_bytes: int) -> None:
    """Lets this process grow by so much and no more, on machines of any number of cores."""
    os.environ["RAYON_NUM_THREADS"] = "1"  # of the tokenizer: each thread would set memory aside
    [size] = [line.split()[1] for line in STATUS.read_text().splitlines() if line.startswith("VmSize")]
    limit = int(size) * 1024 + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with prepared data of more than 65,536 tokens and a config for two steps on it, a save at each."""
    place = tmp_path_factory.mktemp("memory")
    (place / "corpus.txt").write_text("\n\n".join([VERSES] * 200))
    config = TINY_RUN.replace("steps: 20", "steps: 2").replace("every_steps: 5", "every_steps: 1")
    (place / "tiny.yaml").write_text(config.replace("packing: documents", "packing: contiguous"))
    assert command_line(place, "prepare", "tiny.yaml").exit_code == 0
    return place


TOO_LARGE = [
    ("train.batch_size", 1_000_000),
    ("model.context_length", 2**40),
    ("model.d_model", 2**16),
]
MORE_TOO_LARGE = [
    ("model.context_length", 2**16),
    ("model.d_model", 2**61),
    *((key, 2**n) for key in ("train.batch_size", "model.d_model") for n in (17, 20, 30, 50, 60)),
    *(("model.context_length", 2**n) for n in (30, 50, 60)),
    ("model.n_layers", 2**17),
]


def test_f21_a_setting_that_is_too_large_is_named(place, tally, soak):
    fault = partial(leave_room, ROOM)
    fits = command_line(place, "train", "tiny.yaml", "--run-dir", "small", "--overwrite", fault=fault)
    assert fits.exit_code == 0, fits.stderr
    for key, value in TOO_LARGE + (MORE_TOO_LARGE if soak else []):
        with tally.attempt(f"{key}={value}"):
            arguments = ("train", "tiny.yaml", f"{key}={value}", "--run-dir", "large", "--overwrite")
            result = command_line(place, *arguments, fault=fault)
            assert_one_error_line(result, 8, "error: memory: ", "; lower ", key)
            assert not list((place / "large").glob("step-*"))


def test_f21_too_many_samples_are_named(place, tally, soak):
    run = ("--run-dir", "samples")
    assert command_line(place, "train", "tiny.yaml", *run, "--overwrite").exit_code == 0
    for n_samples in (10**5, 2**40, 2**64) if soak else (10**5,):  # there is room for their texts, not for their logits
        with tally.attempt(f"{n_samples} samples"):
            arguments = ("generate", "samples", "--num-samples", n_samples, "--max-new-tokens", 2)
            result = command_line(place, *arguments, fault=partial(leave_room, ROOM + 70 * MEGABYTE))
            assert_one_error_line(result, 8, "--num-samples")
            assert result.stdout == ""


def test_f21_the_vocabulary_asked_for_takes_no_memory_before_it_is_there(place, tally):
    for vocab_size in (10**9, 2**40, 2**62):
        with tally.attempt(f"{vocab_size} tokens"):
            result = command_line(place, "prepare", "tiny.yaml", f"tokenizer.vocab_size={vocab_size}")
            assert result.exit_code == 0, result.stderr


def test_f21_the_run_goes_on_where_there_is_room(place, tally, soak):
    """With little room it leaves the checkpoint as it was; with more room it becomes what it would have been."""
    train = ("train", "tiny.yaml", LARGE_BATCH, "--run-dir")
    assert command_line(place, *train, "roomy", "--overwrite").exit_code == 0
    for megabytes in range(100, 180, 20) if soak else (140,):
        with tally.attempt(f"room of {megabytes} MB"):
            narrow = place / f"narrow-{megabytes}"
            shutil.copytree(place / "roomy", narrow)
            shutil.rmtree(narrow / step_name(2))
            before = contents(narrow / step_name(1))
            fault = partial(leave_room, megabytes * MEGABYTE)
            assert_one_error_line(command_line(place, *train, narrow, "--resume", fault=fault), 8, "train.batch_size")
            assert contents(narrow / step_name(1)) == before
            assert command_line(place, *train, narrow, "--resume").exit_code == 0
            assert trace(narrow) == trace(place / "roomy")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize(
    "ask",
    [
        lambda: bytearray(1 << 60),
        lambda: np.empty(1 << 50),
        lambda: torch.empty(1 << 50),
        lambda: torch.empty(1 << 62),
        lambda: torch.zeros(1).expand(1 << 50).contiguous(),
        lambda: mmap.mmap(-1, 1 << 60),
    ],
)
def test_f21_each_librarys_own_error_is_known(ask):
    with pytest.raises(Exception) as caught:  # noqa: PT011 (each has its own)
        ask()
    assert is_out_of_memory(caught.value)


TEXTS = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB",
    "MPS backend out of memory (MPS allocated: 9.05 GB)",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes.",
    "could not create a primitive",
    "std::bad_alloc",
    "can't start new thread",
    "error return without exception set",
    "ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock })",
    "Resource temporarily unavailable",
]


@pytest.mark.parametrize("text", TEXTS)
def test_f21_each_text_that_has_no_class_is_known(text):
    assert is_out_of_memory(RuntimeError(text))


def test_f21_memory_is_the_cause_also_behind_another_error():
    for memory in (MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")):
        for error in (DataError("corpus", "cannot be read", "fix it"), InputOutputError("disk", "refuses", "fix it")):
            error.__cause__ = memory
            assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("shape mismatch"), OSError(errno.EIO, "Input/output error"), DataError("a", "out of memory", "b")],
)
def test_f21_other_errors_are_not_taken_for_it(error):
    assert not is_out_of_memory(error)
