"""What surrounds the code: one version, a licence, a citation that tools can read, docstrings that say something."""

import ast
import re
from pathlib import Path

import yaml

from pellucid import __version__

ROOT = Path(__file__).parents[1]


def test_the_citation_and_the_changelog_have_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    releases = re.findall(r"^## \[(\d.*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert citation["version"] == __version__
    assert releases[0] == __version__


def test_the_citation_has_what_its_format_demands():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["authors"] == [{"name": "The Pellucid authors"}]


def test_the_licence_is_mit_by_the_authors_of_the_citation():
    licence = (ROOT / "LICENSE").read_text("utf-8")
    assert licence.startswith("MIT License\n\nCopyright (c) 2026 The Pellucid authors\n")
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["license"] == "MIT"


def test_no_docstring_begins_in_the_middle_of_a_sentence():
    """A reader who lands on a function has not read the one above: "The same, but …" tells them nothing."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, documented):
                first_words = (ast.get_docstring(node) or "").split(".")[0]
                assert not re.match(r"(Of|Those|That|The same|What|Whatever|Whoever)\b", first_words), (
                    f"{file}: {first_words}"
                )
