"""Tables to read: never wider than the terminal; plain and in full in a pipe, for a script or a notebook."""

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from shutil import get_terminal_size

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

IN_FULL = 10_000  # columns: where nothing has to fit, a row is a line
LEAST_OF_WORDS, LEAST_OF_HEADING = 20, 9  # columns that each is wrapped into; numbers are never broken


def columns(most: int) -> int:
    """How many columns the terminal has, at most as many as a line would take; that many in a pipe."""
    return min(most, get_terminal_size().columns) if sys.stdout is not None and sys.stdout.isatty() else most


def table(
    heading: Sequence[str],
    rows: Iterable[Sequence[str]],
    styles: Mapping[int, str] | None = None,
    *,
    above: Sequence[str] = (),
    below: Sequence[str] = (),
) -> str:
    """A table, words to the left and numbers to the right. An empty heading is none; there is at least one row.

    styles: of the rows that matter, as {3: "bold"}.   above, below: lines of words.
    A table that is too wide is shown as two, each of which begins with the first column.
    """
    rows, most = list(rows), None if sys.stdout is not None and sys.stdout.isatty() else IN_FULL
    console = Console(width=most, force_jupyter=False, markup=False, emoji=False)
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(heading))
    for name, *cells in zip(heading or rows[0], *rows, strict=True):
        width, is_words = max(map(cell_len, cells)), bool(re.search(r"[^\W\d_]{2}", " ".join(cells)))
        shown.add_column(
            textwrap.fill(name, most or max(width, LEAST_OF_HEADING), break_long_words=False),
            justify="left" if is_words else "right",
            no_wrap=not is_words,
            min_width=min(width, LEAST_OF_WORDS) if is_words else width,
        )
    for i, row in enumerate(rows):
        shown.add_row(*row, style=(styles or {}).get(i))
    if (
        len(rows[0]) > 2
        and console.measure(shown, options=console.options.update(max_width=IN_FULL)).minimum > console.width
    ):
        half = len(rows[0]) // 2 + 1
        left = table(heading[:half], [row[:half] for row in rows], styles, above=above)
        rest = [[row[0], *row[half:]] for row in [*([heading] if heading else []), *rows]]
        return f"{left}\n\n{table(rest[0] if heading else (), rest[bool(heading) :], styles, below=below)}"
    with console.capture() as captured:
        console.print(*above, shown, *below, sep="\n")
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
