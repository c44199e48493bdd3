"""A folder to hand out: pages, figures, and a student's files to fill in. The solutions stay in Pellucid."""

import json
import re
import shutil
from pathlib import Path

from pellucid.course.exercises import LESSONS, Lesson, all_lessons
from pellucid.course.workbook import MADE_WITH, Workbook
from pellucid.errors import ConfigError
from pellucid.files import read_at_most, sha256, write_whole
from pellucid.version import __version__

LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
ASIDE = re.compile(rf"\s?\({LINK.pattern}\)([.,;:?!]*) ?")  # a link in brackets, such as ([how](../docs/fables.md))


def hand_out(folder: Path) -> None:
    """Write a new folder with all lessons in it. A link to what is not in it becomes plain text, and an aside goes."""
    if folder.exists():
        raise ConfigError(str(folder), "it is there already", "choose another name")
    lessons = all_lessons()
    kept = {path.name for path in [*(lesson.page for lesson in lessons), LESSONS / "README.md", LESSONS / "AGENTS.md"]}
    shutil.copytree(LESSONS / "figures", folder / "figures", ignore=shutil.ignore_patterns("*.py", "__pycache__"))

    def is_there(link: re.Match[str]) -> bool:
        return link[2] in kept or link[2].startswith("figures/") or not (LESSONS / link[2]).exists()

    def without(aside: re.Match[str]) -> str:
        """Nothing but its punctuation. The page keeps its lines, by whose numbers its blocks are known."""
        if is_there(aside) or aside[1].startswith("`") or aside[0].count("\n") > 1:
            return aside[0]
        return aside[3] + ("\n" if "\n" in aside[0] else " " if aside[0].endswith(" ") else "")

    for name in sorted(kept):
        text = ASIDE.sub(without, (LESSONS / name).read_text(encoding="utf-8"))
        write_whole(folder / name, LINK.sub(lambda link: link[0] if is_there(link) else link[1], text))
    workbook = Workbook(folder / "my_lessons")
    for lesson in lessons:
        workbook.start(lesson)
    notes = {"pellucid": __version__, "solutions": {lesson.module: sha256(lesson.solutions) for lesson in lessons}}
    write_whole(workbook.folder / MADE_WITH, json.dumps(notes, indent=2))


def is_of_another_version(lesson: Lesson, folder: Path) -> bool:
    """Whether a student's folder was handed out with another version of a lesson than the one that checks it."""
    try:
        hashes = json.loads(read_at_most(folder / MADE_WITH, 1 << 20))["solutions"]
        return bool(hashes[lesson.module] != sha256(lesson.solutions))
    except (OSError, ValueError, LookupError, TypeError):  # it was not handed out
        return False
