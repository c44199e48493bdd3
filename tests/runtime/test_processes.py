"""Processes that Pellucid starts run its own modules and Python's, not the user's of the same name."""

import subprocess
from pathlib import Path

from pellucid.runtime.processes import command_of


def test_a_file_of_the_user_does_not_take_the_place_of_pythons_module(tmp_path: Path):
    for name in ("datetime", "locale", "runpy", "calendar"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')")
    done = subprocess.run(command_of("calendar", "2024", "2"), cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["February", "2024"]), done.stderr
