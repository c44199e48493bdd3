"""Every page of Markdown names files, tests and sections: all of them exist."""

import math
import random
import re
from pathlib import Path

import pytest
from drawings import equations
from markdown_it import MarkdownIt
from scripts.results import ROOT, pages

from pellucid.corpora.instructions import InstructionsCorpus, Task
from pellucid.corpora.instructions.corpus import is_held_out
from pellucid.languages.fables import Fables
from pellucid.languages.language import SPELLING
from pellucid.languages.symbols import END, SymbolLanguage

PAGES = pages()
EQUATIONS = ROOT / "docs/equations.md"
PAGES_OF_EQUATIONS = {
    "equations": [EQUATIONS],
    "post_training": [ROOT / "docs/post_training.md", *sorted((ROOT / "docs/post_training").glob("*.md"))],
}
FILE = re.compile(r"`((?:src|tests|configs|docs|scripts|lessons|data|checkpoints)/[\w/.-]*\w)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COMMAND = re.compile(r"(?:python |pellucid \w+ +|tests in )((?:scripts|lessons|configs|tests)/[\w/.-]*\w)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
LONG = [page for page in sorted((ROOT / "docs").glob("*.md")) if page.read_text("utf-8").count("\n") > 150]
MADE_BY_A_RUN = ("checkpoints/", "data/")  # but for their READMEs


def all_pages(test):
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))(test)


def all_pages_of_equations(test):
    texts = ["\n".join(map(text_of, pages)) for pages in PAGES_OF_EQUATIONS.values()]
    return pytest.mark.parametrize("text", texts, ids=PAGES_OF_EQUATIONS)(test)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path, level: str = "#+") -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(rf"^{level} (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@all_pages
def test_every_test_that_a_page_names_exists(page):
    for file, name in TEST.findall(text_of(page)):
        assert re.search(rf"^def {name}\(", text_of(ROOT / file), re.MULTILINE), f"{file}::{name}"


@all_pages
def test_every_file_that_a_page_names_exists(page):
    named = [name for pattern in (FILE, COMMAND) for name in pattern.findall(text_of(page))]
    assert [name for name in named if not name.startswith(MADE_BY_A_RUN) and not (ROOT / name).exists()] == []


@all_pages
def test_every_link_leads_to_a_file_and_a_section(page):
    broken = []
    for link in LINK.findall(re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)):
        file, _, section = link.partition("#")
        target = page.parent / file if file else page
        if "://" not in link and not (target.exists() and (not section or section in anchors(target))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", LONG, ids=lambda page: page.name)
def test_a_long_page_begins_with_what_is_in_it(page):
    first_lines = "\n".join(text_of(page).splitlines()[:30])
    assert anchors(page, "##") <= {link.partition("#")[2] for link in LINK.findall(first_lines)}


def test_no_page_has_more_sections_than_the_side_bar_of_the_site_shows_well():
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        on_site = page.parent.name in ("docs", "lessons") and page.name != "README.md"
        assert not on_site or len(re.findall("^## ", text, re.MULTILINE)) < 12, page


def test_the_pages_are_those_of_the_whole_repository():
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    experiments = {file.stem for file in (ROOT / "configs/experiments").glob("*.yaml")}
    reports = {f"docs/experiments/{name}/report.md" for name in experiments}
    assert {"README.md", "docs/speed.md", "docs/experiments/README.md", "data/README.md", *reports} <= names


def test_the_walk_through_the_code_knows_how_long_its_files_are():
    stations = re.findall(r"\]\(\.\./(src/[\w/]+\.py)\) \((\d+)\)", text_of(ROOT / "docs/code.md"))
    assert len(stations) > 25
    lines = {file: len(text_of(ROOT / file).splitlines()) for file, _ in stations}
    wrong = {file: lines[file] for file, told in stations if abs(int(told) - lines[file]) > 0.1 * lines[file]}
    assert wrong == {}, "docs/code.md should say so many lines"


def test_the_page_of_rooms_names_every_file():
    page = text_of(ROOT / "docs/rooms.md")
    files = (file for file in (ROOT / "src/pellucid").rglob("*.py") if not file.name.startswith("__"))
    folders = "openai", "fables", "grammar", "instructions", "architectures", "figures", "laws"  # named as a whole
    missing = [
        file.name for file in files if file.parent.name not in folders and not re.search(rf"\b{file.stem}\b", page)
    ]
    assert missing == []


def test_the_language_of_the_walk_through_the_code_is_whole():
    """A student copies it: it is a language, whose probabilities add up and whose samples are in it."""
    [code] = re.findall(r"```python\n(.*?)```", text_of(ROOT / "docs/code.md"), re.DOTALL)
    names = {"SymbolLanguage": SymbolLanguage, "SPELLING": SPELLING, "END": END}
    exec(code, names)
    coin = names["Coin"](stop=0.25)
    assert math.exp(coin.log_probability(" a b b")) == pytest.approx(0.75**2 * 0.25)
    assert math.isfinite(coin.log_probability(coin.write(random.Random(0))))
    assert coin.skills_of(" a b") == [1, 0, 1, 0]


@all_pages_of_equations
def test_the_equations_have_every_number_once(text):
    numbers = re.findall(r"^### P?(\d+)\. ", text, re.MULTILINE)
    assert sorted(map(int, numbers)) == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 15


@all_pages_of_equations
def test_every_equation_has_code_and_a_test(text):
    for equation in re.split(r"^##+ ", text, flags=re.MULTILINE):
        if re.match(r"P?\d", equation):
            assert "\n- Code: " in equation, equation
            assert "\n- `tests/" in equation, equation


SUBSCRIPT = re.compile(r"_(?:\{[^{}]*\}|\\[a-zA-Z]+|\w)")
SYMBOL = re.compile(r"\\mathcal\{\w\}|\\[a-zA-Z]+|[A-Za-z]'?")
GREEK = (
    "alpha beta gamma delta varepsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi ell Delta Sigma Phi"
)
GATE = r"\gate"  # i_t: the one symbol that its subscript tells from another, the index i
LETTERS = {GATE, *(f"\\{name}" for name in GREEK.split())}


def symbols_in(text: str) -> set[str]:
    """Of all formulas in it, without indices, numbers and words."""
    found = set()
    for formula in re.findall(r"\$\$\n(.+)\n\$\$|\$(?!\$)([^$\n]+)\$", text):
        bare = re.sub(r"\\(text|mathrm|begin|end)\{[^{}]*\}", " ", "".join(formula))
        bare = re.sub(r"(?<![\w\\])i_t\b", lambda _: GATE, bare)
        while (shorter := SUBSCRIPT.sub(" ", bare)) != bare:  # from the inner ones outwards
            bare = shorter
        found.update(
            symbol for symbol in SYMBOL.findall(bare) if symbol[0] != "\\" or symbol in LETTERS or "{" in symbol
        )
    return found - {"e"}


def legend_of(text: str) -> list[tuple[str, set[str]]]:
    """Each symbol with the equations it occurs in; none for one that may occur in all."""
    section = re.search(r"^## Symbols\n(.+?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    legend = []
    for row in re.findall(r"^\|(.+)\|$", section, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        where = set()
        for p, first, last in re.findall(r"(P?)(\d+)(?: to P(\d+))?", cells[2] if len(cells) == 3 else ""):
            where |= {f"{p}{number}" for number in range(int(first), int(last or first) + 1)}
        legend += [(symbol, where) for cell in (cells[0], *cells[3:4]) for symbol in sorted(symbols_in(cell))]
    return legend


@all_pages_of_equations
def test_every_symbol_has_one_meaning_and_the_legend_names_it(text):
    """In each equation; on the page of equations everywhere. A letter in a new place needs a row in the legend."""
    legend = legend_of(text)
    assert len(legend) > 15
    for number, equation in re.findall(r"^### (P?\d+)\. (.+?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        for symbol in symbols_in(equation):
            rows = [where for name, where in legend if name == symbol and (not where or number in where)]
            assert len(rows) == 1, f"equation {number}: {symbol} is in {len(rows)} rows of the legend"
    if text == text_of(EQUATIONS):
        names = [name for name, _ in legend]
        assert sorted(names) == sorted(set(names))


DEFINITION = re.compile(r"(?:\$|\\q?quad|^) ?([A-Z]|\\[a-z]+) (=|\\leftarrow) ([^$]+?)(?=\$|\\q?quad|\n)", re.MULTILINE)


def defined_anew(equation: str, special: set[str]) -> list[str]:
    """Letters with a meaning everywhere that an equation makes something else: by letters of its own, or twice."""
    found = [match for match in DEFINITION.findall(equation) if match[0] not in special]
    updated = {symbol for symbol, sign, _ in found if sign != "="}
    equal = [(symbol, formula) for symbol, sign, formula in found if sign == "="]
    return [symbol for symbol, formula in equal if symbol in updated or symbols_in(f"${formula.strip()}$") & special]


def test_no_equation_gives_a_letter_of_the_whole_page_another_meaning():
    text = text_of(EQUATIONS)
    special = {symbol for symbol, where in legend_of(text) if where}
    for equation in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        assert defined_anew(equation, special) == [], equation.partition("\n")[0]
    assert defined_anew("momentum $P \\leftarrow \\mu P$, with $P = 3 - G$, where $G = X X^\\top$", special) == [
        "P",
        "G",
    ]


@all_pages_of_equations
def test_every_function_that_a_page_of_equations_links_exists(text):
    links = re.findall(r"\[`(\w+)`\]\((?:\.\./)+(src/[\w/]+\.py)\)", text)
    assert len(links) > 20
    for name, file in links:
        assert re.search(rf"^ *(def|class) {name}\b", text_of(ROOT / file), re.MULTILINE), f"{file}: {name}"


def test_every_equation_that_a_docstring_of_post_training_names_is_on_its_page():
    named = {
        int(number)
        for file in (ROOT / "src").rglob("*.py")
        for group in re.findall(r"equations? (P\d+(?:(?:,| and| to) P\d+)*)", text_of(file))
        for number in re.findall(r"P(\d+)", group)
    }
    assert named <= set(range(1, 17))
    assert len(named) > 12


@all_pages
def test_github_shows_the_formulas_as_they_are_written(page):
    r"""Markdown comes before mathematics: it turns `\\,` into `,` and two underscores into italics."""
    source = text_of(page)
    inline = [token.children or [] for token in MarkdownIt().enable("table").parse(source) if token.type == "inline"]
    no_code = [[part for part in parts if part.type != "code_inline"] for parts in inline]
    shown = "\n\n".join("".join(part.content or "\n" for part in parts) for parts in no_code)
    displayed = re.findall(r"^\$\$\n(.+)\n\$\$$", shown, re.MULTILINE)
    rest = re.sub(r"^\$\$\n.+\n\$\$$", "", shown, flags=re.MULTILINE)
    # GitHub sees no formula where a letter or a hyphen touches the dollar sign.
    in_text = re.findall(r"(?<!\S)\$(\S|\S[^$\n]*\S)\$(?=[\s.,;:?!*)]|$)", rest)
    assert rest.count("$") == 2 * len(in_text)
    for formula in displayed + in_text:
        assert formula in source, f"Markdown changed {formula}"
        assert not re.search(r"\\(operatorname|newcommand|def|require)\b", formula), f"GitHub refuses {formula}"
        assert formula.count("{") == formula.count("}"), formula


def test_the_figures_of_the_equations_page_can_be_drawn():
    figures = re.findall(r"\]\(equations/(\w+)\.png\)", EQUATIONS.read_text("utf-8"))
    assert len(figures) == 6
    for name in figures:
        assert getattr(equations, name)().axes


def test_the_fables_page_has_the_entropy_and_the_number_of_fables():
    page, fables = (ROOT / "docs/fables.md").read_text("utf-8"), Fables(world_size=24)
    assert f"{fables.entropy_nats:.2f} nats ({fables.entropy_nats / math.log(2):.1f} bits) per fable" in page
    assert f"there are {fables.n_texts / 10**48:.1f} × 10⁴⁸ different fables" in page


def test_the_post_training_page_has_the_numbers_of_the_instructions():
    page, corpus = (ROOT / "docs/post_training.md").read_text("utf-8"), InstructionsCorpus(2, 24, 0, 0.5)
    assert f"an answer has {corpus.entropy_nats:.2f} nats on average" in page
    assert f"a fable that nobody asked for has {corpus.fables.entropy_nats:.2f}" in page
    pairs = [Task(animal, moral) for animal in corpus.animals for moral in corpus.morals]
    assert f"{sum(map(is_held_out, pairs))} of the {len(pairs)} pairs of an animal and a moral" in page


def test_the_map_from_the_notes_leaves_no_cell_empty():
    rows = [line for line in text_of(ROOT / "docs/map.md").splitlines() if re.match(r"\| (?!section|---)", line)]
    assert len(rows) > 40
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6, row
        for cell in cells:
            assert re.fullmatch(r"[^–].*|– \(.+\)", cell), f"{row}: a dash needs a reason"
