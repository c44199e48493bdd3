"""`pip install dist/*.whl` brings all that a run needs, configs included, and nothing of the checkout."""

import json
import os
import posixpath
import re
import subprocess
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

from pellucid import __version__

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(((?:figures|\.\./docs)/[^)#]+)")
RUN_ALL = """
import json, sys
from pellucid.cli import app_for
for command in json.loads(sys.argv[1]):  # in one process: to import PyTorch takes longer than either
    app_for(command[0])(command, standalone_mode=False)
    print("that was", command[0])  # a text may hold a line break, so its lines tell nothing
"""


def run(*command: object, **options) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    offline = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    run(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


def test_the_wheel_tells_who_made_it_for_what(wheel: Path):
    with ZipFile(wheel) as archive:
        name = f"pellucid-{__version__}.dist-info/METADATA"
        metadata = message_from_string(archive.read(name).decode())
        files = ("py.typed", "configs/fables.yaml", "configs/experiments/norms.yaml", "configs/experiments/norms.py")
        assert {f"pellucid/{file}" for file in files} <= set(archive.namelist())
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert metadata["Author"] == "The Pellucid authors"


def test_a_lesson_of_the_wheel_has_its_pictures_and_the_pages_that_it_links_to(wheel: Path):
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        pages = [name for name in names if re.fullmatch(r"pellucid/lessons/\d\d_\w+\.md", name)]
        links = {link for page in pages for link in LINK.findall(archive.read(page).decode())}
    assert len(pages) == len(list((ROOT / "lessons").glob("[0-9]*.md"))) >= 14
    assert len(links) > 60
    assert not {link for link in links if posixpath.normpath(f"pellucid/lessons/{link}") not in names}


def test_an_installed_wheel_trains_and_generates_from_an_empty_folder(wheel: Path, tmp_path: Path):
    site, place = tmp_path / "site", tmp_path / "empty"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", site]
    run(sys.executable, "-m", "pip", *install, wheel)
    place.mkdir()
    there = {"cwd": place, "env": {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}}
    assert Path(run(sys.executable, "-c", "import pellucid; print(pellucid.__file__)", **there)).is_relative_to(site)
    for command in ([sys.executable, "-m", "pellucid"], [site / "bin/pellucid"]):
        assert "experiments/positions  " in run(*command, "configs", **there)
    tiny = ["corpus.size=40", "corpus.validation_fraction=0.25", "model.n_layers=1", "train.steps=5"]
    commands = [["train", "debug", *tiny], ["generate", "checkpoints/debug", "--max-new-tokens", "4"]]
    commands += [["generate", "demo", "--seed", "1", "--max-new-tokens", "4"]]
    printed = run(sys.executable, "-c", RUN_ALL, json.dumps(commands), **there)
    trained, written, shipped, rest = re.split("that was .*\n", printed)
    assert trained.startswith("validation: loss ")
    assert (written.endswith("\n"), shipped.startswith("Once upon a time"), rest) == (True, True, "")
    assert ": not written yet" in run(sys.executable, "-m", "pellucid", "learn", "1", **there)
    assert "start with `cd course`" in run(sys.executable, "-m", "pellucid", "learn", "--new", "course", **there)
    assert sorted(path.name for path in place.iterdir()) == ["checkpoints", "course", "data", "my_lessons"]
