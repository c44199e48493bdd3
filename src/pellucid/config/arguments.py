"""Arguments of the Python API, checked as a config is: by their types, in one place, with one line that helps."""

from __future__ import annotations

import difflib
import inspect
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from pellucid.config.faults import type_or_choice
from pellucid.errors import ConfigError, PellucidError

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Checks arguments first: ConfigError for a wrong name, type or choice, before anything is done.

    Other errors speak of its arguments, not of the options of the command: `resume=True` instead of `--resume`.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        types = _types_of(function)
        if None not in types:
            for name in kwargs.keys() - types.keys():
                close = difflib.get_close_matches(name, [*filter(None, types)], n=1, cutoff=0.5)
                fix = f"did you mean {close[0]!r}?" if close else f"the arguments are {', '.join(filter(None, types))}"
                raise ConfigError(function.__name__, f"unknown argument {name!r}", fix)
        for name, value in _given(function, *args, **kwargs):
            _check(name, value, types.get(name))
        try:
            return function(*args, **kwargs)
        except PellucidError as error:
            error.where, error.what, error.fix = (
                _as_arguments(part, types) for part in (error.where, error.what, error.fix)
            )
            raise

    return call


def _given(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Iterator[tuple[str, Any]]:
    """Each argument and its name: that of `*several` for several, and their own for `**others`."""
    signature = inspect.signature(function)
    for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, each) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


@cache
def _types_of(function: Callable[..., Any]) -> dict[str | None, Any]:
    """The type of each argument but `self`; `**others` under their own names, or under None if any name will do."""
    hints = get_type_hints(function, include_extras=True)
    types: dict[Any, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            types[name] = hints[name]
        elif keys := get_args(hints[name]):
            types |= get_type_hints(keys[0])
        else:
            types[None] = None
    return types


@cache
def _checker(type_: Any) -> TypeAdapter[Any] | None:
    """None for a type that only our own code can check."""
    try:
        return TypeAdapter(type_, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
    except PydanticSchemaGenerationError:
        return None


def _check(name: str, value: Any, type_: Any) -> None:
    checker = None if type_ is None else _checker(type_)
    if checker is None:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    plain = (int if isinstance(value, Integral) else float)(value) if is_number else value  # of NumPy's, too
    try:
        checker.validate_python(plain)
    except ValidationError as error:
        faults = error.errors()
        what = "is not a choice" if any(each["type"] == "literal_error" for each in faults) else "is of the wrong type"
        fixes = dict.fromkeys(type_or_choice(each) for each in faults)
        fix = " or ".join(fixes).replace(" or give ", " or ")
        raise ConfigError(name, f"{reprlib.repr(value)} {what}", fix) from None


def _as_arguments(text: str, types: Mapping[str | None, Any]) -> str:
    """`--resume` as `resume=True`, `--to hf` as `to="hf"`, and `--text FILE` as `text_file`; commands stay."""

    def argument(option: re.Match[str]) -> str:
        if option["command"]:
            return option[0]
        name, value = option["name"].replace("-", "_"), option["value"] or ""
        known = min((each for each in types if each and each.startswith(name)), key=len, default=None)
        if known is None:
            return option[0]
        if value in get_args(types[known]):
            return f'{known}="{value}"'
        known = f"{known}=True" if types[known] is bool else known
        return known if not value or value.isupper() else f"{known} {value}"

    option = r"(?P<command>`[^`]*`)|(?<!\S)--(?P<name>[a-z][a-z-]*)(?: (?P<value>\w+)\b)?"
    return re.sub(option, argument, text).replace("command line: ", "")
