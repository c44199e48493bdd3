"""`make clean` takes what Pellucid wrote and nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

from pellucid.experiments.plan import plan_experiment
from pellucid.experiments.worker import make_run

ROOT = Path(__file__).parents[1]
EXPERIMENT = """\
name: widths
question: Which?
base: tiny.yaml
set: {train.steps: 2, evaluation.every_steps: 2}
grid: {model.d_model: [8, 16]}
figures: [{type: bars, title: Loss, y: val_loss}]
"""


def make_clean(place: Path) -> set[str]:
    """What is left of data and checkpoints in a checkout with these two."""
    (place / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/clean.py", place / "scripts")
    shutil.copy(ROOT / "Makefile", place)
    for folder in ("src", "tests"):
        (place / folder).mkdir(exist_ok=True)
    subprocess.run(["make", "clean", f"PYTHON={sys.executable}"], cwd=place, check=True, capture_output=True)
    found = [path for name in ("data", "checkpoints") for path in (place / name).rglob("*")]
    return {path.relative_to(place).as_posix() for path in found if not path.is_dir() or path.is_symlink()}


def test_make_clean_takes_all_that_pellucid_wrote_and_leaves_the_rest(workplace: Path, pellucid):
    assert pellucid("train", "tiny.yaml", "train.steps=5").exit_code == 0
    (workplace / "widths.yaml").write_text(EXPERIMENT)
    plan = plan_experiment(Path("widths.yaml"))
    folder = Path("checkpoints/experiments/widths")
    for run in plan.runs:  # in this process: to start one for each takes seconds
        make_run(run, run.directory(folder), Path("data"))
    assert pellucid("experiment", "widths.yaml").exit_code == 0
    (workplace / "checkpoints/tiny/.tmp-step-00000009").mkdir()  # of a process that was killed
    (workplace / "data/downloads").mkdir()
    (workplace / "data/downloads/0123456789ab-shakespeare.txt.part").write_text("To be")
    (workplace / "data/.tmp-text-0123456789ab").mkdir()
    mine = {
        *("data/README.md", "data/my_text.txt", "data/texts/a.bin", "data/downloads/mine.txt", "data/tokenizer.json"),
        "data/novel-0123456789ab/manifest.json",  # a name like that of prepared data, but no SHA256SUMS
        *("checkpoints/notes.md", "checkpoints/tiny/notes.md", "checkpoints/other/config.yaml"),
        *("checkpoints/tiny/wandb/mine.txt", "checkpoints/tiny/step-00000003/notes.md"),
        *("checkpoints/other/step-00000001/model.safetensors", "checkpoints/loss.png"),
    }
    for name in mine:
        (workplace / name).parent.mkdir(parents=True, exist_ok=True)
        (workplace / name).write_text("mine")
    (workplace / "data/link").symlink_to(workplace / "checkpoints")
    assert make_clean(workplace) == {*mine, "data/link"}
    assert not (workplace / "checkpoints/experiments").exists()


def test_make_clean_leaves_a_report_to_which_somebody_has_added_a_conclusion(tmp_path: Path):
    folder = tmp_path / "checkpoints/experiments/mine"
    folder.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for name in (".lock", "results.csv", "loss.png"):
        (folder / name).write_text("")
    (folder / "report.md").write_text("# Mine\n\n## What it shows\n\nThis.\n")
    assert make_clean(tmp_path) == {
        f"checkpoints/experiments/mine/{name}" for name in ("report.md", "results.csv", "loss.png")
    }
