"""The documentation names files and tests: all of them exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page: Path):
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_or_links_exists(page: Path):
    text = page.read_text()
    named = re.findall(r"`((?:src|tests|configs|docs|scripts)/[\w/.-]+)`", text)
    linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in linked if not (page.parent / link).exists()]
    assert not missing


def test_the_equations_page_covers_all_twenty():
    numbers = re.findall(r"^\*\*(\d+)\. ", (ROOT / "docs/equations.md").read_text(), re.MULTILINE)
    assert numbers == [str(i) for i in range(1, 21)]
