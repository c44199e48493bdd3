"""Formats of places and numbers in an explanation."""

import math

from pellucid.tokenizer.pieces import MARKS, visible


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
