"""Lessons do what they say: pages print it, solutions pass, stubs wait, and each mistake gets its sentence."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from drawings.lessons import figures_of
from matplotlib.figure import Figure

from pellucid.course import pages
from pellucid.course.attempt import Outcome, checks_of
from pellucid.course.checks import SEED
from pellucid.course.exercises import LESSONS, Lesson, all_lessons
from trying import Attempt, attempts_in, tried, with_attempt

ALL = all_lessons()
each_lesson = pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: f"{lesson.number:02}")


@cache
def checks(lesson: Lesson):
    return checks_of(lesson)


@cache
def attempts(lesson: Lesson) -> list[Attempt]:
    return attempts_in(Path(__file__).parent / "mistakes" / f"{lesson.module}.py")


EXERCISES = [
    pytest.param(lesson, exercise.name, id=f"{lesson.number:02}-{exercise.name}")
    for lesson in ALL
    for exercise in lesson.exercises
]


@each_lesson
def test_a_page_prints_what_it_says(lesson, in_full, monkeypatch):
    monkeypatch.chdir(LESSONS)
    for block, printed in pages.run(lesson.page, in_full=in_full):
        differs = f"{lesson.page.name}:{block.line} prints\n{printed}instead of\n{block.output}"
        assert pages.agree(printed, block.output, block.tolerance), differs


@each_lesson
def test_solutions_are_right(lesson, tmp_path):
    outcomes = tried(lesson, lesson.solutions.read_text(encoding="utf-8"), tmp_path, checks(lesson))
    assert [(each.exercise, each.fault) for each in outcomes] == [(each.name, None) for each in lesson.exercises]


@each_lesson
def test_solutions_are_right_with_the_numbers_of_other_seeds(lesson, tmp_path, in_full, monkeypatch):
    for seed in range(1, 11) if in_full else [1]:
        monkeypatch.setenv(SEED, str(seed))
        outcomes = tried(lesson, lesson.solutions.read_text(encoding="utf-8"), tmp_path, checks(lesson))
        assert [each for each in outcomes if each.fault] == []


@each_lesson
def test_every_stub_is_still_to_be_written_and_no_exercise_waits_for_another(lesson, tmp_path):
    text = lesson.stubs()
    solved = lesson.solutions.read_text(encoding="utf-8")
    assert "# solution:" not in text
    assert text.count("raise NotImplementedError") == len(lesson.exercises) == solved.count("# solution:")
    stubs = [Outcome(exercise.name, "not written yet", is_written=False) for exercise in lesson.exercises]
    assert tried(lesson, text, tmp_path, checks(lesson)) == stubs
    for i in range(2):  # every second exercise is written, so none stands on one before it
        half = text
        for exercise in lesson.exercises[i::2]:
            solution = re.search(rf"^def {exercise.name}\(.*?# end\n", solved, re.MULTILINE | re.DOTALL)
            half = with_attempt(half, Attempt(exercise.name, solution[0], None))
        right = [outcome.fault is None for outcome in tried(lesson, half, tmp_path, checks(lesson))]
        assert right == [place % 2 == i for place in range(len(lesson.exercises))]


@pytest.mark.parametrize(("lesson", "exercise"), EXERCISES)
def test_each_mistake_gets_its_sentence_and_each_solution_passes(lesson, exercise, tmp_path):
    solved = lesson.solutions.read_text(encoding="utf-8")
    alone = replace(lesson, exercises=tuple(each for each in lesson.exercises if each.name == exercise))
    for attempt in (each for each in attempts(lesson) if each.exercise == exercise):
        [outcome] = tried(alone, with_attempt(solved, attempt), tmp_path, checks(lesson))
        if attempt.says is None:
            assert outcome.fault is None, attempt.source
        else:
            assert attempt.says in (outcome.fault or "no fault was found"), attempt.source
            assert "raised" not in outcome.fault.partition(":")[0], "a mistake must not be met by an exception"


@each_lesson
def test_each_exercise_has_mistakes_and_each_hard_one_a_second_solution(lesson):
    for exercise in lesson.exercises:
        own = [attempt for attempt in attempts(lesson) if attempt.exercise == exercise.name]
        assert sum(attempt.says is not None for attempt in own) >= 2, exercise.name
        assert exercise.difficulty < 3 or any(attempt.says is None for attempt in own), exercise.name
        assert exercise.hints, exercise.name
        assert exercise.difficulty == 3 or not exercise.is_optional, exercise.name


@each_lesson
def test_no_other_lesson_imports_what_is_optional(lesson):
    """If a function that it imports calls one, ours stands in, and the student is told so."""
    texts = [each.solutions.read_text(encoding="utf-8") for each in ALL if each != lesson]
    imports = re.findall(rf"^from {lesson.module} import (\([^)]*\)|[^\n]*)", "\n".join(texts), re.MULTILINE)
    imported = re.findall(r"\w+", " ".join(imports))
    assert not [each.name for each in lesson.exercises if each.is_optional and each.name in imported]


@each_lesson
def test_a_lesson_takes_at_most_ninety_minutes(lesson):
    reading = len(re.sub(r"```.*?```", "", lesson.page.read_text(encoding="utf-8"), flags=re.DOTALL).split()) / 130
    assert lesson.minutes + reading <= 90, f"{reading:.0f} minutes of reading, {lesson.minutes} of exercises"


@each_lesson
def test_no_exercise_is_taken_up_while_its_file_is_read(lesson):
    """`partial(round_to, …)` at the top level would keep the student's stub, and ours could not stand in for it."""
    names = {each.name for each in lesson.exercises}
    definitions = (ast.FunctionDef, ast.ClassDef)
    top = [each for each in ast.parse(lesson.solutions.read_bytes()).body if not isinstance(each, definitions)]
    assert not [node for each in top for node in ast.walk(each) if isinstance(node, ast.Name) and node.id in names]


@each_lesson
def test_a_link_to_a_lesson_has_its_number(lesson):
    links = re.findall(r"\[lesson\s+(\d+)\]\((\d\d)_", lesson.page.read_text(encoding="utf-8"))
    assert [int(number) for number, _ in links] == [int(file) for _, file in links]


@each_lesson
def test_each_figure_is_drawn_by_a_function(lesson, in_full):
    """Only `make lessons` draws them: some train the models that they show."""
    shown = re.findall(r"\]\((figures/\w+\.png)\)", lesson.page.read_text(encoding="utf-8"))
    figures = figures_of(lesson)
    assert figures.keys() == {LESSONS / each for each in shown}
    assert figures.keys() == set((LESSONS / "figures").glob(f"{lesson.number:02}_*.png"))
    for file, draw in figures.items() if in_full else ():
        figure = draw()
        assert isinstance(figure, Figure)
        assert any(axes.has_data() or axes.texts or axes.patches for axes in figure.axes), file.name
        plt.close(figure)


@each_lesson
def test_a_page_becomes_a_notebook(lesson):
    jupytext = pytest.importorskip("jupytext")
    notebook = jupytext.read(lesson.page)
    code = [cell.source.strip() for cell in notebook.cells if cell.cell_type == "code"]
    assert code == [block.code.strip() for block in pages.blocks_of(lesson.page)]
    last = [ast.parse(each).body[-1] for each in code]
    shown = [ast.unparse(each) for each in last if isinstance(each, ast.Expr)]  # by a notebook, if it is not None
    assert all(each.startswith("print(") for each in shown), shown


def test_lessons_need_only_names_that_exist():
    """Whoever renames a function that lessons import learns it here, not from a student."""
    for file in sorted(LESSONS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pellucid"):
                module = __import__(node.module, fromlist=[name.name for name in node.names])
                for name in node.names:
                    assert hasattr(module, name.name), f"{file.name}: {node.module}.{name.name}"


def test_numbers_agree_within_the_tolerance_that_a_page_states():
    assert pages.agree("loss 1.02 nats\n", "loss 1.00 nats\n", 0.03)
    assert not pages.agree("loss 1.02 nats\n", "loss 1.00 nats\n", 0.01)
    assert not pages.agree("loss 1.02 nats\n", "cost 1.02 nats\n", 0.03)
    assert not pages.agree("1 2\n", "1 2 3\n", 0.5)
    assert not pages.agree("1.0\n", "1.00\n", 0.0)
    assert pages.agree("paid -0.00 and [-0. -0.0]\n", "paid  0.00 and [-0. 0.0]\n", 0.0)
    assert not pages.agree("paid -0.01\n", "paid  0.01\n", 0.0)


def test_autodiff_needs_numpy_alone():
    code = "import sys; sys.path.insert(0, sys.argv[1])\n" + "".join(
        f"import autodiff.{name}\n" for name in ("dual", "tape", "second", "implicit", "sparse")
    )
    code += "assert not {'torch', 'scipy', 'pellucid'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(LESSONS)], check=True)
