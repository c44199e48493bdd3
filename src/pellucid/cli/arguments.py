"""Arguments that several commands share, and how they are read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pellucid.cli.terminal import note
from pellucid.errors import ConfigError
from pellucid.files import read_at_most

if TYPE_CHECKING:
    from pellucid.config.run import RunConfig

MAX_PROMPT_BYTES = 1 << 26
DATA_ROOT = Path("data")


def read_run(text: str) -> Path:
    """The folder that RUN names. `demo` is the trained demo in the package, unless there is a folder of that name."""
    from pellucid.config.shipped import find_run

    return find_run(Path(text))


ConfigFile = Annotated[Path, Argument(metavar="CONFIG", help="YAML file, or a name that `pellucid configs` lists.")]
Overrides = Annotated[
    list[str] | None, Argument(metavar="KEY=VALUE", help="Change keys: optimizer.lr=3e-4 train.steps=100.")
]
Run = Annotated[Path, Argument(metavar="RUN", parser=read_run, help="Run folder, or a step folder in it; or demo.")]
Which = Annotated[str, Option("--checkpoint", metavar="best|latest|STEP", help="Which checkpoint to use.")]
Json = Annotated[bool, Option("--json", help="Print exactly one JSON object on stdout.")]


def load_config(file: Path, overrides: list[str] | None) -> RunConfig:
    from pellucid.config.load import load_run_config

    return load_run_config(file, overrides or [], note)


def read_prompt(prompt: str | None, file: Path | None) -> str | None:
    if prompt is not None and file is not None:
        raise ConfigError("command line", "--prompt and --prompt-file exclude each other", "give one of them")
    if file is None:
        return prompt
    if str(file) == "-":
        text = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        if len(text) > MAX_PROMPT_BYTES:
            raise ConfigError("stdin", f"more than {MAX_PROMPT_BYTES:,} bytes", "give a shorter text")
        return from_utf8(text, "stdin")
    return from_utf8(read_at_most(file, MAX_PROMPT_BYTES), str(file))


def from_utf8(text: bytes, where: str) -> str:
    """The text of these bytes, without the byte-order mark with which some editors begin a file."""
    try:
        return text.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError(where, f"byte {error.start} is not UTF-8", "save the prompt as UTF-8") from None
