"""The pictures of the Model Microscope, taken from the page of a trained run.

Remakes: docs/microscope.png, docs/microscope_attention.png, docs/microscope_phone.png
Takes: 2 minutes
Needs: checkpoints/fables, chromium

docs/microscope.png is the first screen: the model, and a text that can go on in several ways. Part 7 of the page
measures which head does recall; docs/microscope_attention.png shows where that head looks when a name is to be
repeated, and docs/microscope_phone.png is the same on a phone.
"""

from collections.abc import Iterator
from pathlib import Path

from browser import a_browser, page_of, settled
from playwright.sync_api import Page
from results import ROOT

DOCS = ROOT / "docs"
LAPTOP, PHONE = {"width": 1366, "height": 1090}, {"width": 390, "height": 844}
FIRST = 722  # pixels of the first screen that show the model
SKILL = "recall"


def draw(run: Path, *, to: Path = DOCS) -> Iterator[Path]:
    with page_of(run) as address, a_browser() as browser:
        page = browser.new_page(viewport=LAPTOP)
        page.goto(address)
        settled(page)
        first = to / "microscope.png"
        page.screenshot(path=first, clip={"x": 0, "y": 0, "width": LAPTOP["width"], "height": FIRST})
        yield first
        page.wait_for_selector("[data-row]", state="attached", timeout=600_000)  # measured by then, or as it opened
        page.get_by_role("button", name="a name or thing said before").click()
        settled(page)
        page.get_by_role("paragraph").filter(has_text=f"does {SKILL}.").get_by_role("button").click()
        settled(page)
        yield take(page, "#part-text", to / "microscope_attention.png")
        page.set_viewport_size(PHONE)
        settled(page)
        yield take(page, "#part-attention .big", to / "microscope_phone.png")


def take(page: Page, top: str, to: Path) -> Path:
    """The window, with this part at its top."""
    page.wait_for_timeout(2000)  # a click before may still be scrolling
    page.evaluate("top => document.querySelector(top).scrollIntoView({ behavior: 'instant' })", top)
    page.wait_for_timeout(1000)  # what moves has arrived
    page.screenshot(path=to)
    return to
