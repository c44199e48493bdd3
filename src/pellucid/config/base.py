"""What every section of a run config has in common."""

from pydantic import BaseModel, ConfigDict
from pydantic.config import JsonDict

# With it, `model_json_schema()` is what editors complete and check a YAML file by.
JSON_SCHEMA: JsonDict = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


class Section(BaseModel):
    """A frozen section: unknown keys are errors, and a value is never converted to another type.

    Strictness is for the learner: `steps: "100"` and `bias: 1` are typing slips, and a typing slip that
    trains the wrong model costs more than an error message. An integer still counts as a float.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class BrokenRule(ValueError):
    """Values that disagree: the key to blame ("": the section itself), what is wrong, how to fix it."""

    def __init__(self, key: str, what: str, fix: str) -> None:
        super().__init__(f"{key}: {what}; {fix}" if key else f"{what}; {fix}")
        self.key, self.what, self.fix = key, what, fix


def list_of_one(value: object) -> object:
    """A text where a list belongs: `files: a.txt`."""
    return [value] if isinstance(value, str) else value


def flat(value: object, key: str = "") -> dict[str, object]:
    """`{"model": {"d_model": 8}}` as `{"model.d_model": 8}`."""
    if not isinstance(value, dict):
        return {key: value}
    inner = (flat(each, f"{key}.{name}" if key else name) for name, each in value.items())
    return {path: leaf for pairs in inner for path, leaf in pairs.items()}
