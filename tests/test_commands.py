"""Every command that the documentation shows survives a paste into bash and zsh, and the real parser accepts it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from pellucid.cli import app_for
from pellucid.config.load import load_run_config
from pellucid.config.shipped import find_config

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("configs/**/*.yaml")]
PROGRAMS = ("pellucid", "make", "python")
SHELLS = {"bash": ["bash", "--norc", "--noprofile"], "zsh": ["zsh", "-f", "-i"]}


def shown(page: Path) -> Iterator[str]:
    """The commands of a page: lines of a block of code or of a comment, and code in the cells of a table."""
    language = None  # of the fenced block that a line stands in
    for line in page.read_text("utf-8").splitlines():
        if fence := re.match(r"```(\w*)", line):
            language = fence[1] if language is None else None
        elif line.startswith("|"):
            yield from re.findall(rf"`((?:{'|'.join(PROGRAMS)}) [^`]+)`", line)
        elif language in ("", "sh", "bash", "console") or (language is None and line.startswith(("    ", "#   "))):
            command = re.match(rf"[# ]*(?:\$ )?((?:{'|'.join(PROGRAMS)}) .+)", line)
            if command:
                yield command[1]


COMMANDS = [command for page in sorted(PAGES) for command in shown(page) if "…" not in command]


def pasted(shell: str, folder: Path) -> list[list[str]]:
    """The arguments that each command's program gets, told by functions that stand for the programs."""
    log = folder / shell
    lines = [f"{name}() {{ printf '%s\\037' {name} \"$@\" >> '{log}'; echo >> '{log}'; }}" for name in PROGRAMS]
    subprocess.run(SHELLS[shell], input="\n".join([*lines, *COMMANDS, ""]).encode(), cwd=folder, capture_output=True)
    return [line.split("\037")[:-1] for line in log.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory) -> list[list[str]]:
    found = pasted("bash", tmp_path_factory.mktemp("bash"))
    assert len(found) == len(COMMANDS) > 20
    return found


def test_zsh_as_you_type_into_it_understands_each_command_as_bash_does(arguments, tmp_path: Path):
    """Unquoted brackets are file names there, and `#` begins no comment."""
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    found = pasted("zsh", tmp_path)
    understood = {" ".join(each) for each in found}
    broken = [command for command, each in zip(COMMANDS, arguments, strict=True) if " ".join(each) not in understood]
    assert broken == []


@pytest.mark.usefixtures("trained_before")
def test_the_parser_accepts_each_command(arguments, tmp_path: Path):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for name in re.findall(r"start_from=checkpoints/(\w+)", " ".join(COMMANDS)):  # one's own, or imported
        if not Path("checkpoints", name).exists():
            shutil.copytree("checkpoints/fables", f"checkpoints/{name}")
    commands = typer.main.get_command(app_for()).commands
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for program, *words in arguments:
        if program == "make":
            assert {word for word in words if "=" not in word} <= set(targets), words
        elif program == "python":
            assert words[0] == "-m" or (ROOT / words[0]).is_file(), words
        elif len(words) > 1:  # `pellucid train` alone is spoken of, not typed
            parameters = commands[words[0]].make_context(words[0], words[1:]).params
            if words[0] in ("prepare", "train", "cost") and find_config(parameters["config"]).is_file():
                load_run_config(parameters["config"], parameters["overrides"] or ())
