"""Worlds so small that every fable can be listed."""

import random
from collections.abc import Iterator

from pellucid.languages.fables import Fables
from pellucid.languages.fables.world import story_rules
from pellucid.languages.grammar.grammar import Fork

N_STORYLINES = len(story_rules(3)["storyline"])
# Tables whose options depend on each other: they stay whole, so that what is told stays possible.
WHOLE = ("animal", "some of")


def tiny_fables(*storylines: int, most: int = 2000) -> Fables:
    """The shipped story with these storylines and one option of most other rules: two, where there are few fables."""
    rng = random.Random(storylines[0])
    rules = story_rules(world_size=3)
    rules["storyline"] = [rules["storyline"][i] for i in storylines]
    open_rules = [name for name in rules if name != "storyline" and not name.startswith(WHOLE)]
    rng.shuffle(open_rules)
    # Both endings and some counting stay; the other rules open up in random order.
    open_rules.sort(key=lambda name: not name.endswith((" outcome", "number")))
    kept = {name: rng.sample(rules[name], min(2, len(rules[name]))) for name in open_rules}
    n_open = len(open_rules)
    while True:
        narrowed = {name: kept[name][: 2 if i < n_open else 1] for i, name in enumerate(open_rules)}
        fables = Fables(3, {**rules, **narrowed})
        if fables.n_texts <= most:
            return fables
        n_open = n_open * 9 // 10 if n_open > 10 else n_open - 1


def all_stories(fork: Fork | None, written: str = "", probability: float = 1.0) -> Iterator[tuple[str, float]]:
    """Every story that goes on from a choice, with its probability."""
    if fork is None:
        yield written, probability
        return
    for index in fork.allowed():
        text, after = fork.write(index)
        yield from all_stories(after, written + text, probability * fork.probability(index))
