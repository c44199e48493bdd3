"""The student's code first: a lesson's module in which each function that is done is the student's, and others ours.

    own_first(folder, {"lesson_07": ["windows"]})
    from lesson_07 import count_pairs, windows      # windows is the student's, in folder/lesson_07.py

The module is the student's file, run as it is, so its lines and helpers are the student's. Our functions are put into
it and find there what they call.
"""

import ast
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pellucid.course.exercises import LESSONS, Lesson, all_lessons

OF_LESSONS = ("lesson_", "checks_of_", "figures_of_")  # modules that may have imported an exercise's function


class Own:
    """A lesson's module from the student's file: each exercise's function in it can be `theirs` or `ours`."""

    def __init__(self, lesson: Lesson, module: ModuleType) -> None:
        self.lesson, self.module = lesson, module
        names = {each.name for each in lesson.exercises}
        self.theirs: dict[str, Any] = {name: value for name, value in vars(module).items() if name in names}
        self.ours: dict[str, Any] = {}
        self.used: list[str] = []
        for name, code in _definitions(lesson.solutions).items():
            if name in names or name not in vars(module):  # a helper that the student may have deleted
                exec(code, vars(module), self.ours)
        for name in self.ours.keys() - names:
            setattr(module, name, self.ours[name])

    def use(self, theirs: Collection[str]) -> None:
        """Take the student's functions of these exercises and ours of the others, wherever one was imported."""
        self.used = [each.name for each in self.lesson.exercises if each.name in theirs and each.name in self.theirs]
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(OF_LESSONS)]
        for exercise in self.lesson.exercises:
            old, new = self.theirs.get(exercise.name), self.ours[exercise.name]
            if exercise.name in self.used:
                old, new = new, old
            setattr(self.module, exercise.name, new)
            for module in modules:
                for name in [name for name, value in vars(module).items() if value is old and callable(old)]:
                    setattr(module, name, new)


class OwnFirst(MetaPathFinder):
    """Finds lessons in a student's folder when they are imported. `done` names what is taken from there."""

    def __init__(self, folder: Path, done: Mapping[str, Collection[str]], say: Callable[[str], object]) -> None:
        self.lessons = {lesson.module: lesson for lesson in all_lessons()}
        self.folder, self.done, self.say = folder, done, say
        self.loaded: dict[str, Own] = {}

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname not in self.lessons:
            return None
        lesson, file = self.lessons[fullname], self.folder / f"{fullname}.py"
        done = {each.name for each in lesson.exercises} & set(self.done.get(fullname, []))
        is_theirs = bool(done) and file.exists()
        self.say(whose(lesson, done if is_theirs else []))
        return spec_from_file_location(fullname, file, loader=_Loader(self, file, fullname)) if is_theirs else None


class _Loader(SourceFileLoader):
    def __init__(self, finder: OwnFirst, file: Path, name: str) -> None:
        super().__init__(name, str(file))
        self.finder = finder

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        own = Own(self.finder.lessons[self.name], module)
        own.use(self.finder.done[self.name])
        self.finder.loaded[self.name] = own


@cache
def _definitions(solutions: Path) -> dict[str, CodeType]:
    """The functions and classes of a file, each compiled by itself."""
    tree = ast.parse(solutions.read_bytes())
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return {
        node.name: compile(ast.Module([*future, node], []), str(solutions), "exec", dont_inherit=True)
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


def own_first(
    folder: Path, done: Mapping[str, Collection[str]], say: Callable[[str], object] = lambda _: None
) -> OwnFirst:
    """From now on, lessons are imported from a student's folder as far as they are done; `say` is told which."""
    sys.path[:0] = [str(LESSONS), str(LESSONS / "exercises")]
    sys.dont_write_bytecode = True
    finder = OwnFirst(folder, done, say)
    sys.meta_path.insert(0, finder)
    return finder


def whose(lesson: Lesson, done: Collection[str]) -> str:
    """Which functions of a lesson are the student's, and which are ours."""
    names = [each.name for each in lesson.exercises]
    theirs, ours = [name for name in names if name in done], [name for name in names if name not in done]
    if not theirs or not ours:
        return f"from {'our' if ours else 'your'} {lesson.module}: all"
    return f"from your {lesson.module}: {', '.join(theirs)}; from ours: {', '.join(ours)}"
