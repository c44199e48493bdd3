"""`--lessons-in-full` (make lessons) runs the blocks that pages mark as long; and the page of live parts."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page

from browsing import LAPTOP
from live_page import PAGE, PARTS
from web.conftest import browser as browser_of_the_page

browser = browser_of_the_page


@pytest.fixture(scope="session")
def in_full(request) -> bool:
    return bool(request.config.getoption("--lessons-in-full"))


@pytest.fixture(scope="module")
def live(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A window with all live parts; at its end, that nothing went wrong in it."""
    file = tmp_path_factory.mktemp("live") / "page.html"
    file.write_text(PAGE, encoding="utf-8")
    page = browser.new_page(viewport=LAPTOP)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text))
    page.goto(file.as_uri())
    yield page
    assert faults == []
    page.close()


def fixture_of(name: str) -> Callable[..., Locator]:
    @pytest.fixture(name=name)
    def part(live: Page) -> Locator:
        """The live part of this name, as it is at first."""
        live.reload()
        return live.locator(f"[data-live={name}]")

    return part


tape, rope, floats, tilt, beam, cache, particles, merges, logits, fading, edge, ring, guess = map(fixture_of, PARTS)
