"""The Fables corpus: any number of fables, split so that training never sees a validation fable."""

from pellucid.corpora.known import DrawnDocuments
from pellucid.languages.fables.distribution import GRAMMAR_VERSION, Fables
from pellucid.languages.grammar.grammar import Rules


class FablesCorpus(Fables, DrawnDocuments):
    """`size` fables of a world with `world_size` animals; the rest is as in `DrawnDocuments`. Raises ConfigError."""

    def __init__(
        self, size: int, world_size: int, seed: int, validation_fraction: float, rules: Rules | None = None
    ) -> None:
        language = {"grammar_version": GRAMMAR_VERSION, "world_size": world_size}
        DrawnDocuments.__init__(self, "fables", language, size, seed, validation_fraction)
        Fables.__init__(self, world_size, rules)
