"""The rules of all fables, and their morals. The rules are text: story.txt, then storylines.txt."""

from pathlib import Path

from pellucid.languages.fables.vocabulary import tables
from pellucid.languages.grammar.notation import Option, read_rules

MORALS = {
    "sharing": "What we share comes back to us.",
    "greed": "Those who keep everything may end with nothing.",
    "patience": "Slow and steady goes far.",
    "kindness": "It is better to be kind than to be first.",
    "honesty": "It takes courage to own a fault.",
    "lies": "A liar is not believed even when telling the truth.",
    "help": "No good turn is ever wasted.",
    "mercy": "Answer an unkind deed with a kind one.",
    "flattery": "Sweet words are often after your supper.",
    "plainness": "Ask plainly, and you need not flatter.",
    "work": "Gather in the sun, and you need not fear the snow.",
    "idleness": "A summer of play can make a winter of hunger.",
    "quarrel": "While two quarrel over a thing, a third one takes it.",
    "agreement": "Half of a treasure and a friend is more than all of it.",
    "nature": "Be content to be what you are.",
    "envy": "The neighbour whom you envy may be envying you.",
    "promise": "Whoever keeps a small promise is trusted with a great one.",
    "trust": "Trust is quickly lost and slowly found again.",
}


def story_rules(world_size: int) -> dict[str, tuple[Option, ...]]:
    """The rules of all fables in a world with this many animals."""
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("story.txt", "storylines.txt")]
    return {**read_rules("\n".join(texts)), **tables(world_size)}
