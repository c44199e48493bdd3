"""`pellucid learn`: where a student is, one sentence for whatever a file does, and nothing lost."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from io import BytesIO
from pathlib import Path

import collect_reports
import numpy as np
import pytest
import rerun
from filelock import FileLock
from typer.testing import CliRunner

from pellucid.cli import app_for
from pellucid.course import attempt as attempts
from pellucid.course import pages
from pellucid.course.attempt import Outcome, attempt, checks_of, outcomes
from pellucid.course.checks import Wrong, expect, unchanged
from pellucid.course.exercises import all_lessons, anchor, read_lesson
from pellucid.course.own import OwnFirst
from pellucid.course.pages import write_notebook
from pellucid.course.workbook import Workbook
from pellucid.errors import ConfigError, DataError

LESSON = next(lesson for lesson in all_lessons() if lesson.number == 1)
SOLVED = LESSON.solutions.read_text(encoding="utf-8")
ODD = "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unchecked(monkeypatch) -> None:
    """The first exercise is not written yet, whatever is in a file: no process is started."""
    first = Outcome(LESSON.exercises[0].name, "not written yet", is_written=False)
    monkeypatch.setattr("pellucid.course.workbook.attempt", lambda *_: [first])


@pytest.fixture(autouse=True)
def the_lessons_own_module() -> Iterator[None]:
    """A student's file that is run in this process takes the module's name: other tests import the lesson's own."""
    ours = sys.modules.get(LESSON.module)
    yield
    sys.modules.pop(LESSON.module, None)
    if ours is not None:
        sys.modules[LESSON.module] = ours


def learn(*arguments: object) -> str:
    result = CliRunner().invoke(app_for("learn"), ["learn", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def with_body(name: str, *lines: str) -> str:
    """The student's file with everything solved, but for one function."""
    function = re.search(rf"^def {name}\(.*?# end\n", SOLVED, re.MULTILINE | re.DOTALL)[0]
    signature = re.match(r"def .*?:\n", function, re.DOTALL)[0]
    return SOLVED.replace(function, signature + "".join(f"    {line}\n" for line in lines))


def fault(folder: Path, text: str, most_seconds: float = 60.0) -> tuple[str, str]:
    workbook = Workbook(folder)
    workbook.start(LESSON)
    workbook.file(LESSON).write_text(text, encoding="utf-8")
    wrong = next(each for each in workbook.check(LESSON, most_seconds=most_seconds) if each.fault)
    return wrong.exercise, wrong.fault


def test_without_a_number_all_lessons_are_listed_with_what_to_do_next(here):
    told = learn()
    for lesson in all_lessons():
        assert f"{lesson.title} " in told
    first = all_lessons()[0]
    assert f"run `pellucid learn {first.number}`" in told
    assert not list(here.iterdir()), "a list needs no files"


def test_a_lesson_begins_with_a_file_to_fill_in(here):
    told = learn(1)
    assert f"push_product ({LESSON.exercises[0].minutes} minutes, ★): not written yet" in told
    assert "01_differentiation.md#exercise-the-product-rule" in told
    assert (here / "my_lessons" / "lesson_01.py").read_text(encoding="utf-8") == LESSON.stubs()


def test_progress_survives_and_a_new_start_keeps_the_old_file(here):
    learn(1)
    file = here / "my_lessons" / "lesson_01.py"
    file.write_text(LESSON.stubs().replace('raise NotImplementedError("lesson 1: push_product")',
                                           "return x_tangent * y + x * y_tangent"), encoding="utf-8")  # fmt: skip
    told = learn(1)
    assert "✓ push_product" in told
    assert "· jacobian_from_jvps" in told
    assert re.search(rf"{re.escape(LESSON.title)} +1 of {len(LESSON.exercises)}", learn())
    written = file.read_text(encoding="utf-8")
    assert "lesson_01.before_1.py" in learn("--reset", 1)
    assert file.with_name("lesson_01.before_1.py").read_text(encoding="utf-8") == written
    assert file.read_text(encoding="utf-8") == LESSON.stubs()
    assert re.search(rf"{re.escape(LESSON.title)} +0 of", learn())


def test_a_file_of_an_older_folder_is_named_and_stays_as_it_is(here):
    """Lesson 7 was once lesson 5, whose number another lesson has now."""
    [fifth, seventh] = [lesson for lesson in all_lessons() if lesson.number in (5, 7)]
    folder, others = here / "my_lessons", "from lesson_03 import what_is_not_there\n"
    folder.mkdir()
    (folder / "lesson_05.py").write_text(seventh.stubs() + others, encoding="utf-8")
    notes = {"done": {"lesson_05": ["windows"]}, "hints": {}}
    (folder / "progress.json").write_text(json.dumps(notes), encoding="utf-8")
    for arguments in ([], [fifth.exercises[-1].name]):
        told = learn(5, *arguments)
        assert "lesson_05.py has the exercises of today's lesson 7, as lessons have new numbers; " in told
        assert "copy what you have into the files that `pellucid learn --new DIR` writes\n" in told
        assert "write " not in told, "not into this one"
    assert (folder / "lesson_05.py").read_text(encoding="utf-8") == seventh.stubs() + others
    [row] = json.loads(learn("--report"))["lessons"]
    assert row["next"]["fault"].startswith("lesson_05.py has the exercises of today's lesson 7")
    assert OwnFirst(folder, notes["done"], print).find_spec("lesson_05") is None, "nothing of it is lesson 5's"
    old_stubs = LESSON.stubs().replace("lesson 1: ", "lesson 9: ")
    (folder / "lesson_01.py").write_text(old_stubs, encoding="utf-8")
    assert "· push_product " in learn(1), "not written yet, though it names an older number"


def test_each_lessons_own_file_is_known_as_its_own(tmp_path, monkeypatch):
    lessons = all_lessons()
    monkeypatch.setattr(attempts, "all_lessons", lambda: lessons)
    for other in lessons:
        file = tmp_path / f"{other.module}.py"
        file.write_text(other.stubs(), encoding="utf-8")
        for lesson in lessons:
            assert attempts._lesson_in(file, lesson) == (None if lesson == other else other)


def test_who_is_in_the_folder_of_the_answers_goes_on_there(here, unchecked, monkeypatch):
    learn(1)
    monkeypatch.chdir(here / "my_lessons")
    told = learn(1)
    assert "write  lesson_01.py, from line " in told
    assert "which is new" not in told
    learn("--new", here / "handout")
    monkeypatch.chdir(here / "handout" / "my_lessons")
    assert "which is new" not in learn(1)
    assert not [each for each in here.rglob("my_lessons") if each.parent not in (here, here / "handout")]


def test_hints_unfold_one_by_one(here, unchecked):
    hints = LESSON.exercises[0].hints
    assert len(hints) == 2
    assert hints[0] not in learn(1)
    first = learn(1, "--hint")
    assert hints[0].partition("\n")[0] in first
    assert hints[1].partition("\n")[0] not in first
    assert hints[1].partition("\n")[0] in learn(1, "--hint")
    assert hints[1].partition("\n")[0] in learn(1), "what was shown stays"


@pytest.mark.parametrize(
    ("answer", "right", "sentence"),
    [
        (None, 6.0, "the slope: your function returns None; is a `return` missing?"),
        (math.nan, 6.0, "the slope: it is NaN; look for 0/0, inf - inf or ln 0"),
        ([1.0, math.nan], [1.0, 2.0], "the slope: one of its numbers is NaN; look for 0/0, inf - inf or ln 0"),
        ([1.0, 2.0], 6.0, "the slope: the shape is (2), but that of a single number is expected"),
        ("six", 6.0, "the slope: expected numbers, but got str"),
        (5.5, 6.0, "the slope: you have 5.5, not 6"),
        (-0.063519401, -0.0635194, "the slope: you have -0.063519401, not -0.0635194"),
        ([1.0, 1.61118 + 1e-9, 2.0], [1.0, 1.61118, 2.0], "the slope: at [1] you have 1.611180001, not 1.61118"),
    ],
)
def test_whatever_a_function_returns_gets_one_sentence(answer, right, sentence):
    with pytest.raises(Wrong) as wrong:
        expect(answer, right, "the slope", tolerance=1e-10)
    assert str(wrong.value) == sentence


@pytest.mark.parametrize("given", [[3, 0, 2], np.array([3.0, 0.0, 2.0]), {"a": [3, 0]}, [{1, 2}, {3}]])
def test_who_writes_into_what_he_is_given_hears_that(given):
    first = "a" if isinstance(given, dict) else 0
    before = repr(given)
    assert unchanged(lambda x, k: (x, k), given, first)[1] == first
    with pytest.raises(Wrong, match="changes what it is given"):
        unchanged(lambda x, k: x.__setitem__(k, 7), given, first)
    assert repr(given) == before, "the check's own numbers stay as they are"


def test_python_may_end_in_the_middle_of_it(tmp_path, capfd):
    body = with_body("push_product", "import os", "print('deep')", "os._exit(9)")
    sentence = "Python ended in the middle of it (exit code 9); it said last: deep"
    assert fault(tmp_path / "mine", body) == ("push_product", sentence)
    printed = capfd.readouterr()
    assert (printed.out, printed.err.strip()) == ("", "deep"), "a report on stdout is JSON"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (["return push_product()"], "it raised RecursionError in line 2: maximum recursion depth exceeded"),
        (["raise KeyboardInterrupt"], "it raised KeyboardInterrupt in line 2: without a message"),
        (["raise Odd"], "it raised Odd in line 2: without a message"),
        (["raise SyntaxError('x')"], "it raised SyntaxError in line 2: x"),
        (["raise ValueError('a\\rb' * 1000)"], "it raised ValueError in line 2: a b"),
    ],
)
def test_whatever_is_raised_gets_one_sentence(tmp_path, body, sentence):
    file = tmp_path / "lesson_01.py"
    file.write_text("\n".join(["def push_product(*_):", *(f"    {line}" for line in body), "", ODD]), encoding="utf-8")
    [told] = outcomes(LESSON, file, {"push_product": lambda module: module.push_product()}, ["push_product"])
    assert told.fault.startswith(sentence)
    assert len(told.fault) < 1000


def test_only_the_exercises_in_their_order_count_whatever_a_file_writes_into_the_log():
    """A file that forks tells all twice; one that knows the log can write anything, which is then no traceback."""
    names = [each.name for each in LESSON.exercises]
    right, wrong, last = (
        [name, fault, True, bool(fault)] for name, fault in zip(names, (None, "", "not run"), strict=False)
    )
    noise = ["zzz", 10**400, {"exercise": names[0]}, wrong, [names[0]], [names[0], 5, True, False], [[]] * 4]
    lines = [*noise, right, right, *noise[:3], wrong, right, last, [names[3], None, True, False]]
    log = BytesIO(b"\n\xff\n" + b"[" * 9000 + b"\n" + "\n".join(map(json.dumps, lines)).encode() + b"\n[")
    assert [astuple(each) for each in attempts._read_outcomes(log, names)] == [*map(tuple, (right, wrong, last))]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
def test_a_file_that_forks_is_checked_once_and_what_it_starts_ends_with_it(tmp_path):
    lock = tmp_path / "held"
    start = f"""
import fcntl, os, time
os.fork()
ready, tell = os.pipe()
if os.fork() == 0:
    held = open({str(lock)!r}, "w")
    fcntl.flock(held, fcntl.LOCK_SH)
    os.write(tell, b"!")
    time.sleep(100)
    os._exit(0)
os.read(ready, 1)
"""
    workbook = Workbook(tmp_path / "mine")
    workbook.start(LESSON)
    body = with_body("pull_product", "return None")
    workbook.file(LESSON).write_text(body.replace("import numpy as np\n", f"import numpy as np\n{start}", 1))
    assert [each.exercise for each in workbook.check(LESSON)] == [each.name for each in LESSON.exercises]
    with FileLock(lock, timeout=30):  # Timeout: it lives on
        pass


def test_a_finished_lesson_that_no_longer_runs_is_named(tmp_path, monkeypatch):
    first, workbook = all_lessons()[0], Workbook(tmp_path)
    workbook.file(first).write_text("\ndef broken(:\n", encoding="utf-8")
    workbook.done[first.module] = [each.name for each in first.exercises]
    workbook.file(LESSON).write_text(f"\n\nimport {first.module}\n", encoding="utf-8")
    [told] = workbook.check(LESSON)
    assert told.fault.startswith(f"lesson_01.py cannot be run: SyntaxError in line 2 of {first.module}.py: ")
    monkeypatch.setattr(attempts, "checks_of", lambda lesson: compile("(", tmp_path / "lesson_00.py", "exec"))
    [told] = attempts._checked(LESSON, OwnFirst(tmp_path, {}, print), ["push_product"], [])
    assert told.fault.startswith("it cannot be checked: SyntaxError in line 1 of lesson_00.py: ")


def test_a_loop_without_an_end_is_ended(tmp_path):
    loop = with_body("pull_product", "import time", "while True:", "    time.sleep(1)")
    sentence = "it was not done after 3 seconds; is there a loop without an end?"
    assert fault(tmp_path, loop, most_seconds=3.0) == ("pull_product", sentence)


def test_after_an_end_in_one_exercise_the_next_are_checked_but_a_file_that_ends_is_tried_twice(tmp_path):
    workbook = Workbook(tmp_path)
    workbook.start(LESSON)
    names = [each.name for each in LESSON.exercises]
    ends = "    import os\n    os._exit(3)\n"
    text = SOLVED
    for name in names[1:4]:
        text = re.sub(rf"(^def {name}\(.*?\n    # solution:\n)", rf"\1{ends}", text, flags=re.MULTILINE | re.DOTALL)
    workbook.file(LESSON).write_text(text, encoding="utf-8")
    told = workbook.check(LESSON)
    assert [each.exercise for each in told if each.fault] == names[1:4]
    assert len(told) == len(names)
    workbook.file(LESSON).write_text("import os\nos._exit(3)\n", encoding="utf-8")
    assert [each.exercise for each in workbook.check(LESSON)] == names[:2]


def test_a_file_that_is_no_python_and_a_deleted_function_get_their_sentences(tmp_path):
    assert fault(tmp_path, "def push_product(:\n")[1].startswith("lesson_01.py cannot be run: SyntaxError in line 1")
    without = re.sub(r"^def pull_product\(.*?# end\n", "", SOLVED, flags=re.MULTILINE | re.DOTALL)
    exercise, told = fault(tmp_path, without)
    assert exercise == "pull_product"
    assert told.startswith("lesson_01.py has no pull_product any more; `pellucid learn --reset 1`")


def test_a_solved_lesson_is_done(here):
    (here / "my_lessons").mkdir()
    (here / "my_lessons" / "lesson_01.py").write_text(SOLVED, encoding="utf-8")
    assert "All exercises of this lesson are done." in learn(1)
    assert f"✓ {LESSON.title}" in learn()


def test_a_later_lesson_stands_on_the_students_own_work_once_it_is_done(tmp_path):
    workbook = Workbook(tmp_path)
    workbook.file(LESSON).write_text(SOLVED + "\nWHOSE = 'mine'\n", encoding="utf-8")
    real = next(lesson for lesson in all_lessons() if lesson.number == 7)
    text = "import lesson_01\n\nraise RuntimeError(getattr(lesson_01, 'WHOSE', 'ours'))\n"
    workbook.file(real).write_text(text, encoding="utf-8")
    assert "ours" in workbook.check(real)[-1].fault
    assert workbook.check(LESSON)[-1].fault is None
    assert "mine" in workbook.check(real)[-1].fault


def test_one_exercise_is_checked_alone_and_none_waits_for_another(here):
    folder = here / "my_lessons"
    folder.mkdir()
    (folder / "lesson_01.py").write_text(LESSON.stubs(), encoding="utf-8")
    one = re.search(r"^def pull_matmul\(.*?# end\n", SOLVED, re.MULTILINE | re.DOTALL)[0]
    stub = re.search(r"^def pull_matmul\(.*?pull_matmul\"\)\n", LESSON.stubs(), re.MULTILINE | re.DOTALL)[0]
    text = LESSON.stubs().replace(stub, one)
    (folder / "lesson_01.py").write_text(text, encoding="utf-8")
    told = learn(1, "pull_matmul")
    assert "✓ pull_matmul" in told
    assert "not done: push_product, " in told
    (folder / "lesson_01.py").write_text(text.replace(one, one.replace("# solution:", "return None")), encoding="utf-8")
    told = learn(1)
    assert told.count("✗") + told.count("·") == 2, "the first that is not right, and the list"
    assert "push_product (" in told
    assert "pull_matmul" in told.partition("not done: ")[2]
    assert "✗ pull_matmul (" in learn(1, "pull_matmul")
    assert "unfold" not in learn(1, "pull_matmul", "--hint")
    with pytest.raises(ConfigError, match="lesson 1 has no exercise x; choose one of push_product, "):
        CliRunner().invoke(app_for("learn"), ["learn", "1", "x"], catch_exceptions=False, standalone_mode=False)


def test_each_exercise_has_ours_in_place_of_what_is_not_right(tmp_path):
    """`backward` calls topological_order; the student's own class and helpers stay."""
    file = tmp_path / "lesson_01.py"
    wrong = with_body("topological_order", "return [output]").replace("class Tensor:", "class Tensor:\n    mine = True")
    file.write_text(wrong, encoding="utf-8")
    checks = checks_of(LESSON)
    told = list(outcomes(LESSON, file, checks))
    assert [each.exercise for each in told if each.fault] == ["topological_order"]
    assert sys.modules[LESSON.module].Tensor.mine
    told = list(outcomes(LESSON, file, checks, ["backward"], ["topological_order"]))
    line = wrong[: wrong.index("def topological_order")].count("\n") + 1
    blame = f"it is right with our topological_order, but not with yours (lesson_01.py, line {line}): "
    assert told[0].fault.startswith(blame)


def test_a_lesson_is_done_without_what_is_optional(here, monkeypatch):
    optional = replace(LESSON.exercises[-1], is_optional=True)
    lesson = replace(LESSON, exercises=(*LESSON.exercises[:-1], optional))
    monkeypatch.setattr("pellucid.course.exercises.all_lessons", lambda: [lesson])
    workbook = Workbook(here / "my_lessons")
    workbook.start(lesson)
    text = with_body(optional.name, f'raise NotImplementedError("lesson 1: {optional.name}")')
    workbook.file(lesson).write_text(text, encoding="utf-8")
    told = learn(1)
    assert f"not done: {optional.name} (optional)\n\nThis lesson is done; later ones take ours" in told
    assert f"✓ {LESSON.title}" in learn()
    assert f"· {optional.name} ({optional.minutes} minutes, ★★★, optional): not written yet" in learn(1, optional.name)


def test_what_is_optional_waits_until_the_rest_is_right(here, monkeypatch):
    first, second, *others = LESSON.exercises
    lesson = replace(LESSON, exercises=(replace(first, is_optional=True), second, *others))
    monkeypatch.setattr("pellucid.course.exercises.all_lessons", lambda: [lesson])
    assert f"· {second.name} ({second.minutes} minutes" in learn(1)


def test_the_core_comes_first_and_its_end_is_said(here):
    for lesson in all_lessons():  # each page names exercises of its own
        assert lesson.core <= {exercise.name for exercise in lesson.exercises}
    file = here / "my_lessons" / "lesson_01.py"
    learn(1)
    file.write_text(with_body("push_product", "raise NotImplementedError"), encoding="utf-8")
    assert "push_product (" in learn(1)
    file.write_text(with_body("unbroadcast", "raise NotImplementedError"), encoding="utf-8")
    told = learn(1)
    assert "the core of this lesson is done" in told
    assert "unbroadcast (" in told
    file.write_text(with_body("unbroadcast", "raise NotImplementedError").replace("def backward", "def backwards"))
    told = learn(1)
    assert "the core of this lesson is done" not in told
    assert "backward (" in told, "though unbroadcast stands before it on the page"


def test_a_wrong_function_that_slipped_through_is_blamed_where_it_is(tmp_path):
    """Lessons 1 and 7, as a student has them: `mlp_loss` is right, and calls the student's tape."""
    seventh = next(lesson for lesson in all_lessons() if lesson.number == 7)
    workbook = Workbook(tmp_path)
    wrong = with_body("pull_matmul", "a, b = cotangent @ y.transpose(1, 0, 2), 0", "return a, b")
    line = wrong[: wrong.index("def pull_matmul")].count("\n") + 1
    workbook.file(LESSON).write_text(wrong, encoding="utf-8")
    workbook.file(seventh).write_text(seventh.solutions.read_text(encoding="utf-8"), encoding="utf-8")
    done = {LESSON.module: [each.name for each in LESSON.exercises if each.name != "backward"]}
    [told] = attempt(seventh, tmp_path, done, ["mlp_loss"])
    blame = f"it is right with our pull_matmul, but not with yours (lesson_01.py, line {line}): it raised ValueError"
    assert told.fault.startswith(f"{blame} in line {line + 1} of lesson_01.py: axes don't match")
    (tmp_path / "progress.json").write_text(json.dumps({"done": done, "hints": {}}), encoding="utf-8")
    told = learn(7, "mlp_loss", "--folder", str(tmp_path))
    assert told.rstrip().endswith(f"write  {tmp_path / 'lesson_01.py'}, from line {line}"), "not where it was noticed"
    assert "01_differentiation.md#exercise-a-product-of-matrices-backward" in told
    done[LESSON.module].remove("pull_matmul")
    assert attempt(seventh, tmp_path, done, ["mlp_loss"]) == [Outcome("mlp_loss")], "ours is there until it is done"


def test_a_page_prints_the_students_numbers_and_a_fault_of_the_student_has_its_line(here, capfd):
    folder, seventh = here / "my_lessons", next(lesson for lesson in all_lessons() if lesson.number == 7)
    folder.mkdir()
    wrong = with_body("pull_matmul", "return cotangent @ y.transpose(1, 0, 2), 0")
    (folder / "lesson_01.py").write_text(wrong, encoding="utf-8")
    solved = seventh.solutions.read_text(encoding="utf-8")
    (folder / "lesson_07.py").write_text(solved.replace("counts + alpha", "counts + 99"), encoding="utf-8")
    done = {LESSON.module: ["pull_product", "pull_matmul"], seventh.module: [each.name for each in seventh.exercises]}
    (folder / "progress.json").write_text(json.dumps({"done": done, "hints": {}}), encoding="utf-8")
    assert CliRunner().invoke(app_for("learn"), ["learn", "7", "--page"]).exit_code == 1
    told = capfd.readouterr().out
    assert f"{seventh.title}\nfrom your lesson_01: pull_product, pull_matmul; from ours: push_product, " in told
    assert "\nfrom your lesson_07: all\n" in told
    assert re.search(r"^(.+)    ← the page has: (?!\1$).+$", told, re.MULTILINE)
    line = wrong[: wrong.index("return cotangent @ y.transpose")].count("\n") + 1
    where = rf"ValueError in line {line} of lesson_01.py, called in line \d+ of lesson_07.py: axes don't match"
    assert re.search(where, told)
    assert re.search(r"\nnot run after it: \d+ blocks\n$", told)


def test_a_line_that_a_student_prints_does_not_shift_those_of_the_page():
    block = pages.Block("", 1, is_long=False, output="loss 0.50\nfloor 0.40\n", tolerance=0.01)
    told = pages.beside("here\nloss 0.501\nfloor 0.50\n", block).splitlines()
    assert told == ["here    ← the page has: –", "loss 0.501", "floor 0.50    ← the page has: floor 0.40"]


def test_a_notebook_finds_the_students_functions(here):
    pytest.importorskip("jupytext")
    folder, seventh = here / "my_lessons", next(lesson for lesson in all_lessons() if lesson.number == 7)
    assert "lesson_07.ipynb is new" in learn(7, "--notebook")
    with pytest.raises(ConfigError, match="it is there already; rename it to keep it, or delete it"):
        write_notebook(seventh, folder)
    text = (folder / "lesson_07.ipynb").read_text(encoding="utf-8")
    assert all((folder / figure).exists() for figure in re.findall(r"\]\((figures/\w+\.png)\)", text))
    first, second, *_ = ["".join(each["source"]) for each in json.loads(text)["cells"] if each["cell_type"] == "code"]
    (folder / "lesson_01.py").write_text(SOLVED + "\nWHOSE = 'mine'\n", encoding="utf-8")
    (folder / "progress.json").write_text(json.dumps({"done": {"lesson_01": ["backward"]}, "hints": {}}))
    theirs = "import lesson_01\nassert lesson_01.WHOSE == 'mine'\nassert backward is lesson_01.backward"
    [figure] = re.findall(r"# A figure with your functions: (from .*); ", first)
    command = [sys.executable, "-c", "\n".join([first, second, theirs, first, second, figure])]
    told = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert told.count("from your lesson_01: backward; from ours: push_product, ") == 2
    assert told.count("from our lesson_07: all\n") == 2


@pytest.mark.parametrize("is_built", [True, False])
def test_a_page_of_the_site_is_opened_if_it_is_there(here, monkeypatch, is_built):
    lesson = replace(LESSON, page=here / "lessons" / LESSON.page.name)
    monkeypatch.setattr("pellucid.course.exercises.all_lessons", lambda: [lesson])
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    file = here / "site" / "lessons" / "01_differentiation.html"
    if is_built:
        file.parent.mkdir(parents=True)
        file.write_text("")
        learn(1, "--open")
        assert opened == [file.as_uri()]
    else:
        with pytest.raises(ConfigError, match="the site is not built; run `make site`"):
            learn(1, "--open")


def test_a_folder_to_hand_out_has_pages_and_stubs_but_no_solutions(here, monkeypatch):
    assert "start with `cd handout`" in learn("--new", "handout")
    with pytest.raises(ConfigError, match="handout: it is there already; choose another name"):
        learn("--new", "handout")
    monkeypatch.chdir(here / "handout")
    texts = {path.name: path.read_text("utf-8") for path in Path().rglob("*") if path.suffix in (".md", ".py", ".json")}
    assert not any("# solution:" in text for name, text in texts.items() if name.endswith(".py"))
    for lesson in all_lessons():
        assert texts[f"{lesson.module}.py"] == lesson.stubs()
        text = texts[lesson.page.name]
        assert pages.blocks_of(Path(lesson.page.name)) == pages.blocks_of(lesson.page)
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+\.\w+)", text):
            assert Path(link).exists(), link
        assert not re.search(r"\s\((how|API|equation\s\d+)\)", text)
    assert "from which a program\ndraws. `next_words` lists" in texts["00_guess_the_next_word.md"]
    assert "a temperature $\\alpha$.\nOne temperature" in texts["04_implicit_and_sparse.md"]
    assert "quiz_answers.md" not in texts
    assert json.loads(learn("--report"))["lessons"] == []
    told = learn(1)
    assert "read   01_differentiation.md#exercise-the-product-rule" in told
    assert "another version" not in told
    notes = Path("my_lessons/made_with.json")
    notes.write_text(notes.read_text("utf-8").replace('"lesson_01": "', '"lesson_01": "x'), encoding="utf-8")
    assert "note   your folder is of another version of this lesson" in learn(1)
    assert [row["lesson"] for row in json.loads(learn("--report"))["lessons"]] == [LESSON.title]


def test_a_report_tells_a_teacher_what_is_right_today(here):
    workbook = Workbook(here / "my_lessons")
    workbook.start(LESSON)
    workbook.one_more_hint(LESSON, "push_product", 2)
    workbook.file(LESSON).write_text(with_body("pull_product", "return None"), encoding="utf-8")
    told = json.loads(learn("--report"))
    (row,) = told["lessons"]
    assert (row["lesson"], row["of"]) == (LESSON.title, len(LESSON.exercises))
    assert row["done"] == [each.name for each in LESSON.exercises if each.name != "pull_product"]
    assert row["next"]["exercise"] == "pull_product"
    assert row["faults"] == {"pull_product": row["next"]["fault"]}
    assert row["hints"]["push_product"] == 1


def test_exercises_of_one_name_in_two_lessons_have_hints_of_their_own(tmp_path):
    lessons = [lesson for lesson in all_lessons() if any(each.name == "count_pairs" for each in lesson.exercises)]
    assert len(lessons) == 2
    workbook = Workbook(tmp_path)
    workbook.start(lessons[0])
    assert workbook.one_more_hint(lessons[0], "count_pairs", 2) == 1
    assert workbook.hints_shown(lessons[1], "count_pairs") == 0
    workbook.reset(lessons[1])
    assert workbook.hints_shown(lessons[0], "count_pairs") == 1


def test_reports_of_a_class_become_a_table(here, unchecked, monkeypatch, capsys):
    learn(1)
    annas = learn("--report")
    ottos = json.loads(annas)
    ottos["lessons"][0] |= {"done": [each.name for each in LESSON.exercises], "next": None}
    (here / "anna.json").write_text(annas, encoding="utf-8")
    (here / "otto.json").write_text(json.dumps(ottos), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["collect_reports.py", "anna.json", "otto.json"])
    collect_reports.main()
    n = len(LESSON.exercises)
    told = capsys.readouterr().out
    assert f"| anna | 0 of {n} |\n| otto | {n} of {n} |\n1 at {LESSON.title}: push_product" in told
    (here / "otto.json").write_text((here / "otto.json").read_text(encoding="utf-8"), encoding="utf-16")
    collect_reports.main()
    assert capsys.readouterr().out == told
    row = {"lesson": LESSON.title, "done": [], "of": 1, "hints": {}, "next": None}
    for wrong in ([], *({"lessons": [{**row, key: 5}]} for key in ("lesson", "done", "hints", "next"))):
        (here / "otto.json").write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(SystemExit, match="otto.json: not a report"):
            collect_reports.main()


def test_what_was_handed_in_is_checked_again_with_limits(tmp_path):
    """The file tries what a file must not; whether the system lets it is told in `protection`."""
    anna, outside = tmp_path / "submissions" / "anna", tmp_path / "written"
    anna.mkdir(parents=True)
    tries = f"""
import os, socket
SEED, CAN = os.environ["PELLUCID_CHECK_SEED"], []
for name, act in {{
    "write": lambda: open({str(outside)!r}, "w").close(),
    "large": lambda: open("large", "wb").write(bytes(1 << 25)),
    "connect": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9)),
}}.items():
    try:
        act()
        CAN.append(name)
    except OSError:
        pass
"""
    text = f"{SOLVED}{tries}\n\ndef push_product(*_):\n    raise ValueError(f'seed {{SEED}} {{CAN}}')\n"
    (anna / "lesson_01.py").write_text(text, encoding="utf-8")
    [(student, files)] = rerun.submissions_in(tmp_path / "submissions").items()
    rows = rerun.points(files, [7])
    assert (student, [row["exercise"] for row in rows]) == ("anna", [each.name for each in LESSON.exercises])
    assert [row["points"] for row in rows] == [0, *(each.difficulty for each in LESSON.exercises[1:])]
    assert rows[0]["unusual_imports"] == "os socket"
    told = rows[0]["fault"]
    assert "seed 7 [" in told
    if sys.platform != "win32":
        assert "large" not in told
    assert ("connect" in told) <= ("no network" not in rerun.protection())
    assert ("write" in told) == outside.exists() == ("read-only" not in rerun.protection())


def test_points_become_tables_for_a_gradebook(here, monkeypatch, capsys):
    row = {"lesson": 1, "exercise": "a", "optional": "", "points": 2, "of": 2, "fault": "", "unusual_imports": "os"}
    wrong = row | {"exercise": "b", "points": 0, "of": 1, "fault": "=1+1"}
    monkeypatch.setattr(rerun, "submissions_in", lambda folder: {"anna": []} if folder.name == "full" else {})
    monkeypatch.setattr(rerun, "points", lambda *_, **limits: [row, wrong])
    monkeypatch.setattr("sys.argv", ["_", "--rerun", "full", "--seeds", "3", "--csv", "p.csv", "--grades", "g.csv"])
    collect_reports.main()
    told = capsys.readouterr().out
    assert told.startswith("protection: ")
    assert "seeds: 3\nanna: 2 of 3 points; imports os\n" in told
    assert "anna,1,b,,0,1,'=1+1,os" in (here / "p.csv").read_text("utf-8"), "no spreadsheet computes it"
    assert (here / "g.csv").read_text("utf-8").split() == [
        "assignment,student_id,score,max_score",
        "lesson_01,anna,2,3",
    ]
    monkeypatch.setattr("sys.argv", ["_", "--rerun", "empty"])
    with pytest.raises(SystemExit, match="empty: no folder of a student with a lesson file"):
        collect_reports.main()


def test_no_students_file_ends_the_check_of_the_others(here, monkeypatch, capsys):
    """A folder with a file's name, a lesson that is not there, code that no parser takes."""
    folder = here / "submissions"
    (folder / "anna" / "lesson_01.py").mkdir(parents=True)
    (folder / "otto").mkdir()
    (folder / "otto" / "lesson_77.py").write_text("", encoding="utf-8")
    assert rerun.submissions_in(folder) == {}
    monkeypatch.setattr("sys.argv", ["_", "--rerun", "submissions", "--csv", "p.csv"])
    with pytest.raises(SystemExit, match="no folder of a student with a lesson file"):
        collect_reports.main()
    for deep in ("x = " + "-" * 200_000 + "1", "x = a" + ".b" * 200_000):
        (here / "deep.py").write_text(deep, encoding="utf-8")
        assert rerun.unusual_imports(LESSON, here / "deep.py") == ""
    monkeypatch.setattr("sys.argv", ["_"])
    with pytest.raises(SystemExit) as ended:
        collect_reports.main()
    assert ended.value.code == 2
    assert "name the reports, or a folder with --rerun" in capsys.readouterr().err


def test_damaged_notes_are_named_and_answers_are_kept(here, unchecked):
    learn(1)
    notes = here / "my_lessons" / "progress.json"
    damaged = ["{", "[]", "[" * 100_000, '{"done": {}, "hints": {"lesson_01.push_product": 1e999}}', "\xff"]
    wrong = [([], {}), ({}, []), ({"lesson_01": 5}, {}), ({"lesson_01": [[]]}, {}), ({}, {"a": "b"}), ({}, {"a": None})]
    for text in [*damaged, *(json.dumps({"done": done, "hints": hints}) for done, hints in wrong)]:
        notes.write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match="it is damaged; delete it"):
            Workbook(here / "my_lessons")
    notes.unlink()
    assert "not written yet" in learn(1)


def test_names_that_are_not_exercises_do_not_count(tmp_path):
    notes = {"done": {LESSON.module: ["push_product"] * len(LESSON.exercises)}, "hints": {}}
    (tmp_path / "progress.json").write_text(json.dumps(notes), encoding="utf-8-sig")
    assert len(Workbook(tmp_path).missing(LESSON)) == len(LESSON.exercises) - 1
    assert not Workbook(tmp_path).is_done(LESSON)


def test_what_two_commands_note_at_once_of_two_lessons_is_kept(tmp_path):
    one, two = Workbook(tmp_path), Workbook(tmp_path)
    for workbook, lesson in zip((one, two), all_lessons(), strict=False):
        workbook.one_more_hint(lesson, lesson.exercises[0].name, 2)
    assert list(Workbook(tmp_path).n_hints.values()) == [1, 1]
    one.reset(all_lessons()[0])
    assert list(Workbook(tmp_path).n_hints.values()) == [1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["7", "--report", "--page"], "--report and --page do not go together; leave one of them out"),
        (["7", "--hint", "--notebook"], "--hint and --notebook do not go together; leave one of them out"),
        (["7", "windows", "--page"], "--page is not about one exercise; leave windows out"),
    ],
)
def test_no_wish_is_dropped_in_silence(here, arguments, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        CliRunner().invoke(app_for("learn"), ["learn", *arguments], catch_exceptions=False, standalone_mode=False)
    assert not (here / "my_lessons").exists()


@pytest.mark.parametrize(
    "arguments", [("99",), ("--reset", "99"), ("--hint",), ("--page",), ("--notebook",), ("--open",)]
)
def test_an_impossible_wish_is_refused_in_one_line(here, arguments):
    with pytest.raises(ConfigError, match=r"there is no lesson 99; choose one of|--\w+ needs the number of a lesson"):
        CliRunner().invoke(app_for("learn"), ["learn", *arguments], catch_exceptions=False, standalone_mode=False)


def test_anchors_are_those_of_github():
    assert anchor("Exercise: a product, backward") == "exercise-a-product-backward"
    assert anchor("2* Second derivatives – and more") == "2-second-derivatives--and-more"


def test_an_exercise_is_read_from_its_page(tmp_path):
    page = tmp_path / "04_x.md"
    text = "# 4 Title\n\n## Part\n\n### Exercise: one\n\n`first` · 5 minutes · ★★\n\nDo it.\n\n"
    text += "<details><summary>Hint</summary>\n\nThink.\n\n</details>\n\n## After\n"
    page.write_text(text, encoding="utf-8")
    (exercise,) = read_lesson(page).exercises
    assert (exercise.name, exercise.minutes, exercise.difficulty) == ("first", 5, 2)
    assert (exercise.section, exercise.hints) == ("exercise-one", ("Think.",))
