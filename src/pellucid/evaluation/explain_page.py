"""An explanation as one page of HTML: no script, nothing to load, readable on a phone, with the keyboard and in grey.

The text is coloured by excess: orange where the model lost more than the truth does, blue where luck made it lose less.
Where no truth is known, it is coloured by loss. Everything that comes from outside passes `html.escape`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from pellucid.evaluation.attention_maps import attention_section
from pellucid.evaluation.explanation import END, Candidate, Explanation, Forecast, TokenRow
from pellucid.files import written_whole
from pellucid.tokenizer.pieces import visible

STEPS_NATS = (0.03, 0.1, 0.3, 1.0, 3.0)  # where one shade ends and the next begins
HINT = "Point at a token, tap it, or go from one to the next with the Tab key, to see what was expected there."
TERMS = """
<dl>
<dt>loss</dt><dd>−log of the probability that the model gave to the token that came: its surprise, in nats.</dd>
<dt>floor</dt><dd>The same for the true probability. No model, however large, can do better on average.</dd>
<dt>excess</dt><dd>Loss minus floor: what the model still has to learn. At one token, luck can make it negative.</dd>
<dt>KL</dt><dd>The excess to expect at this place, before the token is known. It is never negative, and 0 only where
the model is exactly right.</dd>
</dl>
"""


def explanation_page(explanation: Explanation) -> str:
    """The whole page."""
    parts = [f"<p class=note>{escape(note)}</p>" for note in explanation.notes]
    if explanation.rows:
        parts += [_totals(explanation), _reading(explanation)]
    if not explanation.is_whole:
        parts.append(_next(explanation))
    if explanation.skills:
        parts.append(_skills(explanation))
    if explanation.attention:
        parts.append(attention_section(explanation.attention))
    if explanation.rows:
        parts.append(f"<details><summary>Every token as a table</summary>{_token_table(explanation)}</details>")
    if explanation.has_truth:
        parts.append(f"<details><summary>What the words mean</summary>{TERMS}</details>")
    return page(explanation.model, explanation.source, parts)


def page(kicker: str, title: str, parts: Sequence[str]) -> str:
    """An HTML document around these parts, with the style inside."""
    style = files("pellucid.evaluation").joinpath("explain_page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(kicker)}: {escape(title)}</title>\n<style>{style}</style></head>\n"
        f"<body><main>\n<header><p class=kicker>{escape(kicker)}</p><h1>{escape(title)}</h1></header>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def framed(whole_page: str) -> str:
    """The page for a notebook, in a frame where its style affects nothing else."""
    return f'<iframe srcdoc="{escape(whole_page)}" width="100%" height=700 style="border:0"></iframe>'


def write_page(file: Path, page: str) -> None:
    """Writes the whole page or nothing: no one ever opens half a file. Raises OSError if the disk fails."""
    with written_whole(file) as draft:
        draft.write_text(page, encoding="utf-8")


def _totals(explanation: Explanation) -> str:
    n_tokens = len(explanation.counted)
    figures = [("loss", explanation.loss_nats), ("floor", explanation.floor_nats), ("excess", explanation.excess_nats)]
    tiles = [
        f"<div><dt>{name}</dt><dd>{_number(nats)} <small>nats</small></dd>"
        f"<dd class=small>{_number(nats / n_tokens, 4)} a token</dd></div>"
        for name, nats in figures
        if nats is not None and n_tokens
    ]
    if explanation.skills:
        score = explanation.skills.scores[explanation.skills.hardest]
        tiles.append(
            f"<div><dt>hardest skill</dt><dd>{escape(explanation.skills.hardest)}</dd>"
            f"<dd class=small>{_number(score.excess_nats)} nats of excess over {score.tokens:.3g} tokens</dd></div>"
        )
    return f"<dl class=totals>{''.join(tiles)}</dl>"


def _reading(explanation: Explanation) -> str:
    n_tokens = len(explanation.rows)
    spans = [_token(row, t, n_tokens, explanation.has_truth) for t, row in enumerate(explanation.rows)]
    return (
        f"<section class=reading><div><h2>The text, token by token</h2><p class=text>{''.join(spans)}</p>"
        f"{_legend(explanation.has_truth)}</div><aside><p>{HINT}</p></aside></section>"
    )


def _token(row: TokenRow, t: int, n_tokens: int, has_truth: bool) -> str:
    """A token in its shade. Its card is inside it, so pointing at it or focusing it is enough."""
    text = "end" if row.text == END else row.text.replace("\n", "⏎\n")
    shade = _shade(row.excess_nats if has_truth else row.model_nats)
    if row.text == END:
        shade += " end"
    if row.truth == 0:
        shade += " never"
    if has_truth and row.truth is None:
        shade += " unknown"
    return (
        f'<span class="t {shade}" tabindex=0 aria-describedby=c{t}>{escape(text)}'
        f"<span class=card id=c{t} role=tooltip>{_card(row, t, n_tokens)}</span></span>"
    )


def _card(row: TokenRow, t: int, n_tokens: int) -> str:
    skills = f" · {escape(' + '.join(row.skills))}" if row.skills else ""
    lines = [
        f"<b class=name>{escape(visible(row.text))}</b><span class=small>token {t + 1} of {n_tokens}{skills}</span>",
        _fact("model", f"{_percent(row.model)}, {_number(row.model_nats)} nats"),
    ]
    if row.truth == 0:
        lines.append(_fact("truth", "cannot come here"))
    elif row.truth is not None:
        lines.append(_fact("truth", f"{_percent(row.truth)}, {_number(row.truth_nats)} nats"))
        lines.append(_fact("excess", f"{_number(row.excess_nats, signed=True)} nats"))
    if row.forecast.kl_nats is not None:
        lines.append(_fact("KL here", f"{_number(row.forecast.kl_nats)} nats"))
    lines.append("<span class=small>expected here, by model and truth</span>")
    lines += [_bars(candidate, row.forecast) for candidate in row.forecast.candidates]
    return "".join(lines)


def _fact(name: str, value: str) -> str:
    return f"<span class=fact><span>{name}</span> <span>{value}</span></span>"


def _bars(candidate: Candidate, forecast: Forecast) -> str:
    """A candidate with a bar for the model above one for the truth, on the scale of the most likely one."""
    scale = max(max(each.model, each.truth or 0.0) for each in forecast.candidates)
    bars = f'<span class="bar model" style="width:{100 * candidate.model / scale:.2f}%"></span>'
    numbers = f"<span>{_percent(candidate.model)}</span>"
    if candidate.truth is not None:
        bars += f'<span class="bar truth" style="width:{100 * candidate.truth / scale:.2f}%"></span>'
        numbers += f"<span>{_percent(candidate.truth) if candidate.truth else 'never'}</span>"
    return (
        f"<span class=candidate><span class=name>{escape(visible(candidate.text))}</span>"
        f"<span class=bars>{bars}</span><span class=numbers>{numbers}</span></span>"
    )


def _legend(has_truth: bool) -> str:
    """The strip of all shades, with the numbers at which they change."""
    if has_truth:
        shades = [*(f"u{i}" for i in range(5, 0, -1)), "n", *(f"o{i}" for i in range(1, 6))]
        edges = [*(-nats for nats in reversed(STEPS_NATS)), *STEPS_NATS]
        ends = ("lucky: lost less than the truth", "lost more than the truth")
    else:
        shades, edges, ends = ["n", *(f"o{i}" for i in range(1, 6))], [*STEPS_NATS], ("expected", "surprising")
    cells = [f"<span class={shade}></span>" for shade in shades]
    marks = [f"<span>{edge:g}</span>".replace("-", "−") for edge in edges]
    what = "excess, nats" if has_truth else "loss, nats"
    return (
        f"<figure class=legend><figcaption><span>{ends[0]}</span><b>{what}</b><span>{ends[1]}</span></figcaption>"
        f"<div class=strip>{''.join(cells)}</div><div class=marks>{''.join(marks)}</div></figure>"
    )


def _next(explanation: Explanation) -> str:
    forecast = explanation.next
    where = f"after {explanation.end}" if explanation.end else "at the start of a document"
    lines = [f"<h2>The next {explanation.next_unit} <small>{escape(where)}</small></h2>"]
    if forecast.kl_nats is not None and forecast.forbidden is not None:
        lines.append(
            f"<p>KL(truth ‖ model) <b>{_number(forecast.kl_nats, 4)}</b> nats · entropy of the truth "
            f"<b>{_number(forecast.entropy_nats, 4)}</b> nats · the model's probability of what cannot come "
            f"<b>{_percent(forecast.forbidden)}</b></p>"
        )
    truth_key = "<span><span class='bar truth'></span> truth</span>" if forecast.kl_nats is not None else ""
    lines.append(f"<p class=key><span><span class='bar model'></span> model</span>{truth_key}</p>")
    lines += [_bars(candidate, forecast) for candidate in forecast.candidates]
    return f"<section class=next>{''.join(lines)}</section>"


def _skills(explanation: Explanation) -> str:
    assert explanation.skills
    scores = sorted(explanation.skills.scores.items(), key=lambda item: -item[1].excess_nats)
    rows = [
        [skill, f"{score.tokens:.1f}", *map(_number, (score.loss_nats, score.floor_nats, score.excess_nats))]
        for skill, score in scores
        if score.tokens
    ]
    return f"<section><h2>By skill</h2>{_table(('skill', 'tokens', 'loss', 'floor', 'excess'), rows)}</section>"


def _token_table(explanation: Explanation) -> str:
    columns: dict[str, Callable[[TokenRow], str]] = {"token": lambda row: visible(row.text)}
    if explanation.skills:
        columns["skill"] = lambda row: " + ".join(row.skills or ())
    if explanation.has_truth:
        columns["truth"] = lambda row: "never" if row.truth == 0 else _number(row.truth_nats)
    columns["model"] = lambda row: _number(row.model_nats)
    if explanation.has_truth:
        columns["excess"] = lambda row: _number(row.excess_nats, signed=True)
        columns["KL"] = lambda row: _number(row.forecast.kl_nats)
    columns["model's guess"] = lambda row: "" if row.is_hit else visible(row.forecast.guess.text)
    return _table(list(columns), [[show(row) for show in columns.values()] for row in explanation.rows])


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"


def _shade(nats: float | None) -> str:
    """The class of a shade: n for neither, o1 to o5 and u1 to u5 for over and under."""
    level = sum(abs(nats or 0.0) >= step for step in STEPS_NATS)
    return f"{'o' if nats and nats > 0 else 'u'}{level}" if level else "n"


def _number(nats: float | None, digits: int = 3, *, signed: bool = False) -> str:
    if nats is None:
        return "—"
    if nats == math.inf:
        return "∞"
    rounded = round(nats, digits) + 0.0  # no −0.000
    return (f"{rounded:+.{digits}f}" if signed else f"{rounded:.{digits}f}").replace("-", "−")


def _percent(probability: float) -> str:
    return "<0.01 %" if 0 < probability < 5e-5 else f"{100 * probability:.2f} %"
