"""What `pellucid explain` finds out about a text, as plain data for a terminal, a page or JSON.

At one place, with p the truth and q the model, both distributions of the next token given all before:
    loss     −log q(token)                    of the token that came
    floor    −log p(token)                    what the truth itself loses on that token
    excess   loss − floor                     negative where the model was lucky
    KL       Σ over tokens of p log(p / q)    the excess to expect at this place, whatever comes; never negative
All in nats. Summed over a document, the floor is −log p(document), and the loss is what `pellucid evaluate` counts.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from pellucid.evaluation.skills import SkillTable
from pellucid.inspection.attention_maps import AttentionMaps
from pellucid.inspection.formats import nats, percent
from pellucid.tokenizer.pieces import END, visible

NO_TOKEN = "<|unwritable|>"  # how a character that the vocabulary lacks is shown, where it may come


@dataclass(frozen=True)
class Candidate:
    """What may come next, a token or a character, and its probability: for the model, and in truth if that is known."""

    text: str
    model: float
    truth: float | None


@dataclass(frozen=True)
class Forecast:
    """What is expected at one place: the most likely of the model and of the truth, the truth's first.

    kl_nats: KL(truth ‖ model); infinite where the model gives probability 0 to something that may come.
    forbidden_probability: the model's mass on what cannot come.
    These three are None where the truth is not known.
    """

    candidates: list[Candidate]
    kl_nats: float | None = None
    truth_entropy_nats: float | None = None
    forbidden_probability: float | None = None

    @property
    def guess(self) -> Candidate:
        """The model's most likely."""
        return max(self.candidates, key=lambda candidate: candidate.model)

    @property
    def largest(self) -> float:
        """The largest probability shown, of model or truth."""
        return max(max(candidate.model, candidate.truth or 0.0) for candidate in self.candidates)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "kl_nats": None if self.kl_nats == math.inf else self.kl_nats}  # JSON knows no infinity


@dataclass(frozen=True)
class TokenRow:
    """A token that came, and what was expected in its place.

    truth: its probability; 0 where it cannot come, None where that is not known.   is_hit: the model's most likely.
    skills: those that it takes, with their shares; None unless the document is whole.
    experts: those that it asks in each layer when it is read, from 0, likeliest first; None in a model without any.
    """

    text: str
    id: int
    model_nats: float
    truth: float | None
    is_hit: bool
    skills: dict[str, float] | None
    forecast: Forecast
    experts: list[list[int]] | None = None

    @property
    def model(self) -> float:
        return math.exp(-self.model_nats)

    @property
    def truth_nats(self) -> float | None:
        """None also for what cannot come, whose surprise is infinite."""
        return max(0.0, -math.log(self.truth)) if self.truth else None

    @property
    def excess_nats(self) -> float | None:
        return None if self.truth_nats is None else self.model_nats - self.truth_nats

    def to_json(self) -> dict[str, object]:
        row = {"token": self.text, "id": self.id, "skills": self.skills, "truth_probability": self.truth}
        nats = {"truth_nats": self.truth_nats, "model_nats": self.model_nats, "excess_nats": self.excess_nats}
        return {**row, **nats, **self.forecast.to_json(), "experts": self.experts}


@dataclass(frozen=True)
class Explanation:
    """Each token of a text, and what may come after the last.

    text: what was read.   has_truth: whether the truth about the corpus is known.
    next_unit: characters where the next token has no exact truth.
    skills: loss and floor by skill, of a whole document whose truth is known.
    model, source: the name and step of the model, and where the text is from.
    """

    text: str
    rows: list[TokenRow]
    next: Forecast
    next_unit: Literal["token", "character"]
    has_truth: bool
    skills: SkillTable | None
    notes: list[str]
    attention: AttentionMaps | None = None
    model: str = "a model"
    source: str = "a text"

    @property
    def is_whole(self) -> bool:
        """Whether the tokens include the end of the document; nothing comes after it."""
        return bool(self.rows) and self.rows[-1].text == END

    @property
    def counted(self) -> list[TokenRow]:
        """The tokens whose truth is known; all of them if no truth is known."""
        return [row for row in self.rows if row.truth_nats is not None or not self.has_truth]

    @property
    def loss_nats(self) -> float:
        return math.fsum(row.model_nats for row in self.counted)

    @property
    def floor_nats(self) -> float | None:
        return math.fsum(row.truth_nats or 0.0 for row in self.counted) if self.has_truth else None

    @property
    def excess_nats(self) -> float | None:
        return None if self.floor_nats is None else self.loss_nats - self.floor_nats

    def cells(self, row: TokenRow) -> dict[str, str]:
        """A token's row of the table, by column. Skills, experts and truth have none where they are not known."""
        guess = row.forecast.guess
        cells = {
            "token": visible(row.text),
            "skill": "+".join(row.skills or ()),
            "experts": " ".join("+".join(map(str, asked)) for asked in row.experts or ()),
            "truth": "never" if row.truth == 0 else nats(row.truth_nats),
            "model": nats(row.model_nats),
            "excess": nats(row.excess_nats, signed=True),
            "KL": nats(row.forecast.kl_nats),
            "the model's guess": "" if row.is_hit else f"{percent(guess.model)} {visible(guess.text)}",
        }
        unknown = [
            *([] if self.skills else ["skill"]),
            *([] if any(row.experts for row in self.rows) else ["experts"]),
            *([] if self.has_truth else ["truth", "excess", "KL"]),
        ]
        return {name: cell for name, cell in cells.items() if name not in unknown}

    def to_json(self) -> dict[str, object]:
        """As `pellucid explain --json` prints it; unknown values are null, and so is an infinite KL."""
        return {
            "text": self.text,
            "tokens": [row.to_json() for row in self.rows],
            "total": {
                "tokens": len(self.counted),
                "loss_nats": self.loss_nats,
                "floor_nats": self.floor_nats,
                "excess_nats": self.excess_nats,
                "hardest_skill": self.skills and self.skills.hardest,
                "skills": self.skills and self.skills.to_json(),
            },
            "next": {"unit": self.next_unit, **self.next.to_json()},
            "attention": self.attention and self.attention.to_json(),
            "notes": self.notes,
        }

    def _repr_html_(self) -> str:
        """In a notebook: the page in its own frame."""
        from pellucid.inspection.explain_page import explanation_page, framed

        return framed(explanation_page(self))
