"""Loss by skill: where a model's loss comes from, and what it still has to learn.

Every token of a known text takes skills (`data/truth.py` says how a token that takes several is shared out). So the
loss of a text is a sum over skills, and so is its floor; what is left between the two is what each skill lacks.

Shapes: N tokens, S skills.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.data.token_truth import TokenTruth

Figures = dict[str, float | None]


@dataclass(frozen=True)
class SkillScore:
    """One skill's part of a text: of its tokens, of the loss and of the floor (nats).

    accuracy: how often the model's most likely token was right where only one was possible; None without such tokens.
    """

    tokens: float
    loss_nats: float
    floor_nats: float
    accuracy: float | None

    @property
    def excess_nats(self) -> float:
        return self.loss_nats - self.floor_nats


@dataclass(frozen=True)
class SkillTable:
    """All skills of a text with this many documents. Their tokens, losses and floors add up to those of the text."""

    scores: dict[str, SkillScore]
    n_tokens: int
    n_documents: int

    @property
    def hardest(self) -> str:
        """The skill with the largest excess on the tokens that need it."""
        met = {skill: score for skill, score in self.scores.items() if score.tokens}
        return max(met, key=lambda skill: met[skill].excess_nats / met[skill].tokens)

    @property
    def by_excess(self) -> list[tuple[str, SkillScore]]:
        """The largest excess first."""
        return sorted(self.scores.items(), key=lambda item: -item[1].excess_nats)

    def to_json(self) -> dict[str, Figures]:
        """Per skill: its share of tokens; loss, floor and excess per token of the text and per document; accuracy."""
        return {skill: self._figures(score) for skill, score in self.scores.items()}

    def _figures(self, score: SkillScore) -> Figures:
        nats = {"loss": score.loss_nats, "floor": score.floor_nats, "excess": score.excess_nats}
        units = {"token": self.n_tokens, "document": self.n_documents}
        per_unit = {f"{name}_nats_per_{unit}": nats[name] / n for unit, n in units.items() for name in nats}
        return {"share_of_tokens": score.tokens / self.n_tokens, **per_unit, "accuracy": score.accuracy}

    def table(self) -> str:
        """For a person to read, the largest excess first, and the sum of all."""
        from pellucid.tables import table

        loss, floor = (sum(getattr(each, of) for each in self.scores.values()) for of in ("loss_nats", "floor_nats"))
        scores = {**dict(self.by_excess), "all": SkillScore(self.n_tokens, loss, floor, None)}
        return table(
            ("skill", "share of tokens", "loss", "floor", "excess", "excess per token", "right where certain"),
            (
                (
                    skill,
                    f"{share:.1%}",
                    *map("{:.3f}".format, nats),
                    f"{excess:.5f}",
                    "" if right is None else f"{right:.2%}",
                )
                for skill, score in scores.items()
                for share, _, _, excess, *nats, right in [self._figures(score).values()]
            ),
            {[*scores].index(self.hardest): "bold"},
            above=["in nats per document:"],
            below=[f"hardest: {self.hardest}, by its excess at a token that takes it"],
        )


def skill_table(
    truth: TokenTruth,
    places_N: NDArray[np.int64],
    nats_N: NDArray[np.float64],
    hits_N: NDArray[np.bool_],
    n_documents: int,
) -> SkillTable:
    """The table of some tokens: their places, the model's nats for each, and whether it would have chosen it."""
    shares_NS = truth.shares(places_N)
    floor_N = truth.nats[places_N]
    tokens_S, loss_S, floor_S = (weights_N @ shares_NS for weights_N in (np.ones(len(nats_N)), nats_N, floor_N))
    certain_N = truth.certain[places_N]
    n_certain_S, n_right_S = (weights_N.astype(float) @ shares_NS for weights_N in (certain_N, certain_N & hits_N))
    scores = {
        skill: SkillScore(
            tokens=float(tokens_S[s]),
            loss_nats=float(loss_S[s]),
            floor_nats=float(floor_S[s]),
            accuracy=float(n_right_S[s] / n_certain_S[s]) if n_certain_S[s] > 0 else None,
        )
        for s, skill in enumerate(truth.skills)
    }
    return SkillTable(scores, len(places_N), n_documents)
