"""What a system other than Linux lacks is not needed to train and to generate."""

import subprocess
import sys
from pathlib import Path

POSIX_ONLY = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty")
TRAIN_AND_GENERATE = f"""\
import sys, warnings
sys.modules.update(dict.fromkeys({POSIX_ONLY}))  # None: an import of it fails
warnings.simplefilter("ignore")  # filelock says that its locks are only files then
from pellucid.cli import main
main()
"""


def without_posix(place: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", TRAIN_AND_GENERATE, *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_and_generating_need_no_module_that_only_posix_has(workplace: Path):
    assert without_posix(workplace, "train", "tiny.yaml", "train.steps=2").startswith("validation: loss ")
    assert without_posix(workplace, "generate", "checkpoints/tiny", "--prompt", "The", "--greedy").startswith("The")
