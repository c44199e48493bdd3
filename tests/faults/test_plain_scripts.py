"""F35: a plain script, without `if __name__ == "__main__"`, prepares, trains, evaluates and explains."""

import os
import subprocess
import sys
from pathlib import Path

from processes import HANGS_AFTER_SECONDS
from tiny_run import TINY_RUN, VERSES

SCRIPT = """\
from pathlib import Path
import shutil
with open("started", "a") as file:
    file.write("once\\n")

import pellucid
run = pellucid.train("tiny.yaml", "run", steps=2, processes=2)
shutil.rmtree("data")
run = pellucid.load("run")
print(run.evaluate().loss, run.explain("The fox"))
"""


def test_f35_a_plain_script_starts_processes_that_do_not_run_it_again(tmp_path: Path):
    (tmp_path / "corpus.txt").write_text(VERSES)
    (tmp_path / "tiny.yaml").write_text(TINY_RUN)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "started").read_text() == "once\n"
