"""The parts of a lesson: a page, exercises with solutions, checks; and a student's file without the solutions.

The page, such as lessons/01_differentiation.md, has a heading for each exercise, its facts below, and hints to unfold:

    ### Exercise: the product rule

    `push_product` · 5 minutes · ★

A lesson is done without those that are marked `· ★★★ · optional`.

lessons/exercises/lesson_01.py holds the function of that name, solved. What the student is to write stands between
`# solution:` and `# end`; in the student's file a NotImplementedError takes its place. lessons/checks/lesson_01.py has
a function of the same name that checks it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_HOMES = (_PACKAGE, _PACKAGE.parents[1])  # lessons/ lies in an installed package; in a checkout beside src/
LESSONS = next((home / "lessons" for home in _HOMES if (home / "lessons").is_dir()), _PACKAGE / "lessons")

EXERCISE = re.compile(
    r"^### ([^\n]+)\n\n`(\w+)` · (\d+) minutes · (★{1,3})( · optional)?\n(.*?)(?=^##|\Z)", re.M | re.S
)
HINT = re.compile(r"<details><summary>Hint</summary>\s*(.*?)\s*</details>", re.DOTALL)
SOLUTION = re.compile(r"^def (\w+)\((?:(?!^def ).)*?^( +)# solution:\n(.*?)^ +# end\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Exercise:
    """One function that a student writes. `difficulty` is 1 to 3 stars; `section` is its anchor on the page."""

    name: str
    minutes: int
    difficulty: int
    section: str
    hints: tuple[str, ...]
    is_optional: bool = False


@dataclass(frozen=True)
class Lesson:
    """A lesson with its page and exercises, in their order."""

    number: int
    title: str
    page: Path
    exercises: tuple[Exercise, ...]

    @property
    def module(self) -> str:
        return f"lesson_{self.number:02}"

    @property
    def solutions(self) -> Path:
        return LESSONS / "exercises" / f"{self.module}.py"

    @property
    def checks(self) -> Path:
        return LESSONS / "checks" / f"{self.module}.py"

    @property
    def minutes(self) -> int:
        return sum(exercise.minutes for exercise in self.exercises)

    @property
    def core(self) -> set[str]:
        """The exercises that the page's first lines count in its fifty minutes; all of them if none is named there."""
        core = self.page.read_text(encoding="utf-8").partition("\nCore: ")[2].partition("minutes)")[0]
        return set(re.findall(r"`(\w+)`", core)) or {exercise.name for exercise in self.exercises}

    def stubs(self) -> str:
        """The student's file: the solved one, with a NotImplementedError in place of each solution."""

        def stub(match: re.Match[str]) -> str:
            given = match[0].partition(f"{match[2]}# solution:\n")[0]
            return f'{given}{match[2]}raise NotImplementedError("lesson {self.number}: {match[1]}")\n'

        return SOLUTION.sub(stub, self.solutions.read_text(encoding="utf-8"))


def all_lessons() -> list[Lesson]:
    """The lessons in the order in which they are taken: that of the links in lessons/README.md."""
    order = re.findall(r"\]\((\d\d_\w+\.md)\)", (LESSONS / "README.md").read_text(encoding="utf-8"))
    return [read_lesson(LESSONS / name) for name in dict.fromkeys(order)]


def read_lesson(page: Path) -> Lesson:
    """Read a lesson from its page."""
    text = page.read_text(encoding="utf-8")
    exercises = tuple(
        Exercise(name, int(minutes), len(stars), anchor(heading), tuple(HINT.findall(body)), bool(optional))
        for heading, name, minutes, stars, optional, body in EXERCISE.findall(text)
    )
    return Lesson(int(page.name[:2]), text.partition("\n")[0].removeprefix("# "), page, exercises)


def anchor(heading: str) -> str:
    """The end of a link to a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
