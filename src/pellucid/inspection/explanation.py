"""The explanation of a text: plain data, JSON, and a table with a row per token, of 100 columns or the terminal's.

At one place, with p the truth and q the model, both distributions of the next token given all before:

    loss     −log q(token)                    of the actual token
    floor    −log p(token)                    the loss of the truth itself on that token
    excess   loss − floor                     negative where the model was lucky
    KL       Σ over tokens of p log(p / q)    the expected excess at this place; never negative
All in nats. Summed over a document, the floor is −log p(document), and the loss is what `pellucid evaluate` counts.
"""

import math
import textwrap
from dataclasses import asdict, dataclass
from html import escape
from typing import Literal

from pellucid.evaluation.skills import SkillTable
from pellucid.inspection.attention_maps import AttentionMaps, attention_table, shortened
from pellucid.inspection.formats import after, nats, percent
from pellucid.tables import columns
from pellucid.tokenizer.pieces import END, visible

NO_TOKEN = "<|unwritable|>"  # shown for a possible character that the vocabulary lacks
WIDTH = columns(100)
NATS_WIDTH, GUESS_WIDTH = (9, 23) if WIDTH > 95 else (8, 18)
TEXT_WIDTHS = {"token": 16, "skill": 18, "experts": 12} if WIDTH > 95 else {"token": 11, "skill": 9, "experts": 8}
BAR_WIDTH = min(28, WIDTH - TEXT_WIDTHS["token"] - 2 * NATS_WIDTH - 2)
LEAST_COLOURED_NATS = 0.1
# Codes of ANSI X3.64 terminals with 256 colours. Even the colour-blind can tell orange from blue.
ORANGE, BLUE, BOLD, RESET = "\033[38;5;208m", "\033[38;5;33m", "\033[1m", "\033[0m"


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
    next_unit: "character" where the next token has no exact truth.
    skills: loss and floor by skill, for a complete document whose truth is known.
    model, source: the name and step of the model, and the origin of the text.
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
            "the model's guess": "" if row.is_hit else f"{percent(guess.model)} {visible(guess.text)}",
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
            "next": {"unit": self.next_unit, **self.next.to_json()},
            "attention": self.attention and self.attention.to_json(),
            "notes": self.notes,
        }

    def table(self, *, colored: bool = False) -> str:
        """The explanation as text. Coloured: orange for an excess of 0.1 nats or more, blue for −0.1 or less."""
        title = f"{self.model}, reads {self.source}"
        parts = [
            f"{BOLD}{title}{RESET}" if colored else title,
            *(textwrap.fill(f"note: {note}", WIDTH, subsequent_indent="      ") for note in self.notes),
        ]
        if self.rows:
            parts += ["", *_rows(self, colored), "", *(textwrap.fill(line, WIDTH) for line in _sums(self))]
        if not self.is_whole:
            title, *lines = _next(self)
            parts += ["", f"{BOLD}{title}{RESET}" if colored else title, *lines]
        if self.attention:
            parts += ["", *attention_table(self.attention)]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        """In a notebook: the table that `pellucid explain` prints."""
        return f"<pre>{escape(self.table())}</pre>"


def _rows(explanation: Explanation, colored: bool) -> list[str]:
    names = explanation.cells(explanation.rows[0]).keys()
    start = sum(width for name, width in TEXT_WIDTHS.items() if name in names)
    lines = [f"{'':<{start}}   nats of this token", _line({name: name for name in names})]
    for row in explanation.rows:
        line, excess = _line(explanation.cells(row)), row.excess_nats or 0.0
        is_coloured = colored and abs(excess) >= LEAST_COLOURED_NATS
        lines.append(f"{ORANGE if excess > 0 else BLUE}{line}{RESET}" if is_coloured else line)
    return lines


def _line(cells: dict[str, str]) -> str:
    *columns, (_, guess) = cells.items()
    texts = "".join(
        _cell(cell, TEXT_WIDTHS[name]) if name in TEXT_WIDTHS else f"{cell:>{NATS_WIDTH}}" for name, cell in columns
    )
    return f"{texts}  {shortened(guess, min(GUESS_WIDTH, WIDTH - len(texts) - 2))}".rstrip()


def _cell(text: str, width: int) -> str:
    return f"{shortened(text, width - 1):<{width}}"


def _sums(explanation: Explanation) -> list[str]:
    n_tokens, loss = len(explanation.counted), explanation.loss_nats
    if not n_tokens:
        return ["no token of this text has a truth, so there is no floor to compare its loss with"]
    what = f"{n_tokens} tokens" if n_tokens == len(explanation.rows) else f"the {n_tokens} tokens that have a truth"
    if not explanation.has_truth:
        return [f"{what}: loss {nats(loss)} nats, {nats(loss / n_tokens, 4)} a token"]
    sums = f"loss {nats(loss)} nats = floor {nats(explanation.floor_nats)} + excess {nats(explanation.excess_nats)}"
    if not explanation.skills:
        return [f"{what}: {sums}"]
    hardest = explanation.skills.hardest
    score = explanation.skills.scores[hardest]
    lacks = f"{nats(score.excess_nats)} nats of excess over {score.tokens:.3g} tokens that take it"
    return [f"{what}: {sums}", f"hardest skill: {hardest}, {lacks}"]


def _next(explanation: Explanation) -> list[str]:
    forecast, has_truth = explanation.next, explanation.next.kl_nats is not None
    names = f"{'model':>{NATS_WIDTH}}{'truth' if has_truth else '':>{NATS_WIDTH}}"
    key = "█ model  ┃ truth" if has_truth else "█ model"
    lines = [
        f"the next {explanation.next_unit}, {after(explanation.text)}",
        f"{_cell('', TEXT_WIDTHS['token'])}{names}  {key}",
    ]
    for candidate in forecast.candidates:
        name = _cell(visible(candidate.text), TEXT_WIDTHS["token"])
        truth = "" if candidate.truth is None else percent(candidate.truth) if candidate.truth else "never"
        bar = _bar(candidate.model / forecast.largest, (candidate.truth or 0.0) / forecast.largest)
        lines.append(f"{name}{percent(candidate.model):>{NATS_WIDTH}}{truth:>{NATS_WIDTH}}  {bar}".rstrip())
    if forecast.forbidden_probability is not None:
        kl, entropy = nats(forecast.kl_nats), nats(forecast.truth_entropy_nats)
        impossible = percent(forecast.forbidden_probability)
        sums = f"KL(truth ‖ model) {kl} nats; entropy of the truth {entropy} nats; on what cannot come: {impossible}"
        lines.append(textwrap.fill(sums, WIDTH))
    return lines


def _bar(model: float, truth: float) -> str:
    """A bar for the model's probability, and a mark at the truth's; both from 0 to 1."""
    bar = "█" * round(model * BAR_WIDTH)
    mark = max(0, round(truth * BAR_WIDTH) - 1)
    return f"{bar[:mark]:<{mark}}┃{bar[mark + 1 :]}" if truth else bar
