"""The sections that a key may have, read from the classes: at `model` a decoder, an LSTM and so on."""

from typing import Any, get_args, get_origin

from pellucid.config.base import Section
from pellucid.config.yaml_source import Path

Sections = dict[str, type[Section]]  # by type; "" is that of a section without one


def sections_in(hint: Any) -> Sections:
    """The sections in a type hint: of `list[A | B] | None`, A and B."""
    if parts := get_args(hint):
        return {name: section for part in parts for name, section in sections_in(part).items()}
    if not (isinstance(hint, type) and issubclass(hint, Section)):
        return {}
    types = get_args(hint.model_fields["type"].annotation) if "type" in hint.model_fields else [""]
    return dict.fromkeys(types, hint)


def possible_at(path: Path, data: Any, section: type[Section]) -> Sections:
    """The sections that may stand at a key path, where those above it are of the types that the data name."""
    possible: Sections = {"": section}
    is_named = False  # whether the next key is no field, but a name or an index: of a tour's runs, of figures
    for key in path:
        if not is_named:
            field = possible[chosen(possible, data)].model_fields.get(str(key)) if possible else None
            hint = field.annotation if field else None
            possible = sections_in(hint)
        is_named = not is_named and get_origin(hint) in (dict, tuple)
        data = data[key]
    return possible


def chosen(possible: Sections, data: Any) -> str:
    """The type that the data of a section name; the first one if they name none."""
    name = str(data.get("type")) if isinstance(data, dict) else ""
    return name if name in possible else next(iter(possible))


def keys_left_out(data: dict[str, Any], new_type: object, possible: Sections) -> list[str]:
    """The keys of a section that the new type lacks, or for which it has other choices; none if the type stays.

    A key that no type has is kept, and becomes an error later.
    """
    if str(new_type) not in possible:
        return []
    old, new = possible[chosen(possible, data)], possible[str(new_type)]
    known = [key for key in data if key in old.model_fields and key != "type"]
    return [key for key in known if new is not old and _choices(new, key) != _choices(old, key)]


def _choices(section: type[Section], key: str) -> object:
    """All that restricts the values of a key, except that a list may not be empty."""
    field = section.model_fields.get(key)
    return field and (field.annotation, [each for each in field.metadata if not hasattr(each, "min_length")])
