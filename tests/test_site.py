"""The documentation site that `make site` builds with scripts/site_hooks.py: every link leads somewhere, offline."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page, expect

pytest.importorskip("mkdocs", reason="`make site` installs what builds the site, and runs this")

from web.conftest import browser as browser_of_the_page

browser = browser_of_the_page
SITE = Path(__file__).parents[1] / "site"
PHONE = {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    return browser.new_page()


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    pages = [path for path in SITE.rglob("*.html") if path.name not in ("404.html", "microscope_of_the_demo.html")]
    assert len(pages) > 40, "build the site first: make site"
    return pages


def test_no_link_is_dead_and_nothing_fails_or_comes_from_outside(page, pages):
    faults, requests = [], []
    page.on("pageerror", lambda error: faults.append((page.url, str(error))))
    page.on("console", lambda said: faults.append((page.url, said.text)) if said.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    for path in pages:
        page.goto(path.as_uri())
        for link in page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
            target, _, anchor = link.removeprefix("file://").partition("#")
            there = Path(unquote(target))
            is_dead = link.startswith("file:") and not there.is_file()
            is_lost = there == path and anchor and page.locator(f'[id="{unquote(anchor)}"]').count() == 0
            if is_dead or is_lost:
                faults.append((path.name, link))
    assert faults == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_formulas_are_mathml_and_none_is_left_as_tex(pages):
    text = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert text.count("<math") > 500
    assert 'class="arithmatex"' not in text
    assert "<mi>&</mi>" not in text


def test_no_page_is_wider_than_a_phone(page):
    page.set_viewport_size(PHONE)
    for path in SITE.glob("*.html"):
        if path.name != "microscope_of_the_demo.html":
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path.name


def test_search_works_from_a_folder(page):
    page.goto((SITE / "index.html").as_uri())
    page.locator("[data-md-component=search-query]").fill("causal mask")
    found = page.locator(".md-search-result__link").filter(has_text="The causal mask")
    expect(found.first).to_be_attached(timeout=30_000)


def test_the_microscope_of_the_demo_is_on_the_first_page(page):
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto((SITE / "index.html").as_uri())
    expect(page.frame_locator("iframe.microscope").get_by_role("heading", name="Model Microscope")).to_be_visible()
