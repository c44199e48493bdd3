"""A real browser in which the page's own modules run."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import pellucid.web

STATIC = Path(pellucid.web.__file__).parent / "static"
ORIGIN = "http://127.0.0.1:1"  # nobody answers there: what a test does not serve itself fails


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium here: apt-get install chromium")
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=as_root)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    """An empty page that can import the modules of static/, as `import("/static/model.js")`."""
    page = browser.new_page()
    page.route(f"{ORIGIN}/", lambda route: route.fulfill(body="<title>empty</title>", content_type="text/html"))
    page.route(f"{ORIGIN}/static/*.js", lambda route: route.fulfill(path=STATIC / Path(route.request.url).name))
    page.goto(f"{ORIGIN}/")
    yield page
    page.close()
