"""What can go wrong for a user: one clear line and one documented exit code each.

An error reads `WHERE: WHAT; HOW TO FIX IT`. The command line prints it after `error: ` and exits with the class's code.
"""


class PellucidError(Exception):
    """A fault that the user can fix: where it is, what it is, and how to fix it."""

    exit_code: int

    def __init__(self, where: str, what: str, fix: str) -> None:
        # The three parts go to Exception so that an error survives copying between processes.
        super().__init__(where, what, fix)
        self.where, self.what, self.fix = map(_one_line, (where, what, fix))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"


class ConfigError(PellucidError):
    """A wrong option, key, type or value."""

    exit_code = 2


class DataError(PellucidError):
    """A corpus or a tokenizer that cannot be used."""

    exit_code = 3


class CheckpointError(PellucidError):
    """A checkpoint that is missing, damaged, or of another run."""

    exit_code = 4


class InputOutputError(PellucidError):
    """The disk is full, read-only, or refuses."""

    exit_code = 5


class NonFiniteLossError(PellucidError):
    """The loss or a gradient is NaN or infinite."""

    exit_code = 6


class RunInUseError(PellucidError):
    """Another process works in this run directory."""

    exit_code = 7


class OutOfMemoryError(PellucidError):
    """The model or the batch does not fit into memory."""

    exit_code = 8


def _one_line(text: str) -> str:
    """Names of keys, files and tensors come from outside: none of them may move a terminal's cursor."""
    return "".join(c if c.isprintable() else " " if c.isspace() else ascii(c)[1:-1] for c in text)
