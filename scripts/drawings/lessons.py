"""The figures of the lessons: all of them, with numbers those of some lessons.

Remakes: lessons/figures/*.png
Takes: 5 minutes, a few seconds most lessons
Needs: nothing

A page shows figures/01_graph.png; the function `graph` in lessons/figures/lesson_01.py draws it.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from pellucid.course.attempt import load_module
from pellucid.course.exercises import LESSONS, Lesson, all_lessons


def draw(*lessons: int) -> Iterator[Path]:
    matplotlib.use("Agg")
    sys.path[:0] = [str(LESSONS), str(LESSONS / "exercises")]
    for lesson in all_lessons():
        if lesson.number in (lessons or [lesson.number]):
            for file, figure in figures_of(lesson).items():
                figure().savefig(file, dpi=120)
                yield file


def figures_of(lesson: Lesson) -> dict[Path, Callable[[], Figure]]:
    """The figures that a lesson's page shows: their files, and the functions that draw them."""
    module = load_module(LESSONS / "figures" / f"{lesson.module}.py", f"figures_of_{lesson.module}")
    names = re.findall(r"\]\(figures/\d\d_(\w+)\.png\)", lesson.page.read_text(encoding="utf-8"))
    return {LESSONS / "figures" / f"{lesson.number:02}_{name}.png": getattr(module, name) for name in names}
