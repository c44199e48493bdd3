"""The streams of a command, open or not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OPEN = """
import sys
from pellucid.cli.terminal import open_closed_streams
open_closed_streams()
with open(sys.argv[1], "w") as file:
    print("out"), print("err", file=sys.stderr), sys.stdin.read()
    file.write(str(file.fileno()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such numbers of streams")
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path, closed: tuple[int, ...]):
    def close() -> None:
        for number in closed:
            os.close(number)

    done = subprocess.run([sys.executable, "-c", OPEN, str(tmp_path / "file")], preexec_fn=close, stdin=0)
    assert done.returncode == 0
    assert int((tmp_path / "file").read_text()) > 2


def test_the_backend_that_a_notebook_hands_down_is_not_used(pellucid, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    assert pellucid("configs").exit_code == 0
    assert os.environ["MPLBACKEND"] == "agg"


@pytest.mark.parametrize("command", ["configs", "--help", "learn 0 --page"])
def test_who_has_read_enough_ends_a_command_without_a_word(tmp_path: Path, command: str):
    """As `pellucid … | head` does, whether the command prints itself or a process of its own does."""
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [sys.executable, "-m", "pellucid", *command.split()]
    done = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
