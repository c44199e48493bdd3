"""Measures again what pages show, prints it and, with --record, writes it into docs/results.json.

    python scripts/measure.py --list                    what there is: what each remakes, its time and what it needs
    python scripts/measure.py kernels --help            the options of one
    python scripts/measure.py kernels --record          then `python scripts/results.py` puts the figures on the pages

A measurement is a module of scripts/measurements. Its function `measure` returns entries of results.json, and its
parameters are the options. It works in an empty folder, which is deleted in the end. What is compared takes turns
(timing.py), so that a busy moment hits all sides alike.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from registry import called, chosen, parser_for, print_list
from results import commit_of_code, pages_that_show, print_figures, record


def main(arguments: list[str]) -> None:
    if arguments == ["--list"]:
        print_list("measurements", "measure", with_pages)
        return
    name, measure = chosen("measurements", "measure", arguments, __doc__)
    parser = parser_for(measure, name)
    parser.add_argument("--record", action="store_true", help="write the figures into docs/results.json")
    options = vars(parser.parse_intermixed_args(arguments[1:]))
    commit = commit_of_code() if options["record"] else None  # by the time all is measured the code may be another
    with empty_folder():
        for entry in called(measure, options):
            print_figures(entry.name, entry.figures)
            if commit is not None:
                record(entry, commit)


@contextmanager
def empty_folder() -> Iterator[None]:
    """Is the working directory meanwhile. On the disk of the present one, as saving is measured, too."""
    before = os.getcwd()
    with TemporaryDirectory(prefix=".measurement-", dir=before) as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def with_pages(entries: str) -> str:
    """The entries of results.json that a measurement remakes, and the pages that show them."""
    pages = sorted({page for entry in entries.split(", ") for page in pages_that_show(entry)})
    return f"{entries} ({', '.join(pages)})" if pages else entries


if __name__ == "__main__":
    main(sys.argv[1:])
