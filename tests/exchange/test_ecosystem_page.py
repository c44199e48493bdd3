"""The examples of docs/ecosystem.md on export and import run, in the order of the page."""

import re
import shlex
from pathlib import Path

import pellucid as api

PAGE = Path(__file__).parents[2] / "docs/ecosystem.md"


def test_what_the_page_shows_of_export_and_import_runs(workplace, pellucid, capfd):
    api.train("debug", steps=10, overrides=["corpus.size=200", "sample.max_new_tokens=1"])
    sections = PAGE.read_text("utf-8").partition("## Export to transformers")[2].partition("## Trackers")[0]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", sections, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["", "python", ""]
    for language, code in blocks:
        if language == "python":
            exec(compile(code, str(PAGE), "exec"), {})
            assert capfd.readouterr().out.startswith("Once")
        for line in [] if language else code.splitlines():
            result = pellucid(*shlex.split(line)[1:])
            assert result.exit_code == 0, result.stderr
    assert api.import_model("exported", "checkpoints/python").tokenizer.vocab_size > 256
