"""What a system other than Linux lacks is not needed to train and to generate."""

import json
import subprocess
import sys
from pathlib import Path

POSIX_ONLY = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty")
COMMANDS = [
    ["train", "tiny.yaml", "train.steps=2"],
    ["generate", "checkpoints/tiny", "--prompt", "The", "--greedy"],
]
TRAIN_AND_GENERATE = f"""\
import json, sys, warnings
sys.modules.update(dict.fromkeys({POSIX_ONLY}))  # None: an import of it fails
warnings.simplefilter("ignore")  # filelock says that its locks are only files then
from pellucid.cli import app
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""


def test_training_and_generating_need_no_module_that_only_posix_has(workplace: Path):
    """Both in one process: to import PyTorch takes longer than either."""
    command = [sys.executable, "-c", TRAIN_AND_GENERATE, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=workplace, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trained, written = done.stdout.split("\n", 1)
    assert trained.startswith("validation: loss ")
    assert written.startswith("The")
