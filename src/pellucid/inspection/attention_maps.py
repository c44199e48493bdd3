"""Attention maps for `pellucid explain --attention`: in a terminal, or as JSON.

A head's map has a row for each query and a column for each key: a token and those that it may attend to, which are the
tokens up to itself or, from both sides, all.

Shapes: T tokens as queries, S as keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from torch import Tensor

from pellucid.errors import ConfigError, Option
from pellucid.tables import columns, folded, table
from pellucid.tokenizer.pieces import visible

ATTENTION = Option("--attention", "attention")
Weights = NDArray[np.float32]

SHADES, SHADE_EDGES = "·░▒▓█", (0.05, 0.15, 0.4, 0.7)
LABEL_WIDTH, MAP_WIDTH, HEADER_HEIGHT = 14, 80, 8


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights (T, S) of some heads, by LAYER.HEAD. The first token is the end_of_text before the document."""

    texts: list[str]
    weights: dict[str, Weights]

    def to_json(self) -> dict[str, object]:
        """The maps for JSON. Row t ends with token t where all later weights are zero."""
        heads = []
        for name, weights_TS in self.weights.items():
            layer, head = map(int, name.split("."))
            rows = [np.round(row_S.astype(float), 6).tolist() for row_S in _seen(weights_TS)]
            heads.append({"layer": layer, "head": head, "weights": rows})
        return {"tokens": self.texts, "heads": heads}


def attention_maps(texts: Sequence[str], attention_LHTS: Tensor, which: str = "all") -> AttentionMaps:
    """The maps of all heads, or of one (LAYER.HEAD). ConfigError: no such head, or its weights do not sum to 1."""
    heads = {
        f"{layer}.{head}": weights_TS.float().numpy()
        for layer, weights_HTS in enumerate(attention_LHTS)
        for head, weights_TS in enumerate(weights_HTS)
    }
    if which != "all" and which not in heads:
        fix = f"use all, or LAYER.HEAD from 0.0 to {list(heads)[-1]}"
        raise ConfigError(ATTENTION, f"there is no head {which!r}", fix)
    maps = heads if which == "all" else {which: heads[which]}
    for name, weights_TS in maps.items():
        if not np.allclose(weights_TS.sum(axis=1), 1, atol=0.01):
            what = f"the weights of head {name} do not sum to 1, as can happen in linear attention with RoPE"
            raise ConfigError(ATTENTION, what, "ask for a head of a layer without RoPE")
    return AttentionMaps(list(map(visible, texts)), maps)


def attention_table(maps: AttentionMaps) -> str:
    """The map of a single head, or one row per head."""
    if len(maps.weights) == 1:
        [(head, weights_TS)] = maps.weights.items()
        where = head.replace(".", ", head ")
        title = f"attention of layer {where}: what share of each token (left) comes from each (top)"
        return "\n".join([folded(title), *_map(maps.texts, weights_TS)])
    rows = []
    for head, weights_TS in maps.weights.items():
        means = ["—" if share is None else f"{share:.1%}" for share in _shares(weights_TS)]
        last = largest(maps.texts, weights_TS[-1], len(weights_TS) - 1, n=2)
        rows.append((head, *means, ", ".join(f"{key} {weight:.0%}" for key, weight in last)))
    title = "attention: where each head looks, on average over all tokens but the first two"
    heading = ("head", "itself", "previous", "first", "others", "the last token looks at")
    return table(heading, rows, above=[title], below=["a map of one head: --attention LAYER.HEAD"], words=[5])


def _shares(weights_TS: Weights) -> list[float | None]:
    """Mean weight on the token itself, the previous one, the first one, and all others, where all these differ."""
    t = np.arange(2, len(weights_TS))
    if not len(t):
        return [None] * 4
    shares = [float(weights_TS[t, s].mean()) for s in (t, t - 1, 0)]
    return [*shares, max(0.0, 1 - sum(shares))]


def largest(texts: Sequence[str], row_S: Weights, t: int, n: int) -> list[tuple[str, float]]:
    """The keys with the largest weights in row t: their texts with their distance, and the weights."""
    keys = [int(s) for s in np.argsort(-row_S, kind="stable")[:n]]
    distance = {s: f"{s - t:+}".replace("-", "−") if s != t else "itself" for s in keys}
    return [(f"{texts[s]} {distance[s]}", float(row_S[s])) for s in keys if row_S[s]]


def _seen(weights_TS: Weights) -> list[Weights]:
    """The rows, each up to its own token where none looks at a later one."""
    sees_later = np.triu(weights_TS, 1).any()
    return [row_S if sees_later else row_S[: t + 1] for t, row_S in enumerate(weights_TS)]


def _map(texts: Sequence[str], weights_TS: Weights) -> list[str]:
    """Lines of one head's map, with two columns per key if there is room, so that squares look square."""
    room = min(MAP_WIDTH, columns() - LABEL_WIDTH)
    start = max(0, len(texts) - room)
    texts, weights_TS = texts[start:], weights_TS[start:, start:]
    width = 2 if 2 * len(texts) <= room else 1
    labels = [text[:HEADER_HEIGHT].rjust(HEADER_HEIGHT) for text in texts]
    header = ["".join(set_cell_size(label[i], width) for label in labels) for i in range(HEADER_HEIGHT)]
    lines = [f"{'':<{LABEL_WIDTH}}{line}".rstrip() for line in header if line.strip()]
    for t, row_S in enumerate(_seen(weights_TS)):
        shades = (SHADES[np.searchsorted(SHADE_EDGES, weight, side="right")] for weight in row_S)
        label = set_cell_size(shortened(texts[t]), LABEL_WIDTH)
        lines.append(f"{label}{''.join(shade * width for shade in shades)}")
    edges = "  ".join(f"{shade} from {edge:.0%}" for shade, edge in zip(SHADES[1:], SHADE_EDGES, strict=True))
    return [*lines, folded(f"{SHADES[0]} less  {edges}"), *([f"(the last {len(texts)} tokens)"] if start else [])]


def shortened(text: str, width: int = LABEL_WIDTH - 2) -> str:
    """A text, cut to so many columns of a terminal."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"
