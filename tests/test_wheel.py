"""What `pip install dist/*.whl` brings: all that a run needs, configs included, and nothing of the checkout."""

import os
import subprocess
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

from pellucid import __version__

ROOT = Path(__file__).parents[1]


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
        assert {"pellucid/py.typed", "pellucid/configs/fables.yaml"} <= set(archive.namelist())
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert metadata["Author"] == "The Pellucid authors"


def test_an_installed_wheel_trains_and_generates_from_an_empty_folder(wheel: Path, tmp_path: Path):
    site, place = tmp_path / "site", tmp_path / "empty"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    place.mkdir()
    there = {"cwd": place, "env": {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}}
    assert Path(run(sys.executable, "-c", "import pellucid; print(pellucid.__file__)", **there)).is_relative_to(site)
    assert "experiments/positions  " in run(sys.executable, "-m", "pellucid", "configs", **there)
    tiny = ["corpus.size=40", "corpus.validation_fraction=0.25", "model.n_layers=1", "train.steps=5"]
    trained = run(sys.executable, "-m", "pellucid", "train", "debug", *tiny, **there)
    assert trained.startswith("validation: loss ")
    assert run(site / "bin/pellucid", "generate", "checkpoints/debug", "--max-new-tokens", "4", **there)
    assert sorted(path.name for path in place.iterdir()) == ["checkpoints", "data"]
