"""Tables of words that a fable remembers and repeats: names, numbers, things.

Each is a rule of `notation`, with the attributes that later text may use.
"""

import re

from pellucid.languages.fables.world import animals, article, kind, rival
from pellucid.languages.grammar.notation import Option, table

HE = {"he": "he", "him": "him", "his": "his"}
SHE = {"he": "she", "him": "her", "his": "her"}
# Two lists, so no fable has two animals with the same name.
_HERO_NAMES = (
    "Bramble Oswin Felix Rufus Basil Hugo Jasper Otto Barnaby Casper Edgar Finn Gus Milo",
    "Hazel Clover Daisy Ivy Juniper Lily Mabel Nell Olive Poppy Rosie Tansy Willow Bella",
)
_OTHER_NAMES = (
    "Ned Percy Silas Wilbur Archie Hubert Rowan Simon Victor Martin Jack Conrad Oscar Peter",
    "Dora Ella Flora Greta Maud Agnes Beatrix Edith Hattie Nora Sophie Tilda Winnie Lucy",
)

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ORDINALS = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")

_LOOKS = "young small thin plump old tall handsome poor rich tidy strong little"
_TRAITS = """
    cheerful curious quiet clever proud merry gentle stubborn sleepy shy bold careful lively clumsy patient dreamy
    busy kind restless brave honest wise
"""
_MANNERS = """
    hungry tired friendly lonely thirsty dusty polite weary sly ragged wet nosy limping lazy silent elderly grumpy
    pale
"""
_FRUITS = "fig plum pear apple chestnut quince date lemon melon turnip bun pie acorn cake nut onion"
_TREASURES = """
    bell lantern kettle scarf spoon drum mirror cup flute whistle key hat basket candle ladder blanket ribbon
    brush broom mug wheel
"""
_PERFORMANCES = ((4.0, "sing", "sang"), (3.0, "dance", "danced"), (1.0, "whistle", "whistled"))


def tables(world_size: int) -> dict[str, tuple[Option, ...]]:
    """All tables by name. The rules `a look` and `a manner` write the article too."""
    counts = enumerate(zip(NUMBERS[2:], _ORDINALS, strict=True))  # three to ten, small numbers more often
    return {
        "animal": table((1 / (i + 1), facts["kind"], facts) for i, facts in enumerate(animals(world_size))),
        # The rival is a fact, remembered without a draw or text.
        **{f"rival of {kind(i)}": (Option(1.0, (), rival(i)),) for i in range(world_size)},
        "hero name": _names(*_HERO_NAMES),
        "other name": _names(*_OTHER_NAMES),
        "number": table((9.0 - i, number, {"name": number, "ordinal": ordinal}) for i, (number, ordinal) in counts),
        **{f"some of {total}": _part_of(i) for i, total in enumerate(NUMBERS[1:], 2)},
        "trait": _words(_TRAITS),
        "a look": table((weight, article(word) + word, {"name": word}) for weight, word in _weighted(_LOOKS)),
        "a manner": table((weight, article(word) + word, {"name": word}) for weight, word in _weighted(_MANNERS)),
        "fruits": table((weight, f"{fruit}s", {"name": fruit}) for weight, fruit in _weighted(_FRUITS)),
        "performance": table((weight, verb, {"name": verb, "past": past}) for weight, verb, past in _PERFORMANCES),
        "treasure": _words(_TREASURES),
    }


def other_heroes(text: str) -> tuple[str, list[str]]:
    """The first hero that a text names, and those who could stand in its place; "" and none if it names no hero.

    They have the other pronoun, unless the text has used one already: then the story remains a possible one.
    """
    his, hers = (names.split() for names in _HERO_NAMES)
    words = re.findall(r"\w+", text)
    hero = next((word for word in words if word in his + hers), "")
    if not hero:
        return "", []
    has_pronoun = any(word.lower() in {*HE.values(), *SHE.values()} for word in words[words.index(hero) :])
    others = his if (hero in his) == has_pronoun else hers
    return hero, [name for name in others if name not in words]


def _weighted(text: str) -> list[tuple[float, str]]:
    """The words of a text, with weights that fall evenly from 2 to 1."""
    words = text.split()
    return [(2.0 - i / (len(words) - 1), word) for i, word in enumerate(words)]


def _words(text: str) -> tuple[Option, ...]:
    return table((weight, word, {"name": word}) for weight, word in _weighted(text))


def _names(his: str, hers: str) -> tuple[Option, ...]:
    named = [(weighted, HE) for weighted in _weighted(his)] + [(weighted, SHE) for weighted in _weighted(hers)]
    return table((weight, name, {"name": name, **pronouns}) for (weight, name), pronouns in named)


def _part_of(total: int) -> tuple[Option, ...]:
    """The options one to total - 1, with the number that is left."""
    return table((float(total + 1 - part), NUMBERS[part - 1], _part(part, total - part)) for part in range(1, total))


def _part(part: int, left: int) -> dict[str, str]:
    return {
        "name": NUMBERS[part - 1],
        "s": "" if part == 1 else "s",
        "left": NUMBERS[left - 1],
        "were": "was" if left == 1 else "were",
        "them": "it" if left == 1 else "them",
    }
