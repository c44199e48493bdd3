"""The pictures of the Model Microscope, taken from the page of a trained run.

    python scripts/screenshots.py checkpoints/fables

docs/microscope.png is the first screen: the model, and a text that stops where a name is to be repeated. Part 7 of the
page measures which head does recall; docs/microscope_attention.png shows where that head looks, and
docs/microscope_phone.png is the same on a phone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measure_page import a_browser, served
from playwright.sync_api import Page
from results import ROOT

LAPTOP, PHONE = {"width": 1366, "height": 1090}, {"width": 390, "height": 844}
FIRST = 722  # pixels of the first screen that show the model
SKILL = "recall"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    options.add_argument("--to", type=Path, default=ROOT / "docs")
    given = options.parse_args()
    with served(given.run) as address, a_browser() as browser:
        page = browser.new_page(viewport=LAPTOP)
        page.goto(address)
        settled(page)
        page.screenshot(
            path=given.to / "microscope.png", clip={"x": 0, "y": 0, "width": LAPTOP["width"], "height": FIRST}
        )
        page.wait_for_selector("[data-row]", state="attached", timeout=600_000)  # measured by then, or as it opened
        page.get_by_role("paragraph").filter(has_text=f"does {SKILL}.").get_by_role("button").click()
        settled(page)
        take(page, "#part-text", given.to / "microscope_attention.png")
        page.set_viewport_size(PHONE)
        settled(page)
        take(page, "#part-attention .big", given.to / "microscope_phone.png")


def settled(page: Page) -> None:
    page.wait_for_selector("#part-next .candidate", timeout=120_000)
    page.wait_for_selector("main[aria-busy=false]", timeout=120_000)


def take(page: Page, top: str, to: Path) -> None:
    """The window, with this part at its top."""
    page.wait_for_timeout(2000)  # a click before may still be scrolling
    page.evaluate("top => document.querySelector(top).scrollIntoView({ behavior: 'instant' })", top)
    page.wait_for_timeout(1000)  # what moves has arrived
    page.screenshot(path=to)
    print(to)


if __name__ == "__main__":
    main()
