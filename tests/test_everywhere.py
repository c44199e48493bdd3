"""`make everywhere`: what fails in a row is named, and a row that is done stands."""

import sys
from itertools import combinations, compress

import pytest
from scripts import everywhere

TINY_SUITE = """
import os
import pytest

def test_that_holds():
    assert os.environ["ATEN_CPU_CAPABILITY"] == "default"

@pytest.mark.parametrize("threads", ["1", "4"])
def test_of_threads(threads):
    assert os.environ["OMP_NUM_THREADS"] == threads

def test_that_is_left_out():
    pytest.skip("no reason")
"""
SETTINGS = "| 6 | default | 1 | 2 | busy |"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a row of the tiny suite: its exit code, and what is printed."""
    (tmp_path / "test_tiny.py").write_text(TINY_SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(everywhere, "ROOT", tmp_path)
    monkeypatch.setattr(everywhere, "commit", lambda: "0123456")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["everywhere.py", *arguments])
        with pytest.raises(SystemExit) as ended:
            everywhere.main()
        return ended.value.code, capsys.readouterr().out

    return run


def test_a_row_counts_its_tests_and_names_those_that_fail(run, monkeypatch):
    exit_code, table = run("--only", "6", "-n0")
    assert f"{SETTINGS} 2 | 1 | 1 |" in table
    assert table.endswith("\nrow 6: test_tiny.py::test_of_threads[4]\n")
    assert exit_code == 1
    # Without arguments, what this commit has done already is read.
    monkeypatch.setattr(everywhere, "ROWS", {6: everywhere.ROWS[6]})
    monkeypatch.setattr(everywhere, "run", None)
    assert run() == (exit_code, table)


def test_kernels_that_this_cpu_lacks_are_left_out_and_named(run, monkeypatch):
    monkeypatch.setattr("torch.cpu._is_avx512_supported", lambda: False)
    exit_code, table = run("--only", "1")
    assert "| 1 | avx512 | 1 | 1 |  | this CPU has none | | | |" in table
    assert exit_code == 0


def test_tests_that_do_not_even_start_are_a_failure(run, monkeypatch):
    monkeypatch.setattr(everywhere, "run", lambda *row_and_file: None)  # pytest has written nothing
    exit_code, table = run("--only", "6")
    assert f"{SETTINGS} 0 | 1 | 0 |" in table
    assert "row 6: pytest broke off; see " in table
    assert exit_code == 1


def test_each_setting_comes_alone_and_beside_and_no_two_rows_share_two():
    rows = [(row.kernels, f"{row.threads} threads", f"order {row.order}") for row in everywhere.ROWS.values()]
    assert len({pair for row in rows for pair in combinations(row, 2)}) == 3 * len(rows)
    for is_beside in (False, True):
        beside = [row.is_beside == is_beside for row in everywhere.ROWS.values()]
        settings = {each for row in compress(rows, beside) for each in row}
        assert len(settings) == 3 + 3 + 3
