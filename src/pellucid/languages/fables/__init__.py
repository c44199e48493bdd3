"""Fables: short animal stories from a probabilistic grammar, so that the best possible loss is known exactly.

Read in this order: notation (the language of rules) -> fables.rules -> story and world (the file, and larger worlds) ->
grammar (writing and reading a story) -> entropy, skills, told, reading -> distribution and about (for use elsewhere).
"""

from pellucid.languages.fables.about import FablesAbout
from pellucid.languages.fables.distribution import GRAMMAR_VERSION, Fables
from pellucid.languages.fables.skills import SKILLS
from pellucid.languages.fables.world import MAX_WORLD_SIZE

__all__ = ["GRAMMAR_VERSION", "MAX_WORLD_SIZE", "SKILLS", "Fables", "FablesAbout"]
