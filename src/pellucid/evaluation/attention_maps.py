"""Where each head looks, as `pellucid explain --attention` shows it: in a terminal, on a page, or as JSON.

A head's map has a row for each token that looks (a query) and a column for each that it may look at (a key), itself
included. Shapes: T tokens as queries, S as keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from pellucid.errors import ConfigError
from pellucid.evaluation.explanation import AttentionMaps, Head, Weights
from pellucid.evaluation.trace import Trace
from pellucid.tokenizer.pieces import visible

SHADES, SHADE_EDGES = "·░▒▓█", (0.05, 0.15, 0.4, 0.7)
LABEL_WIDTH, MAP_WIDTH, HEADER_HEIGHT = 14, 80, 8
MOST_ON_A_PAGE = 128  # tokens; more make a page that is slow to scroll
FAINTEST = 0.01  # weights below are not drawn on a page


def attention_maps(trace: Trace, which: str = "all") -> AttentionMaps:
    """The maps of all heads, or of one: LAYER.HEAD. Raises ConfigError if there is no such head."""
    n_layers, n_heads = trace.attention.shape[:2]
    heads = {str(Head(layer, head)): Head(layer, head) for layer in range(n_layers) for head in range(n_heads)}
    if which != "all":
        if which not in heads:
            fix = f"use all, or LAYER.HEAD from 0.0 to {n_layers - 1}.{n_heads - 1}"
            raise ConfigError("--attention", f"there is no head {which!r}", fix)
        heads = {which: heads[which]}
    weights = {head: trace.attention[head].float().numpy() for head in heads.values()}
    return AttentionMaps([visible(text) for text in trace.texts], weights)


def attention_table(maps: AttentionMaps) -> list[str]:
    """For a terminal: the map of a single head, or one row per head."""
    if len(maps.weights) > 1:
        return _heads_table(maps)
    [(head, weights_TS)] = maps.weights.items()
    title = f"attention of layer {head.layer}, head {head.head}: what share of each token (left) comes from each (top)"
    return [title, *_map(maps.texts, weights_TS)]


def _heads_table(maps: AttentionMaps) -> list[str]:
    lines = [
        "attention: where each head looks, on average over all tokens but the first two",
        "head    itself  previous     first    others   the last token looks at",
    ]
    for head, weights_TS in maps.weights.items():
        means = "".join(f"{'—' if share is None else f'{share:.1%}':>10}" for share in _shares(weights_TS))
        last = _most(maps.texts, weights_TS[-1], len(weights_TS) - 1, n=2)
        lines.append(f"{head!s:<4}{means}   {', '.join(f'{key} {weight:.0%}' for key, weight in last)}")
    return [*lines, "a map of one head: --attention LAYER.HEAD"]


def _shares(weights_TS: Weights) -> list[float | None]:
    """Mean weight on itself, the token before, the first token and all others; where these are different tokens."""
    t = np.arange(2, len(weights_TS))
    if not len(t):
        return [None] * 4
    shares = [float(weights_TS[t, s].mean()) for s in (t, t - 1, 0)]
    return [*shares, max(0.0, 1 - sum(shares))]


def _most(texts: Sequence[str], row_S: Weights, t: int, n: int) -> list[tuple[str, float]]:
    """The keys with the largest weights in row t: their texts with how far back they are, and the weights."""
    largest = [int(s) for s in np.argsort(-row_S, kind="stable")[:n]]
    return [(f"{texts[s]} {f'−{t - s}' if s < t else 'itself'}", float(row_S[s])) for s in largest if row_S[s]]


def _map(texts: Sequence[str], weights_TS: Weights) -> list[str]:
    """Two columns per key if there is room, so that the squares are square."""
    start = max(0, len(texts) - MAP_WIDTH)
    texts, weights_TS = texts[start:], weights_TS[start:, start:]
    width = 2 if 2 * len(texts) <= MAP_WIDTH else 1
    labels = [text[:HEADER_HEIGHT].rjust(HEADER_HEIGHT) for text in texts]
    header = ["".join(f"{label[i]:<{width}}" for label in labels) for i in range(HEADER_HEIGHT)]
    lines = [f"{'':<{LABEL_WIDTH}}{line}".rstrip() for line in header if line.strip()]
    for t, row_S in enumerate(weights_TS):
        shades = (SHADES[np.searchsorted(SHADE_EDGES, weight, side="right")] for weight in row_S[: t + 1])
        lines.append(f"{_short(texts[t]):<{LABEL_WIDTH}}{''.join(shade * width for shade in shades)}")
    edges = "  ".join(f"{shade} from {edge:.0%}" for shade, edge in zip(SHADES[1:], SHADE_EDGES, strict=True))
    return [*lines, f"{SHADES[0]} less  {edges}", *([f"(the last {len(texts)} tokens)"] if start else [])]


def attention_section(maps: AttentionMaps) -> str:
    """For a page: a small map of each head, to choose from, and the large one of the chosen head."""
    heads = [_head(head, weights, maps.texts, i == 0) for i, (head, weights) in enumerate(maps.weights.items())]
    start = max(0, len(maps.texts) - MOST_ON_A_PAGE)
    only = f" Shown are the last {MOST_ON_A_PAGE} tokens." if start else ""
    return (
        "<section><h2>Attention</h2><p class=small>A row for each token, a column for each that it can look at: the "
        "stronger the colour, the larger the share that comes from there. Choose a head, named LAYER.HEAD; point at a "
        f"row, or tap it, to read its largest shares.{only}</p><div class=heads>{''.join(heads)}</div></section>"
    )


def _head(head: Head, weights_TS: Weights, texts: Sequence[str], is_first: bool) -> str:
    start = max(0, len(texts) - MOST_ON_A_PAGE)
    n = len(texts) - start
    cells = "".join(
        f'<rect x="{s}" y="{t}" fill-opacity="{weights_TS[start + t, start + s] ** 0.5:.2f}"/>'
        for t in range(n)
        for s in range(t + 1)
        if weights_TS[start + t, start + s] >= FAINTEST
    )
    names = "".join(
        f'<text transform="translate({t + 0.8} {t - 0.2}) rotate(-50)">{escape(_short(text))}</text>'
        for t, text in enumerate(texts[start:])
    )
    rows = "".join(_row(texts, weights_TS[t], t, t - start) for t in range(start, len(texts)))
    return (
        f"<label class=head><input type=radio name=head{' checked' if is_first else ''}>"
        f'<svg viewBox="0 0 {n} {n}" aria-hidden=true><use href="#map-{head}"/></svg><span>{head}</span></label>'
        f'<figure class=map style="--n:{n}"><figcaption>Layer {head.layer}, head {head.head}</figcaption>'
        f'<div class=scroll><div class=grid><svg viewBox="0 0 {n} {n}" aria-hidden=true>'
        f'<g id="map-{head}">{cells}</g>{names}</svg>{rows}</div></div></figure>'
    )


def _row(texts: Sequence[str], row_S: Weights, t: int, n_before: int) -> str:
    facts = "".join(
        f"<span class=fact><span>{escape(key)}</span> <span>{weight:.1%}</span></span>"
        for key, weight in _most(texts, row_S, t, 6)
    )
    return (
        f'<div class=row tabindex=0 style="--t:{n_before + 1}"><span>{escape(_short(texts[t]))}</span><span class=card>'
        f"<b class=name>{escape(texts[t])}</b><span class=small>looks at, and how far back</span>{facts}</span></div>"
    )


def _short(text: str, width: int = 12) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
