"""The rules of all fables, and their morals, from fables.rules."""

import re
from pathlib import Path

from pellucid.languages.grammar.notation import Option, fixed_texts, read_rules, read_written, skills_of_holes

_SOURCE = Path(__file__).with_name("fables.rules").read_text(encoding="utf-8")
_WRITTEN = read_written(_SOURCE)

MORALS = fixed_texts(_WRITTEN)["moral"]
skill_of_hole = skills_of_holes(_WRITTEN, otherwise="recall")


def written_rules() -> dict[str, tuple[Option, ...]]:
    """The rules as they are written: a world of thirty animals."""
    return read_rules(_SOURCE)


def other_heroes(text: str) -> tuple[str, list[str]]:
    """The first hero that a text names, and those who could stand in its place; "" and none if it names no hero.

    They have the other pronoun, unless the text has used one already: then the story remains a possible one.
    """
    pronouns = {name.attributes["name"]: name.attributes for name in written_rules()["hero name"]}
    words = re.findall(r"\w+", text)
    hero = next((word for word in words if word in pronouns), "")
    if not hero:
        return "", []
    all_pronouns = {each[case] for each in pronouns.values() for case in ("he", "him", "his")}
    has_pronoun = any(word.lower() in all_pronouns for word in words[words.index(hero) :])
    same = pronouns[hero]["he"]
    return hero, [name for name, each in pronouns.items() if (each["he"] == same) == has_pronoun and name not in words]
