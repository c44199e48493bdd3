"""Errors that a user can fix, each with one clear line and a documented exit code.

An error reads `WHERE: WHAT; HOW TO FIX IT`. The command line prints it after `error: ` and exits with the class's code.
"""

from __future__ import annotations

import errno
from typing import NamedTuple, TypeVar

AnyError = TypeVar("AnyError", bound=BaseException)

# Messages of libraries that have no exception class of their own for a full memory.
OUT_OF_MEMORY_TEXTS = (
    *("out of memory", "ALLOC_FAILED"),  # a GPU's
    "DefaultCPUAllocator",
    "Storage size calculation overflowed",
    "multiplication overflow",
    "could not create a primitive",
    "bad_alloc",
    *("can't start new thread", "ThreadPoolBuildError"),  # there is no room for its stack
    "error return without exception set",  # Python itself, with no room for a MemoryError
)

LESS_MEMORY = (
    "lower train.batch_size (and raise train.gradient_accumulation_steps), model.context_length, "
    "model.d_model or model.n_layers"
)
FIX_OF_ERRNO = {
    errno.ENOENT: "check the path: without a drive or a slash in front, it begins in the folder you are in",
    errno.EACCES: "name a file or folder that you may read and write",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOSPC: "free some space and try again",
}
MOST_CHARACTERS = 500  # of each part of an error, which may quote a file


class Option(NamedTuple):
    """An option of a command, and the argument that does the same in Python."""

    command: str
    python: str

    def __str__(self) -> str:
        return self.command


RESUME = Option("--resume", "resume=True")
OVERWRITE = Option("--overwrite", "overwrite=True")
RUN_DIR = Option("--run-dir", "run_dir")
CHECKPOINT = Option("--checkpoint", "checkpoint")
TEXT_FILE = Option("--text FILE", "text_file")


class Fix:
    """A way out of an error: words with `{}` for each option."""

    def __init__(self, words: str, *options: Option) -> None:
        self.words, self.options = words, options

    def __str__(self) -> str:
        return self.words.format(*self.options)

    @property
    def in_python(self) -> str:
        return self.words.format(*(option.python for option in self.options))

    def after(self, better: str) -> Fix:
        """A better fix, or else this one."""
        return Fix(f"{better}, or {self.words}", *self.options)


CONTINUE = Fix("continue with {}", RESUME)
START_OVER = Fix("start over with {}", OVERWRITE)
START_OVER_OR_MOVE = Fix("start over with {} or another {}", OVERWRITE, RUN_DIR)


class PellucidError(Exception):
    """A fault that the user can fix: where it is, what it is, and how to fix it.

    It speaks of a command's options until `speak_python`, which the functions of the API call.
    """

    exit_code: int

    def __init_subclass__(cls, *, exit_code: int = 1) -> None:
        cls.exit_code = exit_code

    def __init__(self, where: str | Option, what: str, fix: str | Fix) -> None:
        # The three parts go to Exception so that an error survives copying between processes.
        super().__init__(where, what, fix)
        self.where, self.what, self.fix = (one_line(str(part)) for part in (where, what, fix))

    def speak_python(self) -> None:
        """Name the arguments of a function, instead of the options of a command."""
        where, _, fix = self.args
        self.where = where.python if isinstance(where, Option) else self.where
        self.fix = one_line(fix.in_python) if isinstance(fix, Fix) else self.fix

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"


class ConfigError(PellucidError, exit_code=2):
    """A wrong option, key, type or value."""


class DataError(PellucidError, exit_code=3):
    """A corpus or a tokenizer that cannot be used."""


class CheckpointError(PellucidError, exit_code=4):
    """A checkpoint that is missing, damaged, or of another run."""


class InputOutputError(PellucidError, exit_code=5):
    """The disk is full, read-only, or fails."""


class NonFiniteError(PellucidError, exit_code=6):
    """The loss or a gradient is NaN or infinite."""


class RunInUseError(PellucidError, exit_code=7):
    """Another process works in this run directory."""


class OutOfMemoryError(PellucidError, exit_code=8):
    """The model or the batch does not fit into memory."""


class LostProcessError(PellucidError, exit_code=9):
    """One of several processes that train together has ended."""


def explained(error: BaseException) -> BaseException:
    """A PellucidError for a full memory or a failing disk; any other error as it is."""
    if is_out_of_memory(error):
        fewer_texts = Fix(f"{LESS_MEMORY}; for generate, {{}}", Option("--num-samples", "write fewer texts"))
        return OutOfMemoryError("memory", "it does not fit", fewer_texts)
    if isinstance(error, OSError):
        fix = FIX_OF_ERRNO.get(error.errno or 0, "fix that and try again")
        return InputOutputError(str(error.filename or "disk"), error.strerror or str(error), fix)
    return error


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was the cause. PyTorch has a class for a full GPU; otherwise only the message tells."""
    if error is None:
        return False
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (not isinstance(error, PellucidError) and any(text in str(error) for text in OUT_OF_MEMORY_TEXTS))
        # No room for the stack of a thread that PyTorch starts. As an OSError the words mean something else.
        or (isinstance(error, RuntimeError) and "Resource temporarily unavailable" in str(error))
        or is_out_of_memory(error.__cause__)
    )


def in_short(error: BaseException) -> str:
    """The class of an error and the first line of what it says, for the one line of another."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def without_frames(error: AnyError) -> AnyError:
    """The error without tracebacks, its own and its causes', whose frames would keep tensors in memory."""
    error.__traceback__ = None
    for cause in {error.__cause__, error.__context__}:
        if cause is not None:
            without_frames(cause)
    return error


def one_line(text: str) -> str:
    """Text on one line, shortened, without control characters: names of files and tensors may hold any."""
    line = "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)
    half = MOST_CHARACTERS // 2
    return line if len(line) <= MOST_CHARACTERS else f"{line[:half]} … {line[-half:]}"
