"""A lesson's page, run from top to bottom with the student's functions; and the page as a notebook.

A block of Python is followed by a block of what it prints. `run` yields both, as far as the code comes.
"""

import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

from pellucid.course.attempt import in_short
from pellucid.course.exercises import LESSONS, Lesson, all_lessons
from pellucid.course.own import OwnFirst, own_first
from pellucid.course.workbook import Workbook
from pellucid.errors import ConfigError
from pellucid.files import write_whole

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REMARK = re.compile(r"<!-- (long|numbers within [\d.]+%) -->\s*\Z")
NUMBER = re.compile(r"[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[-−+]?\.\d+")
FIRST_CELL = """\
# Your functions as far as they are done, and ours for the rest. After `pellucid learn {number}`, run all cells again.
# A figure with your functions: from figures.{module} import {figure}; {figure}()
from pellucid.course.pages import at_work

at_work()"""


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


def run(page: Path, *, in_full: bool) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in one namespace: each with what it prints. The long ones run only in full."""
    namespace: dict[str, object] = {"__name__": "__lesson__"}
    for block in blocks_of(page):
        if block.is_long and not in_full:
            continue
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with redirect_stdout(printed):
            exec(code, namespace)
        yield block, printed.getvalue()


def agree(printed: str, expected: str, tolerance: float) -> bool:
    """Whether two texts are equal but for spaces at line ends and the sign of a zero; numbers may differ by a share of
    the larger one.
    """
    a, b = (re.sub(r"[ \t]+$", "", text.strip("\n"), flags=re.MULTILINE) for text in (printed, expected))
    if tolerance == 0:
        return a == b or _with_plain_zeros(a) == _with_plain_zeros(b)
    words_a, words_b = (re.sub(r"\s+", " ", NUMBER.sub("#", text)).split() for text in (a, b))
    numbers_a, numbers_b = ([_number(n) for n in NUMBER.findall(text)] for text in (a, b))
    if [word.strip("#-+ ") for word in words_a] != [word.strip("#-+ ") for word in words_b]:
        return False
    return len(numbers_a) == len(numbers_b) and all(
        abs(x - y) <= tolerance * max(abs(x), abs(y)) for x, y in zip(numbers_a, numbers_b, strict=True)
    )


def _with_plain_zeros(text: str) -> str:
    """-0.00 as 0.00: which of the two is printed depends on how a student came to it, and both are right."""
    return re.sub(r" *(?<![\w.])-?(0(?:\.0+)?)(?![\w.])", r" \1", text)


def _number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def beside(printed: str, block: Block) -> str:
    """The lines that a block has printed, and next to each line that differs from the page's, that one.

    Lines with the same words belong together, so a line that a student prints for himself does not shift the others.
    """
    a_lines, b_lines = (text.strip("\n").splitlines() for text in (printed, block.output))
    words_a, words_b = ([" ".join(NUMBER.sub("#", line).split()) for line in lines] for lines in (a_lines, b_lines))
    pairs: list[tuple[str, str]] = []
    for _, a_from, a_to, b_from, b_to in SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        pairs += zip_longest(a_lines[a_from:a_to], b_lines[b_from:b_to], fillvalue="")
    lines = [a if agree(a, b, block.tolerance) else f"{a}    ← the page has: {b.strip() or '–'}" for a, b in pairs]
    return "\n".join(lines)


def main(number: str, folder: str) -> None:
    """Run a page, and show what its blocks print. The exit code is 1 if one of them fails."""
    lesson = next(lesson for lesson in all_lessons() if lesson.number == int(number))
    out, blocks, n_equal = sys.stdout, blocks_of(lesson.page), 0

    def say(text: str) -> None:
        try:
            print(text, file=out, flush=True)
        except BrokenPipeError:  # `… --page | head` has read enough
            os._exit(0)

    own_first(Path(folder), Workbook(Path(folder)).done, say)
    os.chdir(LESSONS)
    say(lesson.title)
    left = [each for each in blocks if not each.is_long]
    n_blocks, n_long = len(left), len(blocks) - len(left)
    blocks_run = run(lesson.page, in_full=False)
    while left:
        try:
            block, printed = next(blocks_run)
        except BaseException as error:
            say(f"\nline {left[0].line}: {in_short(error, Path(folder) / '-')}")
            say(f"not run after it: {len(left) - 1} blocks")
            sys.exit(1)
        left.remove(block)
        n_equal += agree(printed, block.output, block.tolerance)
        if printed or block.output:
            say(f"\nline {block.line}:\n{beside(printed, block)}")
    later = f"; {n_long} that take long were left out" if n_long else ""
    say(f"\n{n_equal} of {n_blocks} blocks print what the page says{later}")


# ---- Notebooks ----


def write_notebook(lesson: Lesson, folder: Path) -> Path:
    """Write a page with its figures into a student's folder, as a notebook whose first cell calls `at_work`."""
    try:
        import jupytext
    except ImportError:
        raise ConfigError("--notebook", "jupytext is not installed", "pip install 'pellucid[notebook]'") from None
    file = folder / f"{lesson.module}.ipynb"
    if file.exists():
        raise ConfigError(str(file), "it is there already", "rename it to keep it, or delete it")
    text = lesson.page.read_text(encoding="utf-8")
    title, _, rest = text.partition("\n")
    figures = re.findall(r"\]\(figures/(\d\d_(\w+)\.png)\)", text)
    first_cell = FIRST_CELL.format(number=lesson.number, module=lesson.module, figure=figures[0][1])
    notebook = jupytext.reads(f"{title}\n\n```python\n{first_cell}\n```\n{rest}", "md")
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, _ in figures:
        shutil.copyfile(LESSONS / "figures" / name, folder / "figures" / name)
    write_whole(file, jupytext.writes(notebook, "ipynb"))
    return file


def at_work() -> None:
    """In a notebook of the student's folder: import lessons anew, and work where the page does."""
    known = next((each for each in sys.meta_path if isinstance(each, OwnFirst)), None)
    folder = known.folder if known else Path.cwd()
    if known:
        sys.meta_path.remove(known)
    for name in [name for name in sys.modules if name.startswith("lesson_")]:
        del sys.modules[name]
    own_first(folder, Workbook(folder).done, print)
    os.chdir(LESSONS)


if __name__ == "__main__":
    main(*sys.argv[1:])
