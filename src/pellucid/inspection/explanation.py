"""The explanation of a text: plain data, JSON, and a table with a row per token.

At one place, with p the truth and q the model, both distributions of the next token given all before:

    loss     −log q(token)                    of the actual token
    floor    −log p(token)                    the loss of the truth itself on that token
    excess   loss − floor                     negative where the model was lucky
    KL       Σ over tokens of p log(p / q)    the expected excess at this place; never negative
All in nats. Summed over a document, the floor is −log p(document), and the loss is what `pellucid evaluate` counts.
For a model that fills gaps, both are given all other tokens. Such floors sum to no probability of the document.
"""

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import Literal

from pellucid.evaluation.skills import SkillTable
from pellucid.inspection.attention_maps import AttentionMaps, attention_table
from pellucid.tables import columns, folded, table
from pellucid.tokenizer.pieces import END, MARKS, visible

NO_TOKEN = "<|unwritable|>"  # shown for a possible character that the vocabulary lacks
WORDS, WIDTH = ("token", "skill", "its guess"), 100
BAR_WIDTH, BESIDE_A_BAR = 28, 32  # columns
LEAST_COLOURED_NATS = 0.1
ORANGE, BLUE = "bold color(208)", "bold color(33)"  # even the colour-blind can tell them apart


@dataclass(frozen=True)
class Candidate:
    """A possible next token or character, with its probability for the model and, if known, in truth."""

    text: str
    model: float
    truth: float | None


@dataclass(frozen=True)
class Forecast:
    """The predictions at one place: the most likely candidates of the truth, then of the model.

    kl_nats: KL(truth ‖ model); infinite where the model gives probability 0 to something possible.
    forbidden_probability: the model's mass on impossible tokens.
    These and the entropy are None where the truth is not known.
    """

    candidates: list[Candidate]
    kl_nats: float | None = None
    truth_entropy_nats: float | None = None
    forbidden_probability: float | None = None

    @property
    def guess(self) -> Candidate:
        """The model's most likely candidate."""
        return max(self.candidates, key=lambda candidate: candidate.model)

    @property
    def largest(self) -> float:
        """The largest probability shown, of model or truth."""
        return max(max(candidate.model, candidate.truth or 0.0) for candidate in self.candidates)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "kl_nats": None if self.kl_nats == math.inf else self.kl_nats}  # JSON knows no infinity


@dataclass(frozen=True)
class TokenRow:
    """A token, and the predictions at its place.

    truth: its true probability, if known; 0 if impossible.   is_hit: whether the model found it most likely.
    skills: the shares of the skills that it takes; None unless the document is complete.
    experts: the chosen ones in each layer, from 0, likeliest first; None in a model without experts.
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
        """−log of the true probability; None if that is unknown or zero."""
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
    """Predictions and truth at each token of a text, and after the last.

    text: the text that was read.   has_truth: whether the truth about the corpus is known.
    next: None of a model that fills gaps.   next_unit: "character" where the next token has no exact truth.
    skills: loss and floor by skill, for a complete document whose truth is known.
    model, source: the name and step of the model, and the origin of the text.
    """

    text: str
    rows: list[TokenRow]
    next: Forecast | None
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
        """A token's row of the table, by column; without columns for skills, experts or truth that are not known."""
        guess = row.forecast.guess
        cells = {
            "token": visible(row.text),
            "skill": "+".join(row.skills or ()),
            "experts": " ".join("+".join(map(str, chosen)) for chosen in row.experts or ()),
            "truth": "never" if row.truth == 0 else nats(row.truth_nats),
            "model": nats(row.model_nats),
            "excess": nats(row.excess_nats, signed=True),
            "KL": nats(row.forecast.kl_nats),
            "": "" if row.is_hit else percent(guess.model),
            "its guess": "" if row.is_hit else visible(guess.text),
        }
        unknown = [
            *([] if self.skills else ["skill"]),
            *([] if any(row.experts for row in self.rows) else ["experts"]),
            *([] if self.has_truth else ["truth", "excess", "KL"]),
        ]
        return {name: cell for name, cell in cells.items() if name not in unknown}

    def to_json(self) -> dict[str, object]:
        """The explanation as `pellucid explain --json` prints it; unknown values are null, and so is an infinite KL."""
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
            "next": self.next and {"unit": self.next_unit, **self.next.to_json()},
            "attention": self.attention and self.attention.to_json(),
            "notes": self.notes,
        }

    def table(self) -> str:
        """The explanation as text. In a terminal: orange from 0.1 nats of excess, blue from −0.1 down."""
        notes = [folded(f"note: {note}", 6, WIDTH) for note in self.notes]
        parts = ["\n".join([table((), [(f"{self.model}, reads {self.source}",)], {0: "bold"}), *notes])]
        if self.rows:
            rows = list(map(self.cells, self.rows))
            excess = [math.inf if row.truth == 0 else row.excess_nats or 0 for row in self.rows]
            styles = {i: ORANGE if x > 0 else BLUE for i, x in enumerate(excess) if abs(x) >= LEAST_COLOURED_NATS}
            words, cells = [i for i, name in enumerate(rows[0]) if name in WORDS], [list(row.values()) for row in rows]
            parts += [table([*rows[0]], cells, styles, above=["nats of each token"], words=words, is_cut=True)]
            parts += ["\n".join(folded(line, most=WIDTH) for line in _sums(self))]
        if self.next and not self.is_whole:
            parts += [_next(self, self.next)]
        if self.attention:
            parts += [attention_table(self.attention)]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        """In a notebook: the table that `pellucid explain` prints."""
        return f"<pre>{escape(self.table())}</pre>"


def _sums(explanation: Explanation) -> list[str]:
    n_tokens, loss = len(explanation.counted), explanation.loss_nats
    if not n_tokens:
        return ["no token of this text has a truth, so there is no floor to compare its loss with"]
    what = (
        f"{n_tokens} token{'' if n_tokens == 1 else 's'}"
        if n_tokens == len(explanation.rows)
        else f"the {n_tokens} tokens that have a truth"
    )
    if not explanation.has_truth:
        return [f"{what}: loss {nats(loss)} nats, {nats(loss / n_tokens, 4)} a token"]
    sums = f"loss {nats(loss)} nats = floor {nats(explanation.floor_nats)} + excess {nats(explanation.excess_nats)}"
    if not explanation.skills:
        return [f"{what}: {sums}"]
    hardest = explanation.skills.hardest
    score = explanation.skills.scores[hardest]
    lacks = f"{nats(score.excess_nats)} nats of excess over {score.tokens:.3g} tokens that take it"
    return [f"{what}: {sums}", f"hardest skill: {hardest}, {lacks}"]


def _next(explanation: Explanation, forecast: Forecast) -> str:
    rows, has_truth = [], forecast.kl_nats is not None
    for candidate in forecast.candidates:
        truth = "" if candidate.truth is None else percent(candidate.truth) if candidate.truth else "never"
        bar = _bar(candidate.model / forecast.largest, (candidate.truth or 0.0) / forecast.largest)
        rows.append((visible(candidate.text), percent(candidate.model), truth, bar))
    heading = ("", "model", *(("truth", "█ model  ┃ truth") if has_truth else ("", "█ model")))
    title = table((), [(f"the next {explanation.next_unit}, {after(explanation.text)}",)], {0: "bold"})
    lines = [title, table(heading, rows, words=(0, 3), is_cut=True)]
    if forecast.forbidden_probability is not None:
        kl, entropy = nats(forecast.kl_nats), nats(forecast.truth_entropy_nats)
        impossible = percent(forecast.forbidden_probability)
        sums = f"KL(truth ‖ model) {kl} nats; entropy of the truth {entropy} nats; on what cannot come: {impossible}"
        lines.append(folded(sums, most=WIDTH))
    return "\n".join(lines)


def _bar(model: float, truth: float) -> str:
    """A bar for the model's probability, and a mark at the truth's; both from 0 to 1."""
    width = max(1, min(BAR_WIDTH, columns() - BESIDE_A_BAR))
    bar = "█" * round(model * width)
    mark = max(0, round(truth * width) - 1)
    return f"{bar[:mark]:<{mark}}┃{bar[mark + 1 :]}" if truth else bar


def after(text: str, n_characters: int = 40) -> str:
    """The end of a text, as in: after “…once upon”. On one line; a final blank is marked."""
    if not text:
        return "at the start of a document"
    shown = visible(text[-n_characters:]).replace(MARKS[" "], " ")
    if text.endswith(" "):
        shown = shown[:-1] + MARKS[" "]
    return f"after “{'…' if len(text) > n_characters else ''}{shown}”"


def nats(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    if value is None or value == math.inf:
        return "—" if value is None else "∞"
    rounded = round(value, digits) + 0.0  # no −0.000
    return f"{rounded:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def percent(probability: float) -> str:
    """With two digits; only 0 is shown as 0%, and only 1 as 100%."""
    if 0 < probability < 5e-5:
        return "<0.01%"
    return ">99.99%" if 1 - 5e-5 <= probability < 1 - 1e-9 else f"{probability:.2%}"
