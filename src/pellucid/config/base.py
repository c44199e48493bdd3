"""The base class of all sections of a config, and what they share."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.config import JsonDict
from typing_extensions import Self

# Whether it is broken, the keys that it is about, what is wrong, and how to fix it. The first key is to blame, unless
# only another of them was changed on the command line.
Rule = tuple[object, str, str, str]

# Marks the output of `model_json_schema()`, by which editors complete and check a YAML file.
JSON_SCHEMA: JsonDict = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


class Section(BaseModel):
    """A frozen section: unknown keys are errors, and a value is never converted to another type.

    Strictness helps learners: `steps: "100"` and `bias: 1` are typing slips, and training the wrong model costs more
    than an error message. An integer still counts as a float.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def _rules(self) -> Iterable[Rule]:
        """The rules between keys, in the best order to fix them."""
        return ()

    @model_validator(mode="after")
    def _follows_its_rules(self) -> Self:
        for is_broken, keys, what, fix in self._rules():
            if is_broken:
                raise BrokenRule(keys, what, fix)
        return self


class BrokenRule(ValueError):
    """A violated rule: the keys that it is about (none: the section itself), what is wrong, how to fix it."""

    def __init__(self, keys: str, what: str, fix: str) -> None:
        self.keys, self.what, self.fix = keys.split(), what, fix
        super().__init__(": ".join([*self.keys[:1], f"{what}; {fix}"]))


def list_of_one(value: object) -> object:
    """A string as a list of one, so that `files: a.txt` is allowed."""
    return [value] if isinstance(value, str) else value


def flat(value: object, key: str = "") -> dict[str, object]:
    """Nested keys as dotted ones: `{"model": {"d_model": 8}}` becomes `{"model.d_model": 8}`."""
    if not isinstance(value, dict):
        return {key: value}
    inner = (flat(child, f"{key}.{name}" if key else name) for name, child in value.items())
    return {path: leaf for pairs in inner for path, leaf in pairs.items()}
