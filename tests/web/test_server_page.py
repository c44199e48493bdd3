"""The commands and the code of docs/server.md, against a server on another port."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from serving import app_of, served

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_commands_and_the_code_of_the_page_run(fables_run: Path, capsys: pytest.CaptureFixture[str]):
    with served(app_of(fables_run)) as (_, port):
        namespace: dict[str, object] = {}
        for code in blocks("python"):
            program = compile(code.replace("8000", str(port)), "docs/server.md", "exec")
            if "instructions_grpo" not in code:  # this run has learned from no conversations
                exec(program, namespace)
        assert len(capsys.readouterr().out) > 100
        namespace["client"].close()  # type: ignore[attr-defined]
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        commands = [block.rstrip().replace("8000", str(port)) + " -sS --noproxy '*'" for block in blocks("sh")]
        run = {"shell": True, "check": True, "capture_output": True, "text": True}
        models, whole, streamed = (subprocess.run(command, **run).stdout for command in commands)
        assert json.loads(models)["data"][0]["id"] == "fables"
        assert json.loads(whole)["choices"][0]["text"]
        assert streamed.endswith("data: [DONE]\n\n")
