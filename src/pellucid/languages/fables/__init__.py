"""Fables: short animal stories from a probabilistic grammar, so that the best possible loss is known exactly.

Read in this order: grammar.notation (the language of rules) -> fables.rules -> world (larger ones) -> grammar.grammar
(writing and reading a story) -> reading (what a text tells) -> distribution and about (for use elsewhere).
"""

from pellucid.languages.fables.distribution import GRAMMAR_VERSION, SKILLS, Fables
from pellucid.languages.fables.world import MAX_WORLD_SIZE

__all__ = ["GRAMMAR_VERSION", "MAX_WORLD_SIZE", "SKILLS", "Fables"]
