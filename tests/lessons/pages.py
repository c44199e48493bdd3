"""Runs the code of a lesson's page from top to bottom, and compares what it prints with what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REMARK = re.compile(r"<!-- (long|numbers within [\d.]+%) -->\s*\Z")
NUMBER = re.compile(r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[-−+]?\.\d+")


@dataclass(frozen=True)
class Block:
    """A code block of a page, its first line there, and what it prints by the page, numbers within `tolerance`."""

    code: str
    line: int
    is_long: bool
    output: str = ""
    tolerance: float = 0.0


def blocks_of(page: Path) -> list[Block]:
    """The Python blocks of a page. A text block right after one is its output."""
    text = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    end_of_last = -1
    for match in BLOCK.finditer(text):
        between = text[end_of_last : match.start()] if end_of_last >= 0 else "…"
        remark = REMARK.search(text[: match.start()])
        if match[1] == "python":
            line = text.count("\n", 0, match.start()) + 2
            blocks.append(Block(match[2], line, is_long=remark is not None and remark[1] == "long"))
            end_of_last = match.end()
        elif match[1] == "text" and not re.sub(r"<!--.*?-->", "", between).strip():
            within = re.search(r"within ([\d.]+)%", between)
            block = blocks[-1]
            tolerance = float(within[1]) / 100 if within else 0.0
            blocks[-1] = Block(block.code, block.line, block.is_long, match[2], tolerance)
            end_of_last = -1
        else:
            end_of_last = -1
    return blocks


def run(page: Path, *, in_full: bool) -> list[str]:
    """The differences between what the blocks print and what the page says; an error ends the run."""
    namespace: dict[str, object] = {"__name__": "__lesson__"}
    differences = []
    for block in blocks_of(page):
        if block.is_long and not in_full:
            continue
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if not agree(printed.getvalue(), block.output, block.tolerance):
            differences.append(f"{page.name}:{block.line} prints\n{printed.getvalue()}instead of\n{block.output}")
    return differences


def agree(printed: str, expected: str, tolerance: float) -> bool:
    """Whether two texts are equal but for spaces at line ends; numbers may differ by a share of the larger one."""
    a, b = (re.sub(r"[ \t]+$", "", text.strip("\n"), flags=re.MULTILINE) for text in (printed, expected))
    if tolerance == 0:
        return a == b
    words_a, words_b = (re.sub(r"\s+", " ", NUMBER.sub("#", text)).split() for text in (a, b))
    numbers_a, numbers_b = ([_number(n) for n in NUMBER.findall(text)] for text in (a, b))
    if [word.strip("#-+ ") for word in words_a] != [word.strip("#-+ ") for word in words_b]:
        return False
    return len(numbers_a) == len(numbers_b) and all(
        abs(x - y) <= tolerance * max(abs(x), abs(y)) for x, y in zip(numbers_a, numbers_b, strict=True)
    )


def _number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))
