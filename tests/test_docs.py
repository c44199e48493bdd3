"""The documentation names files and tests: all of them exist."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
EQUATIONS = ROOT / "docs/equations.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


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


def test_the_equations_page_has_every_number_once():
    numbers = re.findall(r"^### (\d+)\. ", EQUATIONS.read_text("utf-8"), re.MULTILINE)
    assert sorted(map(int, numbers)) == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 20


def test_every_equation_has_code_and_a_test():
    for equation in re.split(r"^##+ ", EQUATIONS.read_text("utf-8"), flags=re.MULTILINE):
        if re.match(r"\d", equation):
            assert "\n- Code: " in equation, equation
            assert "\n- Test" in equation, equation


def test_every_function_that_the_equations_page_links_exists():
    links = re.findall(r"\[`(\w+)`\]\(\.\./(src/[\w/]+\.py)\)", EQUATIONS.read_text("utf-8"))
    assert len(links) > 20
    for name, file in links:
        assert re.search(rf"^ *(def|class) {name}\b", (ROOT / file).read_text("utf-8"), re.MULTILINE), f"{file}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_github_shows_the_formulas_as_they_are_written(page: Path):
    r"""Markdown comes before mathematics: it turns `\\,` into `,` and two underscores into italics."""
    source = page.read_text("utf-8")
    inline = [token.children or [] for token in MarkdownIt().enable("table").parse(source) if token.type == "inline"]
    no_code = [[part for part in parts if part.type != "code_inline"] for parts in inline]
    shown = "\n\n".join("".join(part.content or "\n" for part in parts) for parts in no_code)
    displayed = re.findall(r"^\$\$\n(.+)\n\$\$$", shown, re.MULTILINE)
    rest = re.sub(r"^\$\$\n.+\n\$\$$", "", shown, flags=re.MULTILINE)
    # GitHub sees no formula where a letter or a hyphen touches the dollar sign.
    in_text = re.findall(r"(?<!\S)\$(\S|\S[^$\n]*\S)\$(?=[\s.,;:)]|$)", rest)
    assert rest.count("$") == 2 * len(in_text)
    for formula in displayed + in_text:
        assert formula in source, f"Markdown changed {formula}"
        assert not re.search(r"\\(operatorname|newcommand|def|require)\b", formula), f"GitHub refuses {formula}"
        assert formula.count("{") == formula.count("}"), formula
