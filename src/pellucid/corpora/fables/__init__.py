"""Fables: short animal stories from a probabilistic grammar, so that the best possible loss is known exactly.

Read in this order: notation (the language of rules) -> story.txt and storylines.txt (the rules) -> world and vocabulary
(the tables) -> grammar (writing and reading a story) -> entropy, skills, told, reading -> distribution, about and
corpus (for use elsewhere).
"""

from pellucid.corpora.fables.about import FablesAbout
from pellucid.corpora.fables.corpus import FablesCorpus
from pellucid.corpora.fables.distribution import GRAMMAR_VERSION, Fables
from pellucid.corpora.fables.skills import SKILLS
from pellucid.corpora.fables.world import MAX_WORLD_SIZE

__all__ = ["GRAMMAR_VERSION", "MAX_WORLD_SIZE", "SKILLS", "Fables", "FablesAbout", "FablesCorpus"]
