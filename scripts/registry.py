"""The measurements and drawings: a module each, whose main function says by its parameters which options there are.

A docstring has lines that begin with "Remakes:", "Takes:" and "Needs:", for the list.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args

SCRIPTS = Path(__file__).parent


class Program(NamedTuple):
    """A module's description, read without loading it."""

    summary: str
    facts: dict[str, str]  # what it remakes, how long it takes, what it needs


def programs(folder: str, function: str) -> dict[str, Program]:
    """The modules of a folder that define this function, by name. The others hold what these share."""
    by_name = {}
    for file in sorted((SCRIPTS / folder).glob("*.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(each, ast.FunctionDef) and each.name == function for each in module.body):
            docstring = ast.get_docstring(module) or ""
            facts = dict(re.findall(r"^(Remakes|Takes|Needs): (.+)$", docstring, re.MULTILINE))
            by_name[file.stem] = Program(docstring.partition("\n")[0], facts)
    return by_name


def print_list(folder: str, function: str, shown: Callable[[str], str] = str) -> None:
    """Prints a few lines for each program. `shown` may add to what one remakes."""
    for name, (summary, facts) in programs(folder, function).items():
        print(f"{name}\n    {summary}")
        for what, fact in facts.items():
            print(f"    {what.lower()}: {shown(fact) if what == 'Remakes' else fact}")


def chosen(folder: str, function: str, arguments: list[str], description: str) -> tuple[str, Callable[..., Any]]:
    """The function of the program that the first argument names. Without one, ends with a usage; else an error."""
    names = list(programs(folder, function))
    if not arguments or arguments[0] in ("-h", "--help"):
        print(description)
        sys.exit(0)
    if arguments[0] not in names:
        sys.exit(f"error: {arguments[0]}: there is no such one; choose among {', '.join(names)}, or see --list")
    return arguments[0], getattr(import_module(f"{folder}.{arguments[0]}"), function)


def parser_for(function: Callable[..., Any], name: str) -> argparse.ArgumentParser:
    """A command line with an argument or an option for each parameter of the function."""
    texts = [inspect.getdoc(sys.modules[function.__module__]), inspect.getdoc(function)]
    parser = argparse.ArgumentParser(
        prog=f"{Path(sys.argv[0]).name} {name}",
        description="\n\n".join(filter(None, texts)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for each in inspect.signature(function, eval_str=True).parameters.values():
        kind = get_args(each.annotation)[0] if isinstance(each.annotation, UnionType) else each.annotation
        kind = absolute if kind is Path else kind
        if each.kind is each.VAR_POSITIONAL:
            parser.add_argument(each.name, nargs="*", type=kind)
        elif each.default is each.empty:
            parser.add_argument(each.name, type=kind)
        elif kind is bool:
            parser.add_argument(f"--{each.name.replace('_', '-')}", action="store_true")
        else:
            parser.add_argument(f"--{each.name.replace('_', '-')}", type=kind, default=each.default)
    return parser


def absolute(path: str) -> Path:
    """A path that means the same in the empty folder of a measurement. A name, such as `demo`, stays as it is."""
    return Path(path).resolve() if Path(path).exists() else Path(path)


def called(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Calls the function with the options that its parser has read."""
    parameters = inspect.signature(function).parameters.values()
    several = [value for each in parameters if each.kind is each.VAR_POSITIONAL for value in options[each.name]]
    before = [options[each.name] for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    after = {each.name: options[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
    return function(*before, *several, **after)
