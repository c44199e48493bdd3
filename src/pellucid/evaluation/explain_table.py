"""An explanation in a terminal: a row per token, then what comes next. 100 columns wide."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable

from pellucid.evaluation.attention_maps import attention_table
from pellucid.evaluation.explanation import Explanation, Forecast, TokenRow
from pellucid.tokenizer.pieces import visible

WIDTH = 100
TOKEN_WIDTH, SKILL_WIDTH, NATS_WIDTH, BAR_WIDTH = 16, 18, 9, 28
NOT_KNOWN, IMPOSSIBLE, INFINITE = "—", "never", "∞"
LEAST_COLOURED_NATS = 0.1
# Codes of ANSI X3.64 terminals with 256 colours. Every kind of colour vision can tell orange from blue.
ORANGE, BLUE, BOLD, RESET = "\033[38;5;208m", "\033[38;5;33m", "\033[1m", "\033[0m"


def explanation_table(explanation: Explanation, *, colored: bool) -> str:
    """All of it as text. Coloured: orange where the model lost 0.1 nats or more to the truth, blue where it won."""
    parts = [
        _bold(f"{explanation.model}, reads {explanation.source}", colored),
        *(textwrap.fill(f"note: {note}", WIDTH, subsequent_indent="      ") for note in explanation.notes),
    ]
    if explanation.rows:
        parts += ["", *_rows(explanation, colored), "", *_sums(explanation)]
    if not explanation.is_whole:
        parts += ["", *_next(explanation, colored)]
    if explanation.attention:
        parts += ["", *attention_table(explanation.attention)]
    return "\n".join(parts)


def _rows(explanation: Explanation, colored: bool) -> list[str]:
    has_skills, has_truth = explanation.skills is not None, explanation.has_truth
    columns: list[tuple[str, Callable[[TokenRow], str]]] = [("model", lambda row: _nats(row.model_nats))]
    if has_truth:
        columns = [
            ("truth", lambda row: IMPOSSIBLE if row.truth == 0 else _nats(row.truth_nats)),
            *columns,
            ("excess", lambda row: _nats(row.excess_nats, signed=True)),
            ("KL", lambda row: _nats(row.forecast.kl_nats)),
        ]
    skill = f"{'skill':<{SKILL_WIDTH}}" if has_skills else ""
    names = "".join(f"{name:>{NATS_WIDTH}}" for name, _ in columns)
    lines = [
        f"{'':<{TOKEN_WIDTH}}{'':<{len(skill)}}{'   nats of this token':<{len(names)}}",
        f"{'token':<{TOKEN_WIDTH}}{skill}{names}  the model's guess",
    ]
    for row in explanation.rows:
        skill = _cell("+".join(row.skills or ()), SKILL_WIDTH) if has_skills else ""
        numbers = "".join(f"{number(row):>{NATS_WIDTH}}" for _, number in columns)
        guess = row.forecast.guess
        guessed = "" if row.is_hit else f"  {_percent(guess.model)} {_cell(visible(guess.text), TOKEN_WIDTH)}"
        line = f"{_cell(visible(row.text), TOKEN_WIDTH)}{skill}{numbers}{guessed}".rstrip()
        lines.append(_shade(line, row.excess_nats) if colored else line)
    return [line.rstrip() for line in lines]


def _sums(explanation: Explanation) -> list[str]:
    n_tokens = len(explanation.counted)
    if not n_tokens:
        return ["no token of this text has a truth, so there is no floor to set its loss against"]
    what = f"{n_tokens} tokens" if n_tokens == len(explanation.rows) else f"the {n_tokens} tokens that have a truth"
    if explanation.floor_nats is None or explanation.excess_nats is None:
        return [f"{what}: loss {explanation.loss_nats:.3f} nats, {explanation.loss_nats / n_tokens:.4f} a token"]
    loss, floor, excess = explanation.loss_nats, explanation.floor_nats, explanation.excess_nats
    lines = [f"{what}: loss {loss:.3f} nats = floor {floor:.3f} + excess {excess:.3f}"]
    if explanation.skills:
        score = explanation.skills.scores[explanation.skills.hardest]
        lines.append(
            f"hardest skill: {explanation.skills.hardest}, {score.excess_nats:.3f} nats of excess "
            f"over {score.tokens:.3g} tokens that take it"
        )
    return lines


def _next(explanation: Explanation, colored: bool) -> list[str]:
    forecast, has_truth = explanation.next, explanation.next.kl_nats is not None
    token = "character" if explanation.next_unit == "character" else "token"
    where = f"after {explanation.end}" if explanation.end else "at the start of a document"
    key = "█ model  ┃ truth" if has_truth else "█ model"
    lines = [
        _bold(f"the next {token}, {where}", colored),
        f"{'':<{TOKEN_WIDTH}}{'model':>{NATS_WIDTH}}{'truth' if has_truth else '':>{NATS_WIDTH}}  {key}",
    ]
    scale = max(max(candidate.model, candidate.truth or 0.0) for candidate in forecast.candidates)
    for candidate in forecast.candidates:
        name = _cell(visible(candidate.text), TOKEN_WIDTH)
        truth = "" if candidate.truth is None else _percent(candidate.truth) if candidate.truth else IMPOSSIBLE
        bar = _bar(candidate.model / scale, candidate.truth and candidate.truth / scale)
        lines.append(f"{name}{_percent(candidate.model):>{NATS_WIDTH}}{truth:>{NATS_WIDTH}}  {bar}".rstrip())
    return [*lines, *_measures(forecast)]


def _measures(forecast: Forecast) -> list[str]:
    if forecast.kl_nats is None or forecast.entropy_nats is None or forecast.forbidden is None:
        return []
    return [
        f"KL(truth ‖ model) {_nats(forecast.kl_nats)} nats; entropy of the truth {_nats(forecast.entropy_nats)} nats; "
        f"on what cannot come: {_percent(forecast.forbidden)}"
    ]


def _bar(model: float, truth: float | None) -> str:
    """Both from 0 to 1: a bar as long as the model's, and a mark where it would end if it were right."""
    cells = ["█"] * round(model * BAR_WIDTH)
    if truth:
        mark = max(0, round(truth * BAR_WIDTH) - 1)
        cells += [" "] * (mark + 1 - len(cells))
        cells[mark] = "┃"
    return "".join(cells)


def _nats(nats: float | None, *, signed: bool = False) -> str:
    if nats is None:
        return NOT_KNOWN
    if nats == math.inf:
        return INFINITE
    rounded = round(nats, 3) + 0.0  # no −0.000
    return f"{rounded:+.3f}" if signed else f"{rounded:.3f}"


def _percent(probability: float) -> str:
    return "<0.01%" if 0 < probability < 5e-5 else f"{probability:.2%}"


def _cell(text: str, width: int) -> str:
    return f"{text if len(text) < width else text[: width - 2] + '…':<{width}}"


def _shade(line: str, excess_nats: float | None) -> str:
    if excess_nats is None or abs(excess_nats) < LEAST_COLOURED_NATS:
        return line
    return f"{ORANGE if excess_nats > 0 else BLUE}{line}{RESET}"


def _bold(line: str, colored: bool) -> str:
    return f"{BOLD}{line}{RESET}" if colored else line
