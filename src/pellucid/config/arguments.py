"""Checks of the Python API's arguments by their types, with the same one-line errors as for configs."""

import difflib
import inspect
import reprlib
from collections.abc import Callable, Iterator
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from pellucid.config.faults import WORDS
from pellucid.errors import ConfigError, PellucidError

# pydantic's name of a fault, and how to fix it in Python.
FIXES = {kind: words.partition("; ")[2] for kind, words in WORDS.items()}
FIXES |= {"is_instance_of": "give a path", "dict_type": "give a dict", "none_required": "give None"}
FIXES |= {"iterable_type": "give a list", "sequence_str": "give a list"}

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator that checks arguments before the call: ConfigError for a wrong name, type or choice.

    Other errors then name arguments instead of a command's options.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        types = _types_of(function)
        if None not in types:
            for name in kwargs.keys() - types.keys():
                close = difflib.get_close_matches(name, [*filter(None, types)], n=1, cutoff=0.5)
                fix = f"did you mean {close[0]!r}?" if close else f"the arguments are {', '.join(filter(None, types))}"
                raise ConfigError(function.__name__, f"unknown argument {name!r}", fix)
        for name, value in _named_values(function, *args, **kwargs):
            _check(name, value, types.get(name))
        try:
            return function(*args, **kwargs)
        except PellucidError as error:
            error.speak_python()
            raise

    return call


def _named_values(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Iterator[tuple[str, Any]]:
    """The name and value of each argument; those in `*args` all have its name, those in `**kwargs` their own."""
    signature = inspect.signature(function)
    for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, item) for item in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


@cache
def _types_of(function: Callable[..., Any]) -> dict[str | None, Any]:
    """The type of each argument but `self`; those of `**kwargs` by name, or None as a key if any name is allowed."""
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
    """A validator for the type; None if only our own code can check it."""
    try:
        return TypeAdapter(type_, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
    except PydanticSchemaGenerationError:
        return None


def _check(name: str, value: Any, type_: Any) -> None:
    if type_ is None or (checker := _checker(type_)) is None:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    plain = (int if isinstance(value, Integral) else float)(value) if is_number else value  # also NumPy's numbers
    try:
        checker.validate_python(plain)
    except ValidationError as error:
        faults = error.errors()
        is_choice = any(fault["type"] == "literal_error" for fault in faults)
        what = "is not a choice" if is_choice else "is of the wrong type"
        fixes = {FIXES.get(each["type"], "give another value").format(**each.get("ctx", {})): None for each in faults}
        fix = " or ".join(fixes).replace(" or give ", " or ")
        raise ConfigError(name, f"{reprlib.repr(value)} {what}", fix) from None
