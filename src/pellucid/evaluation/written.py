"""The grammar's judgement of texts that a model wrote."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pellucid.languages.fables import Fables


@dataclass(frozen=True)
class Judgement:
    """How texts compare with true fables.

    whole: the share that are fables to the last character. morals: how many different ones they end with.
    distance: total variation between the morals told and the true distribution (see `distance_of_morals`).
    surprise: the mean of -ln p(fable) over whole ones (nats); of true fables it is the entropy. None if none is whole.
    """

    whole: float
    morals: int
    distance: float
    surprise: float | None

    def to_json(self) -> dict[str, float | None]:
        return asdict(self)


def judge(fables: Fables, texts: Sequence[str]) -> Judgement:
    log_p = [each for text in texts if (each := fables.log_probability(text)) > -math.inf]
    morals = [moral_of(fables, text) for text in texts]
    return Judgement(
        whole=len(log_p) / len(texts),
        morals=len(set(morals) - {None}),
        distance=distance_of_morals(fables, morals),
        surprise=-math.fsum(log_p) / len(log_p) if log_p else None,
    )


def moral_of(fables: Fables, text: str) -> str | None:
    """The moral that a text ends with, if it is one of the grammar's."""
    moral = text.rpartition("\nMoral: ")[2]
    return moral if moral in fables.moral_probabilities else None


def distance_of_morals(fables: Fables, morals: Sequence[str | None]) -> float:
    """Half the sum of |share told - true probability| over the morals, and over having none, which is never true.

    0: each is told as often as it should be; 1: nothing is told that should be. The largest error of any probability.
    """
    counts, truth = Counter(morals), fables.moral_probabilities
    return math.fsum(abs(counts[moral] / len(morals) - truth.get(moral or "", 0.0)) for moral in {None, *truth}) / 2
