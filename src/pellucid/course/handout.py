"""A folder to hand out: pages, figures, and a student's files to fill in. The solutions stay in Pellucid."""

from __future__ import annotations

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

from pellucid.course.exercises import LESSONS, Lesson, all_lessons
from pellucid.course.workbook import MADE_WITH, Workbook
from pellucid.errors import ConfigError
from pellucid.files import read_at_most, write_whole
from pellucid.version import __version__

LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(?:#[^)\s]*)?\)")


def hand_out(folder: Path) -> None:
    """Write a new folder with all lessons in it. A link to what is not in it becomes plain text."""
    if folder.exists():
        raise ConfigError(str(folder), "it is there already", "choose another name")
    lessons = all_lessons()
    kept = {path.name for path in [*(lesson.page for lesson in lessons), LESSONS / "README.md", LESSONS / "AGENTS.md"]}
    shutil.copytree(LESSONS / "figures", folder / "figures", ignore=shutil.ignore_patterns("*.py", "__pycache__"))

    def within(link: re.Match[str]) -> str:
        is_there = link[2] in kept or link[2].startswith("figures/") or not (LESSONS / link[2]).exists()
        return link[0] if is_there else link[1]

    for name in sorted(kept):
        write_whole(folder / name, LINK.sub(within, (LESSONS / name).read_text(encoding="utf-8")))
    workbook = Workbook(folder / "my_lessons")
    for lesson in lessons:
        workbook.start(lesson)
    notes = {"pellucid": __version__, "solutions": {lesson.module: _hash(lesson) for lesson in lessons}}
    write_whole(workbook.folder / MADE_WITH, json.dumps(notes, indent=2))


def is_of_another_version(lesson: Lesson, folder: Path) -> bool:
    """Whether a student's folder was handed out with another version of a lesson than the one that checks it."""
    try:
        hashes = json.loads(read_at_most(folder / MADE_WITH, 1 << 20))["solutions"]
        return bool(hashes[lesson.module] != _hash(lesson))
    except (OSError, ValueError, LookupError, TypeError):  # it was not handed out
        return False


def _hash(lesson: Lesson) -> str:
    return sha256(lesson.solutions.read_bytes()).hexdigest()
