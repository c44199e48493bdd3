"""A browser, and a server of the Model Microscope in a process of its own."""

from __future__ import annotations

import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The address of a page of the run, in a process of its own."""
    context = get_context("spawn")
    told, tells = context.Pipe()
    process = context.Process(target=serve, args=(run, tells), daemon=True)
    process.start()
    address = f"http://127.0.0.1:{told.recv()}/"
    while True:
        try:
            urllib.request.urlopen(f"{address}health", timeout=1).close()
            break
        except OSError:
            if not process.is_alive():
                sys.exit("error: the server of the page ended as it started; its error stands above")
            time.sleep(0.2)
    yield address
    process.terminate()
    process.join()


def serve(run: Path, tells: object) -> None:
    from pellucid.web import server
    from pellucid.web.app import make_app

    listening = server.listen("127.0.0.1", 0)
    tells.send(listening.getsockname()[1])  # type: ignore[attr-defined]
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
