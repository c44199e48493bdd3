"""What `make site` adds to the pages of docs/; MkDocs calls these functions (mkdocs.org, "Hooks").

The README becomes the first page, with the Model Microscope of the shipped demo in it. Files outside docs/ that a page
links to, such as code and configs, become pages too. Formulas become MathML.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".js": "javascript", ".json": "json", ".toml": "toml"}
SEARCH_WORKER = ROOT / "scripts/site_search.js"
MICROSCOPE = "microscope_of_the_demo.html"
FRAME = f'<iframe class="microscope" src="{MICROSCOPE}" title="The Model Microscope" loading="lazy"></iframe>'
STYLE = """\
.microscope { width: 100%; height: 44rem; border: 1px solid #8888; }
math[display="block"] { overflow-x: auto; max-width: 100%; padding: 0.3rem 0; }
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the README, the files outside docs/ that pages link to, the style, and the worker of the search."""
    pages = ["README.md", *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    added = {place_of(path): as_page(path) for path in sorted(set().union(*map(linked_files, pages)))}
    added |= {"index.md": first_page(), "site.css": STYLE, "iframe-worker.js": SEARCH_WORKER.read_text("utf-8")}
    for place, content in added.items():
        files.append(File.generated(config, place, content=content))
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


def on_post_build(config: MkDocsConfig) -> None:
    """Exports the page of the shipped demo into the site."""
    target = Path(config.site_dir) / MICROSCOPE
    subprocess.run([sys.executable, "-m", "pellucid", "serve", "demo", "--export", target], check=True)


def first_page() -> str:
    """The README, with the Model Microscope before its first picture."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace('<img src="docs/', '<img src="')
    before, picture, after = readme.partition("![")
    return relinked(f"{before}{FRAME}\n\n{picture}{after}", "README.md")


def target_of(link: str, page: str) -> str:
    """What a link of a page leads to; both are paths from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def linked_files(page: str) -> set[str]:
    """The files outside docs/ that a page links to."""
    links = LINK.finditer((ROOT / page).read_text(encoding="utf-8"))
    targets = {target_of(link[1], page) for link in links} - {"README.md"}
    return {target for target in targets if not target.startswith("docs/") and (ROOT / target).is_file()}


def place_of(path: str) -> str:
    """The place in the site of a file of the repository. A folder has none: the walk through the code tells of it."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}.md" if (ROOT / path).is_file() else "code.md"


def relinked(markdown: str, page: str) -> str:
    """The text of a page of the repository, its links changed to those of the site."""
    folder = posixpath.dirname(place_of(page))

    def relink(link: re.Match[str]) -> str:
        return posixpath.relpath(place_of(target_of(link[1], page)), folder or ".") + (link[2] or "")

    return LINK.sub(relink, markdown)


def as_page(path: str) -> str:
    """A file of the repository as a page, which the search leaves out."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return LINK.sub("#", text)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path}\n\n~~~~{language}\n{text}\n~~~~\n"
