"""A browser, and the page of a run for it to open."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from playwright.sync_api import Browser, Page, sync_playwright
from runs import served


@contextmanager
def page_of(run: Path) -> Iterator[str]:
    """The address of the Model Microscope of a run."""
    with served(serve, run) as port:
        yield f"http://127.0.0.1:{port}/"


def serve(run: Path, listening: socket) -> None:
    from pellucid.web import server
    from pellucid.web.app import make_app

    server.run(make_app([run]), listening)


@contextmanager
def a_browser() -> Iterator[Browser]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def settled(page: Page) -> None:
    """Waits until all panels show the text."""
    page.wait_for_selector("#part-next .candidate", timeout=120_000)
    page.wait_for_selector("main[aria-busy=false]", timeout=120_000)
