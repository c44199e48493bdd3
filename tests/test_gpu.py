"""`make gpu`, rehearsed on a CPU: a part that fails, hangs or lacks something stops no other."""

import ast
import importlib
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from results import ROOT

TEST_LOG = """\
tests/a.py::test_that_passes[cuda-torch.bfloat16] PASSED [ 33%]
tests/a.py::test_that_fails[cuda] FAILED [ 66%]
tests/b.py::test_that_is_left_out SKIPPED (could not import 'fastapi') [100%]
"""


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("gpu")


@pytest.fixture
def on_a_gpu(gpu, monkeypatch, tmp_path):
    """`gpu.main` with these parts, as where a GPU is; its exit code, its report and its figures."""

    def main(parts, *arguments: str):
        monkeypatch.setattr(gpu, "no_gpu", lambda: None)
        monkeypatch.setattr(gpu, "LEAST_SECONDS", 0)
        monkeypatch.setattr(gpu, "commit_of_code", lambda: "0123456")
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--to", str(tmp_path / "out"), *arguments])
        code = gpu.main(lambda text, nanogpt: parts)
        files = tmp_path / "out"
        return code, (files / "report.md").read_text(), json.loads((files / "gpu.json").read_text())

    return main


def part(gpu, name: str, program: str, *, seconds: float = 60, needs=()):
    return gpu.Part(name, [sys.executable, "-S", "-c", program], seconds, needs)


RECORDS = """
import json, os, pathlib
file = pathlib.Path(os.environ["RESULTS"])
entry = {"machine": "a GPU", "commit": "", "figures": {"a": 1}}
file.write_text(json.dumps({**json.loads(file.read_text()), "measured_gpu": entry}))
"""


def test_a_part_that_fails_hangs_or_lacks_something_is_reported_and_the_next_runs(gpu, on_a_gpu):
    parts = [
        part(gpu, "tests", f"print({TEST_LOG!r}); raise SystemExit(1)"),
        part(gpu, "hangs", "import time; print('begun', flush=True); time.sleep(600)", seconds=0.2),
        part(gpu, "lacks", "", needs=["no_such_package", "torch"]),
        part(gpu, "records", RECORDS),
    ]
    code, report, figures = on_a_gpu(parts)
    assert code == 1
    assert "| tests | failed: exit code 1 |" in report
    assert "1 passed, 1 failed, 1 skipped" in report
    assert "- failed: tests/a.py::test_that_fails[cuda]" in report
    assert "| hangs | failed: not done in 0 s |" in report
    assert "| lacks | skipped: this Python lacks no_such_package | 0 |" in report
    assert "| records | done |" in report
    assert figures["measured_gpu"]["figures"] == {"a": 1}
    assert "## measured_gpu" in report


def test_only_what_is_named_runs_and_all_is_well_if_nothing_fails(gpu, on_a_gpu, monkeypatch, capsys):
    parts = [part(gpu, "one", "raise SystemExit(1)"), part(gpu, "two", "")]
    code, report, _ = on_a_gpu(parts, "--only", "two")
    assert code == 0
    assert "| one |" not in report
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--only", "three"])
    assert gpu.main(lambda text, nanogpt: parts) == 2
    assert "error: --only: no part three; choose among one, two" in capsys.readouterr().err


def test_no_part_begins_when_the_time_is_up(gpu, on_a_gpu, monkeypatch):
    code, report, _ = on_a_gpu([part(gpu, "late", "raise SystemExit(1)")], "--minutes", "-1")
    assert code == 0
    assert "| late | skipped: less than 0 s were left; --only late runs it | 0 |" in report


def test_what_a_part_has_started_ends_with_it(gpu, on_a_gpu, tmp_path):
    """The child holds a pipe open for as long as it lives."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    child = "import time; time.sleep(600)"
    program = f"""
import os, subprocess, sys
pipe = os.open({str(tmp_path / "pipe")!r}, os.O_WRONLY)
subprocess.Popen([sys.executable, "-S", "-c", {child!r}], pass_fds=[pipe])
"""
    assert on_a_gpu([part(gpu, "parent", program)])[0] == 0
    assert os.read(pipe, 1) == b""
    os.close(pipe)


def test_without_a_gpu_it_says_so_in_a_line_and_how_to_rehearse(gpu, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    assert gpu.main() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: gpu: PyTorch ")
    assert "pytest tests/test_gpu.py tests/on_device" in line
    monkeypatch.setattr(gpu, "missing", lambda packages: list(packages))
    assert gpu.main() == 2
    assert "this Python has no PyTorch" in capsys.readouterr().err


@pytest.mark.parametrize("hidden", ["typer", "transformers"])
def test_a_package_that_is_missing_is_named_and_the_rest_runs(gpu, on_a_gpu, monkeypatch, hidden):
    find = gpu.importlib.util.find_spec
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None if name == hidden else find(name))
    parts = [gpu.Part(each.name, [sys.executable, "-S", "-c", ""], 60, each.needs) for each in gpu.parts_of(None, None)]
    code, report, _ = on_a_gpu(parts)
    assert code == 0
    n_skipped = report.count(f"skipped: this Python lacks {hidden}")
    assert n_skipped == (1 if hidden == "transformers" else len(parts))


def test_the_speedrun_says_that_it_lacks_a_text(gpu):
    without, given = (gpu.parts_of(text, None) for text in (None, Path("text.txt")))
    assert [each.name for each in without if each.lacks] == ["speedrun"]
    assert [each.name for each in given if each.lacks] == []


def test_its_tests_can_be_collected_with_the_packages_that_it_asks_for(gpu):
    """Those of the page need a browser, and the others more packages of which such a machine may have none."""
    tests = next(each for each in gpu.parts_of(None, None) if each.name == "tests")
    files = [Path(file) for file in tests.command if file.endswith(".py")]
    assert {"test_meter.py", "test_precision.py", "test_one_rank.py"} <= {file.name for file in files}
    above = {folder for file in files for folder in file.parents}
    conftests = [file for file in (ROOT / "tests").rglob("conftest.py") if file.parent in above]
    local = {file.stem for file in (ROOT / "tests").rglob("*") if file.suffix in ("", ".py")} | {"pellucid"}
    for file in {*files, *conftests}:
        statements = ast.parse(file.read_text(encoding="utf-8")).body
        imported = {alias.name for each in statements if isinstance(each, ast.Import) for alias in each.names}
        imported |= {each.module for each in statements if isinstance(each, ast.ImportFrom)}
        roots = {name.partition(".")[0] for name in imported}
        assert roots - local - sys.stdlib_module_names <= set(tests.needs), file


def test_a_copy_without_git_has_no_commit(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr("results.ROOT", tmp_path)
    assert importlib.import_module("results").commit_of_code() == ""


def test_figures_that_came_back_are_taken_home_with_this_commit(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "commit_of_code", lambda: "1234567")
    entry = {"machine": "a GPU", "commit": "", "figures": {"a": 1}}
    (tmp_path / "gpu.json").write_text(json.dumps({"gpt2_gpu": entry}))
    (results := tmp_path / "results.json").write_text(json.dumps({"z": {}, "gpt2_gpu": {}}))
    assert gpu.take(tmp_path, results) == ["gpt2_gpu"]
    taken = json.loads(results.read_text())
    assert list(taken) == ["gpt2_gpu", "z"]
    assert taken["gpt2_gpu"]["figures"] == {"a": 1}
    assert taken["gpt2_gpu"]["commit"] == "1234567"
