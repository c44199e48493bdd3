"""An explanation in a terminal: a row per token, then what comes next. 100 columns wide."""

import textwrap

from pellucid.inspection.attention_maps import attention_table, shortened
from pellucid.inspection.explanation import Explanation
from pellucid.inspection.formats import after, nats, percent
from pellucid.tokenizer.pieces import visible

WIDTH, BAR_WIDTH = 100, 28
TEXT_WIDTHS, NATS_WIDTH, GUESS_WIDTH = {"token": 16, "skill": 18, "experts": 12}, 9, 23
LEAST_COLOURED_NATS = 0.1
# Codes of ANSI X3.64 terminals with 256 colours. Even the colour-blind can tell orange from blue.
ORANGE, BLUE, BOLD, RESET = "\033[38;5;208m", "\033[38;5;33m", "\033[1m", "\033[0m"


def explanation_table(explanation: Explanation, *, colored: bool) -> str:
    """The explanation as text. Coloured: orange for an excess of 0.1 nats or more, blue for −0.1 or less."""
    title = f"{explanation.model}, reads {explanation.source}"
    parts = [
        f"{BOLD}{title}{RESET}" if colored else title,
        *(textwrap.fill(f"note: {note}", WIDTH, subsequent_indent="      ") for note in explanation.notes),
    ]
    if explanation.rows:
        parts += ["", *_rows(explanation, colored), "", *_sums(explanation)]
    if not explanation.is_whole:
        title, *lines = _next(explanation)
        parts += ["", f"{BOLD}{title}{RESET}" if colored else title, *lines]
    if explanation.attention:
        parts += ["", *attention_table(explanation.attention)]
    return "\n".join(parts)


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
        lines.append(
            f"KL(truth ‖ model) {kl} nats; entropy of the truth {entropy} nats; on what cannot come: {impossible}"
        )
    return lines


def _bar(model: float, truth: float) -> str:
    """A bar for the model's probability, and a mark at the truth's; both from 0 to 1."""
    bar = "█" * round(model * BAR_WIDTH)
    mark = max(0, round(truth * BAR_WIDTH) - 1)
    return f"{bar[:mark]:<{mark}}┃{bar[mark + 1 :]}" if truth else bar
