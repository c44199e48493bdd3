"""Adds to the pages of docs/ what else is in the site; MkDocs calls these functions (mkdocs.org, "Hooks").

The README becomes the first page, with pictures that lead to the Model Microscope of the shipped demo and to lessons,
which follow, with their figures and live parts. Files outside docs/ that a page links to, such as code and configs,
become pages too. Formulas become MathML.
"""

import posixpath
import re
import subprocess
import sys
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path

import yaml
from latex2mathml.converter import convert
from live_parts import STYLE as STYLE_OF_LIVE_PARTS
from live_parts import live_script
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"(^ *(?:```|~~~).*?^ *(?:```|~~~)|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
LESSON = re.compile(r"^\| \[(.+?)\]\((\d\d_\w+\.md)\) \| (.+?) \|", re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".js": "javascript", ".json": "json", ".toml": "toml"}
SEARCH_WORKER = ROOT / "scripts/site_search.js"
MICROSCOPE, TOUR, LAB = "microscope_of_the_demo.html", "tour_of_the_demo.html", "lab.html"
STYLE = """\
body:has(.microscope) .md-grid { max-width: 72rem; }
:where(article:has(.microscope)) > :is(p, blockquote, div.highlight) { max-width: 44rem; }
article:has(.microscope) h1 { margin-bottom: 0.5rem; }
.microscope .md-button { margin: 0 0.4rem 0.4rem 0; }
.lab { width: 100%; height: 92vh; border: 1px solid #8888; border-radius: 0.2rem; }
.microscope img { width: 100%; border: 1px solid #8888; border-radius: 0.2rem; }
.md-typeset ol.lessons { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; }
.md-typeset ol.lessons > li { list-style: none; margin: 0; font-size: 0.7rem; }
.lessons a { display: block; font-weight: bold; }
.lessons img { display: block; width: 100%; height: 7rem; object-fit: contain; background: #fff; }
.md-nav--secondary .md-nav__item .md-nav__item { display: none; }
math[display="block"] { overflow-x: auto; max-width: 100%; padding: 0.3rem 0; }
.md-typeset details { font-size: 0.75rem; }
.md-typeset thead:not(:has(th:not(:empty))) { display: none; }
.language-python + .language-text { margin-top: -0.5em; border-left: 3px solid var(--md-accent-fg-color); }
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The lessons come first in the navigation, in their order, and in groups: a list stays short."""
    names = [name for name, *_ in listed_lessons()]
    groups = [
        {f"Lessons {int(group[0][:2])} to {int(group[-1][:2])}": [f"lessons/{name}" for name in group]}
        for group in (names[:6], names[6:11], names[11:])
    ]
    assert config.nav
    config.nav.insert(1, {"Lessons": ["lessons/README.md", *groups]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the README, the lessons, the files outside docs/ that pages link to, the style, and the search's worker."""
    lessons = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "lessons").glob("*.md"))]
    pages = ["README.md", *lessons, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    added = {place_of(path): as_page(path) for path in sorted(set().union(*map(linked_files, pages)))}
    added |= {lesson: lesson_page(lesson) for lesson in lessons}
    added |= {"index.md": first_page(), "iframe-worker.js": SEARCH_WORKER.read_text("utf-8")}
    added |= {"site.css": STYLE + STYLE_OF_LIVE_PARTS.read_text("utf-8")}
    for place, content in added.items():
        files.append(File.generated(config, place, content=content))
    for figure in sorted((ROOT / "lessons/figures").glob("*.png")):
        files.append(File(figure.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, use_directory_urls=False))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where the files stand in the site."""
    return markdown if page.file.generated_by else relinked(markdown, f"docs/{page.file.src_uri}")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, which browsers show without a script."""

    def mathml(formula: re.Match[str]) -> str:
        tex = unescape(formula[2]).strip().replace(r"\cr", r"\\").replace("{aligned}", "{align*}")
        return convert(tex, display="block" if formula[1] == "div" else "inline")

    return FORMULA.sub(mathml, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Pages with live parts get the script that brings them to life."""
    return output.replace("</body>", f"{live_script()}</body>") if 'class="live"' in output else output


def on_post_build(config: MkDocsConfig) -> None:
    """Writes the page that trains, and exports that of the shipped demo, also as it opens with the shortest tour."""
    subprocess.run([sys.executable, "-m", "pellucid", "lab", Path(config.site_dir) / LAB], check=True)
    for name, tour in ((MICROSCOPE, []), (TOUR, ["--tour", shortest_tour()[0]])):
        export = ["serve", "demo", "--export", Path(config.site_dir) / name, *tour]
        subprocess.run([sys.executable, "-m", "pellucid", *export], check=True)


def first_page() -> str:
    """The README; after its first paragraph come the microscope, the floor and the lessons."""
    readme = re.sub("^<img .*\n\n", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    title, first, rest = readme.replace("\\\n", "  \n").split("\n\n", 2)
    parts = [title, first, microscope_and_floor(), "## Lessons", lesson_cards(), "## Two commands", rest]
    return "---\nhide: [navigation, toc]\n---\n\n" + relinked("\n\n".join(parts), "README.md")


def microscope_and_floor() -> str:
    """The first screen of the microscope, which leads to it and to its shortest tour; and what a floor is."""
    _, title, minutes = shortest_tour()
    return f"""\
<div class="microscope" markdown="1">
This is the demo that comes with Pellucid, under the Model Microscope. It runs in your browser, and sends nothing.

<a class="md-button md-button--primary" href="{TOUR}">{title} · {minutes} minutes</a>
<a class="md-button" href="{MICROSCOPE}">Open it alone</a>

<a href="{MICROSCOPE}"><img src="microscope.png" alt="The first screen of the Model Microscope"></a>
</div>

## What is a floor?

![What each word of a fable costs a table of pairs and the demo: the black part is the floor](docs/floor.png)

What the next word of a story costs. Nobody can guess a name when it comes first: that is the floor. When Jasper comes
again, there is nothing to guess. The demo remembers him; a table that knows only the word before does not.
[How the floor is computed](docs/fables.md#the-floor)

## Train one, here and now

<iframe class="lab" src="{LAB}" loading="lazy" title="A page in which you train a small language model"></iframe>

Nothing is installed, and nothing is sent. [What it does](docs/lab.md), and <a href="{LAB}">the page alone</a>."""


def shortest_tour() -> tuple[str, str, int]:
    """The name, title and minutes of the shortest shipped tour that the demo alone can play."""
    files = {file.stem: yaml.safe_load(file.read_text("utf-8")) for file in (ROOT / "configs/tours").glob("*.yaml")}
    minutes, name = min((tour["minutes"], name) for name, tour in files.items() if len(tour["runs"]) == 1)
    return name, files[name]["title"], minutes


def listed_lessons() -> list[tuple[str, str, str]]:
    """The file, the title and what one does of each lesson, as their own first page lists them."""
    listed = LESSON.findall((ROOT / "lessons/README.md").read_text(encoding="utf-8"))
    return [(name, title, does) for title, name, does in listed]


def lesson_cards() -> str:
    """The lessons in their order, each with its first picture."""
    cards = []
    for name, title, does in listed_lessons():
        [picture, *_] = re.findall(r"\]\((figures/\w+\.png)\)", (ROOT / "lessons" / name).read_text(encoding="utf-8"))
        does = re.sub("`(.+?)`", r"<code>\1</code>", escape(does))
        image = f'<img src="lessons/{picture}" alt="" loading="lazy">'
        cards.append(f'<li><a href="lessons/{Path(name).stem}.html">{image}{escape(title)}</a>{does}</li>')
    return f'<ol class="lessons">{"".join(cards)}</ol>'


def lesson_page(lesson: str) -> str:
    """A lesson, whose folded hints are Markdown inside, as on GitHub."""
    text = relinked((ROOT / lesson).read_text(encoding="utf-8"), lesson)
    return outside_code(lambda text: re.sub("^<details>", '<details markdown="1">', text, flags=re.MULTILINE), text)


def outside_code(change: Callable[[str], str], markdown: str) -> str:
    """Changes a text, but not its code: `walk(f)[1](r)` is no link."""
    parts = CODE.split(markdown)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def target_of(link: str, page: str) -> str:
    """The file that a link of a page leads to; both are paths from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def linked_files(page: str) -> set[str]:
    """The files that a page links to and that have no place in the site of their own."""
    links = LINK.finditer((ROOT / page).read_text(encoding="utf-8"))
    targets = {target_of(link[1], page) for link in links}
    return {target for target in targets if place_of(target).startswith("files/")}


def place_of(path: str) -> str:
    """The place of a file of the repository in the site. For a folder it is the page of what is where."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if re.fullmatch(r"lessons/(\w+\.md|figures/\w+\.png)", path):
        return path
    return f"files/{path.lstrip('.')}.md" if (ROOT / path).is_file() else "rooms.md"  # MkDocs leaves out hidden folders


def relinked(markdown: str, page: str) -> str:
    """The text of a page of the repository, its links changed to those of the site."""
    folder = posixpath.dirname(place_of(page))

    def relink(link: re.Match[str]) -> str:
        return posixpath.relpath(place_of(target_of(link[1], page)), folder or ".") + (link[2] or "")

    return outside_code(lambda text: LINK.sub(relink, text), markdown)


def as_page(path: str) -> str:
    """A file of the repository as a page, which the search leaves out."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return outside_code(lambda text: LINK.sub("#", text), text)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n~~~~{language}\n{text}\n~~~~\n"
