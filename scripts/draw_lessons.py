"""Draw the figures of the lessons: `python scripts/draw_lessons.py` all of them, with numbers those of some lessons.

A page shows figures/01_graph.png; the function `graph` in lessons/figures/lesson_01.py draws it.
"""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from pellucid.course.attempt import load_module
from pellucid.course.exercises import LESSONS, Lesson, all_lessons


def figures_of(lesson: Lesson) -> dict[Path, Callable[[], Figure]]:
    """The figures that a lesson's page shows: their files, and the functions that draw them."""
    module = load_module(LESSONS / "figures" / f"{lesson.module}.py", f"figures_of_{lesson.module}")
    names = re.findall(r"\]\(figures/\d\d_(\w+)\.png\)", lesson.page.read_text(encoding="utf-8"))
    return {LESSONS / "figures" / f"{lesson.number:02}_{name}.png": getattr(module, name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lessons", nargs="*", type=int, metavar="LESSON", help="number of a lesson; all without")
    asked = parser.parse_args().lessons
    matplotlib.use("Agg")
    sys.path[:0] = [str(LESSONS), str(LESSONS / "exercises")]
    for lesson in all_lessons():
        if not asked or lesson.number in asked:
            for file, draw in figures_of(lesson).items():
                draw().savefig(file, dpi=120)
                print(file.relative_to(LESSONS.parent))


if __name__ == "__main__":
    main()
