"""The base class of all sections of a config, and what they share."""

from pydantic import BaseModel, ConfigDict
from pydantic.config import JsonDict

# Marks the output of `model_json_schema()`, by which editors complete and check a YAML file.
JSON_SCHEMA: JsonDict = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


class Section(BaseModel):
    """A frozen section: unknown keys are errors, and a value is never converted to another type.

    Strictness helps learners: `steps: "100"` and `bias: 1` are typing slips, and training the wrong model costs more
    than an error message. An integer still counts as a float.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class BrokenRule(ValueError):
    """A violated rule: the key to blame ("": the section itself), what is wrong, how to fix it."""

    def __init__(self, key: str, what: str, fix: str) -> None:
        super().__init__(f"{key}: {what}; {fix}" if key else f"{what}; {fix}")
        self.key, self.what, self.fix = key, what, fix


def list_of_one(value: object) -> object:
    """A string as a list of one, so that `files: a.txt` is allowed."""
    return [value] if isinstance(value, str) else value


def flat(value: object, key: str = "") -> dict[str, object]:
    """Nested keys as dotted ones: `{"model": {"d_model": 8}}` becomes `{"model.d_model": 8}`."""
    if not isinstance(value, dict):
        return {key: value}
    inner = (flat(child, f"{key}.{name}" if key else name) for name, child in value.items())
    return {path: leaf for pairs in inner for path, leaf in pairs.items()}
