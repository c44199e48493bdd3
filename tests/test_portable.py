"""What a system other than Linux lacks is not needed to train and to generate."""

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pellucid.checkpoint.step_directory import read_state
from pellucid.cli import COMMANDS as ALL_COMMANDS
from pellucid.config.shipped import DEMO, find_config

ROOT = Path(__file__).parents[1]
POSIX_ONLY = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty")
COMMANDS = [
    ["train", "tiny.yaml", "train.steps=2"],
    ["generate", "checkpoints/tiny", "--prompt", "The", "--greedy"],
]
TRAIN_AND_GENERATE = f"""\
import json, sys, warnings
sys.modules.update(dict.fromkeys({POSIX_ONLY}))  # None: an import of it fails
warnings.simplefilter("ignore")  # filelock says that its locks are only files then
from pellucid.cli import app_for
for command in json.loads(sys.argv[1]):
    app_for(command[0])(command, standalone_mode=False)
"""


def test_training_and_generating_need_no_module_that_only_posix_has(workplace: Path):
    """Both in one process: to import PyTorch takes longer than either."""
    command = [sys.executable, "-c", TRAIN_AND_GENERATE, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=workplace, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trained, written = done.stdout.split("\n", 1)
    assert trained.startswith("validation: loss ")
    assert written.startswith("The")


def git(folder: Path, *arguments: str) -> str:
    """What git prints, without a user's own settings. Skips the test where there is no git, or no clone."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    elsewhere = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # set inside a hook
    settings = {name: value for name, value in os.environ.items() if name not in elsewhere}
    settings |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-c", f"safe.directory={folder}", *arguments], cwd=folder, env=settings, capture_output=True, text=True
    )
    if done.returncode and "not a git repository" in done.stderr:
        pytest.skip("needs a clone of the repository")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_is_intact_in_a_clone_whose_lines_end_as_on_windows(tmp_path: Path):
    """Git for Windows proposes core.autocrlf=true; one changed byte, and the demo's manifest calls it damaged."""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "core.autocrlf", "true")
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    demo = tmp_path / "src/pellucid/demo"
    shutil.copytree(DEMO, demo)
    script = tmp_path / "setup.sh"
    script.write_bytes(b"#!/bin/sh\nexit 0\n")
    git(tmp_path, "-c", "core.safecrlf=false", "add", ".")
    shutil.rmtree(demo)
    script.unlink()
    git(tmp_path, "checkout-index", "--all")
    for folder in demo.glob("step-*"):
        read_state(folder)
    for name in ("config.yaml", "metrics.jsonl"):
        assert (demo / name).read_bytes() == (DEMO / name).read_bytes()
    assert script.read_bytes() == b"#!/bin/sh\nexit 0\n", "a shell takes a carriage return for a part of its name"


def test_no_text_of_the_repository_has_lines_that_end_in_crlf():
    crlf = [line for line in git(ROOT, "ls-files", "--eol").splitlines() if "crlf" in line or "/mixed" in line]
    assert crlf == []


def test_the_workflows_for_other_systems_type_what_exists():
    """They run on GitHub alone, so here they are only read."""
    [file] = (ROOT / ".github/workflows").glob("*.yml")
    workflow = yaml.safe_load(file.read_text("utf-8"))
    [job] = workflow["jobs"].values()
    assert set(job["strategy"]["matrix"]["os"]) == {"windows-latest", "macos-latest"}
    typed = [shlex.split(step["run"], comments=True) for step in job["steps"] if "run" in step]
    assert {words[1] for words in typed if words[0] == "pellucid"} == {"verify", "generate", "train", "evaluate"}
    for words in typed:
        assert words[0] != "pellucid" or words[1] in ALL_COMMANDS
        assert words[:2] != ["pellucid", "train"] or find_config(Path(words[2])).is_file()
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))


def test_every_store_says_whether_it_needs_libuv_which_pytorch_lacks_on_windows():
    calls = [
        node
        for file in (ROOT / "src").rglob("*.py")
        if "TCPStore" in (source := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("TCPStore")
    ]
    assert len(calls) == 2
    assert all("use_libuv" in [keyword.arg for keyword in call.keywords] for call in calls)
