"""Tables to read: never wider than the terminal; plain and in full in a pipe, for a script or a notebook."""

import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from shutil import get_terminal_size

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

IN_FULL = 10_000  # columns: where nothing has to fit, a row is a line
# The fewest columns that words are folded into, or cut to, and a heading is folded into; numbers are never broken.
LEAST_OF_WORDS, LEAST_OF_HEADING = (20, 8), 10
LETTERS, UNBROKEN = re.compile(r"[^\W\d_]{2}"), "\u2800"  # shown as a blank at which no line ends


def columns(most: int = IN_FULL) -> int:
    """How many columns the terminal has, at most as many as a line would take; that many in a pipe."""
    return min(most, get_terminal_size().columns) if sys.stdout is not None and sys.stdout.isatty() else most


def folded(text: str, indent: int = 0, most: int = IN_FULL) -> str:
    """A line of words, folded where the terminal ends; what is folded is indented."""
    return textwrap.fill(text, columns(most), subsequent_indent=" " * indent, break_on_hyphens=False)


def table(
    heading: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Mapping[int, str] | None = None,
    *,
    above: Sequence[str] = (),
    below: Sequence[str] = (),
    words: Collection[int] | None = None,
    is_cut: bool = False,
) -> str:
    """A table, words to the left and numbers to the right. An empty heading is none; there is at least one row.

    styles: of the rows that matter, as {3: "bold"}.   above, below: lines of words.   words: the columns of words, if
    their letters do not show it.   is_cut: a row is a line, whose words end in … if they are too long to stand there.
    A table that is too wide is shown as two, each of which begins with the first column.
    """
    console = Console(width=columns(), height=25, force_jupyter=False, markup=False, emoji=False, highlight=False)
    rows = list(rows) if console.color_system or not console.is_terminal else _marked(list(rows), styles or {})
    words = words or [i for i, cells in enumerate(zip(*rows, strict=True)) if LETTERS.search(" ".join(cells))]
    gaps = (0, 2 - (is_cut and console.width < 80), 0, 0)  # in fewer columns, letters need the room
    shown = Table(box=None, pad_edge=False, padding=gaps, show_header=bool(heading))
    for i, (name, *cells) in enumerate(zip(heading or rows[0], *rows, strict=True)):
        width, room = max(map(cell_len, cells)), LEAST_OF_HEADING if console.width < IN_FULL else IN_FULL
        shown.add_column(
            textwrap.fill(name, max(width, room), break_long_words=False),
            justify="left" if i in words else "right",
            overflow="ellipsis" if is_cut else "fold",
            no_wrap=i not in words,
            min_width=min(width, LEAST_OF_WORDS[is_cut]) if i in words else max(map(cell_len, [*cells, *name.split()])),
        )
    for i, row in enumerate(rows):
        shown.add_row(*(cell.replace(" ", UNBROKEN) if is_cut else cell for cell in row), style=(styles or {}).get(i))
    if len(rows[0]) > 2 and console.width < (
        sum((column.min_width or 0) + gaps[1] for column in shown.columns) - gaps[1]
        if is_cut
        else console.measure(shown, options=console.options.update(max_width=IN_FULL)).minimum  # no word is broken
    ):
        half, of_all = len(rows[0]) // 2 + 1, range(len(rows[0]))

        def part(of: Sequence[int], above: Sequence[str] = (), below: Sequence[str] = ()) -> str:
            names, kept = [name for i, name in enumerate(heading) if i in of], [[row[i] for i in of] for row in rows]
            kinds, kept_styles = [j for j, i in enumerate(of) if i in words], styles if console.color_system else {}
            return table(names, kept, kept_styles, above=above, below=below, words=kinds, is_cut=is_cut)

        return f"{part(of_all[:half], above=above)}\n\n{part([0, *of_all[half:]], below=below)}"
    with console.capture() as captured:
        console.print(*above, shown, *below, sep="\n")
    return "\n".join(line.rstrip() for line in captured.get().replace(UNBROKEN, " ").splitlines())


def _marked(rows: list[Sequence[str]], styles: Mapping[int, str]) -> list[Sequence[str]]:
    """The rows for a terminal that knows no bold: a mark stands before those that matter."""
    if len(rows) == 1 or min(styles, default=len(rows)) >= len(rows):
        return rows
    return [[f"{'▸' if i in styles else ' '} {first}", *rest] for i, (first, *rest) in enumerate(rows)]
