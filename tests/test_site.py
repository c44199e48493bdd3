"""The documentation site that `make site` builds with scripts/site_hooks.py: every link leads somewhere, offline."""

import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

pytest.importorskip("mkdocs", reason="`make site` installs what builds the site, and runs this")

from web.conftest import browser as browser_of_the_page

browser = browser_of_the_page
ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
LESSONS = re.findall(r"\]\((\d\d_\w+)\.md\)", (ROOT / "lessons/README.md").read_text("utf-8"))
EXPORTED = {"microscope_of_the_demo.html", "tour_of_the_demo.html"}
LIVE = {  # the parts, and their lessons
    "tape": "01_differentiation",
    "floats": "05_numbers_in_a_machine",
    "rope": "09_attention",
    "particles": "12_looking_inside",
    "beam": "13_writing",
    "cache": "13_writing",
    "tilt": "14_doing_as_told",
    "ring": "15_many_machines",
}
LAPTOP = {"width": 1366, "height": 768}
PHONE = {"width": 390, "height": 800}
TEXT_WITHOUT_CODE = """all => all.map((each) => {
    const copy = each.cloneNode(true);
    copy.querySelectorAll("code").forEach((code) => code.remove());
    return copy.textContent;
})"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Page:
    """It has no network."""
    return browser.new_context(offline=True).new_page()


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    pages = [path for path in SITE.rglob("*.html") if path.name not in {"404.html", *EXPORTED}]
    assert len(pages) > 40, "build the site first: make site"
    return pages


def test_no_link_is_dead_and_nothing_fails_or_comes_from_outside(page, pages):
    faults, requests, anchors = [], [], {}
    page.on("pageerror", lambda error: faults.append((page.url, str(error))))
    page.on("console", lambda said: faults.append((page.url, said.text)) if said.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    for path in [*pages, *(SITE / name for name in EXPORTED)]:
        page.goto(path.as_uri())
        for link in page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)"):
            target, _, anchor = link.removeprefix("file://").partition("#")
            there = Path(unquote(target))
            is_dead = link.startswith("file:") and not there.is_file()
            if anchor and there.suffix == ".html" and there.is_file() and there not in anchors:
                anchors[there] = set(re.findall(r'\bid="([^"]+)"', there.read_text(encoding="utf-8")))
            is_lost = anchor and unquote(anchor) not in anchors.get(there, {unquote(anchor)})
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
    for path in [*SITE.glob("*.html"), *SITE.glob("lessons/*.html")]:
        if path.name not in EXPORTED:
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path.name


def test_search_works_from_a_folder(page):
    page.goto((SITE / "index.html").as_uri())
    query = page.locator("[data-md-component=search-query]")
    query.focus()
    expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching", timeout=60_000)
    query.press_sequentially("causal mask")  # it listens to keys
    found = page.locator(".md-search-result__link").filter(has_text="The causal mask")
    expect(found.first).to_be_attached(timeout=30_000)


def test_the_first_page_shows_the_microscope_at_full_width_and_leads_to_it_and_to_its_shortest_tour(page):
    page.set_viewport_size(LAPTOP)
    page.goto((SITE / "index.html").as_uri())
    picture = page.locator(".microscope img")
    expect(picture).to_be_in_viewport()
    assert picture.evaluate("image => image.naturalWidth > 0 && image.clientWidth") > 0.95 * LAPTOP["width"]
    picture.hover()
    page.mouse.wheel(0, 2000)  # nothing on the page keeps the wheel for itself
    page.wait_for_function("scrollY > 1000")
    picture.click()
    expect(page.get_by_role("heading", name="Model Microscope")).to_be_visible()
    page.go_back()
    page.locator(".microscope").get_by_role("link", name="minutes").click()
    expect(page.locator("#tour")).to_be_visible()


def test_the_first_page_has_the_one_that_trains_at_full_width(page):
    page.set_viewport_size(LAPTOP)
    page.goto((SITE / "index.html").as_uri())
    frame = page.locator("iframe.lab")
    frame.scroll_into_view_if_needed()
    assert frame.evaluate("frame => frame.clientWidth") > 0.95 * LAPTOP["width"]
    lab = page.frame_locator("iframe.lab")
    lab.get_by_role("button", name="Train", exact=True).click()
    expect(lab.locator("svg circle").nth(1)).to_be_attached(timeout=60_000)


def test_the_first_page_leads_to_each_lesson_in_their_order_with_a_picture(page):
    page.goto((SITE / "index.html").as_uri())
    cards = page.locator("ol.lessons a")
    assert cards.evaluate_all("all => all.map((link) => link.pathname.split('/').at(-1))") == [
        f"{name}.html" for name in LESSONS
    ]
    for image in cards.locator("img").all():
        image.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image.element_handle())


def test_no_side_bar_has_twelve_entries(page, pages):
    page.set_viewport_size(LAPTOP)
    for path in (path for path in pages if SITE / "files" not in path.parents):
        page.goto(path.as_uri())
        for bar in ("primary", "secondary"):
            links = page.locator(f".md-sidebar--{bar} .md-nav__link:visible")
            assert links.count() < 12, (path.name, bar, links.all_inner_texts())


@pytest.fixture
def published() -> Iterator[str]:
    """The address of the site in a folder of a web server that knows nothing but files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=ROOT)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/site/"
        server.shutdown()


def test_any_server_of_static_files_can_publish_it_in_any_folder(browser, published):
    page = browser.new_page()
    failed = []
    page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((published, "data:", "blob:")) else failed.append(asked.url),
    )
    page.goto(f"{published}index.html")
    page.get_by_role("link", name="9 Attention").first.click()
    expect(page.locator("[data-live=rope]").get_by_role("button").first).to_be_visible()
    assert failed == []
    page.close()


def test_the_lessons_come_first_in_their_own_order(page):
    page.set_viewport_size(LAPTOP)
    page.goto((SITE / "lessons/index.html").as_uri())
    links = page.eval_on_selector_all(".md-nav--primary a.md-nav__link", "all => all.map((link) => link.pathname)")
    shown = [Path(link).relative_to(SITE).as_posix() for link in map(unquote, links) if link]
    wanted = [f"lessons/{name}.html" for name in LESSONS]
    first = [link for link in dict.fromkeys(shown) if link not in ("index.html", "lessons/index.html")]
    assert first[: len(wanted)] == wanted


def test_the_figures_of_the_lessons_are_there_and_hints_are_folded_text(page):
    for name in LESSONS:
        page.goto((SITE / f"lessons/{name}.html").as_uri())
        assert page.eval_on_selector_all("main img", "all => all.every((image) => image.naturalWidth > 0)"), name
        assert page.locator("details > p").first.is_hidden()
        hints = page.eval_on_selector_all("details", TEXT_WITHOUT_CODE)
        assert len(hints) >= 5, name
        assert [hint for hint in hints if "`" in hint or "**" in hint] == [], name
        assert "numbers within" not in page.locator("article").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_live_parts_are_alive_in_the_site_and_axe_finds_nothing_in_them(browser, size, scheme):
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        page = context.new_page()
        for part, name in LIVE.items():
            page.goto((SITE / f"lessons/{name}.html").as_uri())
            live = page.locator(f"[data-live={part}]")
            expect(live.get_by_role("button").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            found = Axe().run(page, context=f"[data-live={part}]").response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
