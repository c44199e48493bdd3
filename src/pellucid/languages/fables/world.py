"""The rules of all fables, their morals, and their world: animals, and fixed facts about each.

The rules are in fables.rules. Animal number i is the same in every world; a world of size n has the animals 0 ... n-1.
The first thirty are those of the file, in pairs of rivals. After them come kinds such as "marsh fox" and "great marsh
fox": they move, sound and look like a fox, but have their own home, food, talent and rival, which must be learned for
each. Frequencies follow Zipf's law: number i has weight 1 / (i + 1).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from pellucid.errors import ConfigError
from pellucid.languages.grammar.notation import Option, fixed_texts, read_rules, read_written, skills_of_holes, table

_SOURCE = Path(__file__).with_name("fables.rules").read_text(encoding="utf-8")
_WRITTEN, _RULES = read_written(_SOURCE), read_rules(_SOURCE)  # a world of thirty animals

MORALS = fixed_texts(_WRITTEN)["moral"]
skill_of_hole = skills_of_holes(_WRITTEN, otherwise="recall")


def _listed(text: str) -> list[str]:
    return [" ".join(item.split()) for item in text.split(",")]


_BASES = [option.attributes for option in _RULES["animal"]]
_MODIFIERS = _listed("""
    marsh, forest, hill, river, island, desert, meadow, valley, alpine, moor, dotted, tawny, black, white, red,
    silver, brown, polar, jungle, lake, ridge, royal, common, dusky, pied, ridged, snow, rock, sand, cave, garden,
    plain, bay, town, copper, ashen, banded, wood, heath, oak
""")
_SIZES = _listed("great, pygmy, dwarf, giant")

# Facts of compound kinds are drawn from these.
_WHERE = _listed("behind, beside, below, near, beyond")
_PLACES = _listed("""
    the salt marsh, the broken mill, the stone bridge, the old quarry, the chapel, the lighthouse, the blue lake,
    the vineyard, the windmill, the ferry, the castle, the apple orchard, the beech wood, the waterfall,
    the sand dunes, the village well, the sheepfold, the cherry trees, the king's garden, the long wall
""")
_FOODS = _listed("""
    bitter roots, pine nuts, wild plums, water cress, dried peas, sunflower seeds, birch bark, red berries, mushrooms,
    sugar beets, acorns, turnips, apple peel, cabbage leaves, walnuts, sea weed, rose hips, poppy seeds, fern tips,
    rye bread
""")

MAX_WORLD_SIZE = len(_BASES) * (1 + len(_MODIFIERS) * (1 + len(_SIZES)))

Animal = Mapping[str, str]
T = TypeVar("T")


def animals(world_size: int) -> list[Animal]:
    """The facts of each animal, the most frequent first. Raises ConfigError for an impossible size."""
    if not 2 <= world_size <= MAX_WORLD_SIZE:
        what = f"{world_size} animals cannot make a world"
        raise ConfigError("corpus.world_size", what, f"choose from 2 to {MAX_WORLD_SIZE}")
    return [_animal(index) for index in range(world_size)]


def story_rules(world_size: int) -> dict[str, tuple[Option, ...]]:
    """The rules of all fables in a world with this many animals."""
    rows = table((1 / (i + 1), facts["kind"], facts) for i, facts in enumerate(animals(world_size)))
    rivals = [rival(i) for i in range(world_size)]  # one may be a stranger to this world
    return {**_RULES, "animal": rows, **{f"animal={facts['kind']}": (Option(1.0, (), facts),) for facts in rivals}}


def rival(index: int) -> Animal:
    """The rival of animal number `index`."""
    return _animal(_rival_index(index))


def _rival_index(index: int) -> int:
    # Base animals are rivals in pairs; the rival of a later kind is any animal more frequent than it.
    return index ^ 1 if index < len(_BASES) else _drawn(index, "rival", range(index))


@cache
def _animal(index: int) -> Animal:
    facts = dict(_BASES[index % len(_BASES)])
    if index >= len(_BASES):
        facts["kind"] = kind(index)
        facts["home"] = f"{_drawn(index, 'where', _WHERE)} {_drawn(index, 'place', _PLACES)}"
        facts["food"] = _drawn(index, "food", _FOODS)
        facts["talent"] = _drawn(index, "talent", _BASES)["talent"]
    facts["a"] = article(facts["kind"])
    facts["rival"] = kind(_rival_index(index))
    return facts


def kind(index: int) -> str:
    """The name of animal number `index`: "fox", "marsh fox", "great marsh fox"."""
    rank, base = divmod(index, len(_BASES))
    if rank == 0:
        return _BASES[base]["kind"]
    size, modifier = divmod(rank - 1, len(_MODIFIERS))
    words = [*_SIZES[max(size - 1, 0) : size], _MODIFIERS[modifier], _BASES[base]["kind"]]
    return " ".join(words)


def article(noun: str) -> str:
    """The indefinite article with the space after it: "a " or "an "."""
    return "an " if noun[0] in "aeiou" else "a "


def _drawn(index: int, fact: str, pool: Sequence[T]) -> T:
    digest = hashlib.sha256(f"animal {index} {fact}".encode()).digest()
    return pool[int.from_bytes(digest[:8], "big") % len(pool)]


def other_heroes(text: str) -> tuple[str, list[str]]:
    """The first hero that a text names, and those who could stand in its place; "" and none if it names no hero.

    They have the other pronoun, unless the text has used one already: then the story remains a possible one.
    """
    pronouns = {name.attributes["name"]: name.attributes for name in _RULES["hero name"]}
    words = re.findall(r"\w+", text)
    hero = next((word for word in words if word in pronouns), "")
    if not hero:
        return "", []
    all_pronouns = {each[case] for each in pronouns.values() for case in ("he", "him", "his")}
    has_pronoun = any(word.lower() in all_pronouns for word in words[words.index(hero) :])
    same = pronouns[hero]["he"]
    return hero, [name for name, each in pronouns.items() if (each["he"] == same) == has_pronoun and name not in words]
