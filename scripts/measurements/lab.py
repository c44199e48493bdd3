"""How long the page that trains takes, in a browser here: to be ready, to learn half, and to come near the floor.

Remakes: lab
Takes: ten minutes
Needs: chromium

Each language of the page is trained by a press of its button, once in the usual width and once in half of it. Seconds
run from the press, except those until the page is ready, which run from the choice of the size. Half of what can be
learned lies between a reader who knows only how often each token occurs, and the floor.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TypeAlias

from browser import a_browser
from playwright.sync_api import Page
from results import Entry

from pellucid.web.lab import SHIPPED, language_of, page

WIDTHS = (64, 32)
NEAR = 0.02  # of the floor
Figures: TypeAlias = "dict[str, float | str]"
WATCH = """() => {
    const status = document.querySelector(".side .status");
    const began = performance.now();
    globalThis.seen = [];
    const look = () => seen.push([(performance.now() - began) / 1000, Number(status.dataset.loss)]);
    new MutationObserver(look).observe(status, {attributeFilter: ["data-loss"]});
}"""


def measure() -> Iterator[Entry]:
    languages = [language_of(told) for told in SHIPPED]
    file = Path("lab.html").resolve()
    file.write_text(page(languages), encoding="utf-8")
    figures = {}
    with a_browser() as browser:
        for language, width in product(languages, WIDTHS):
            window = browser.new_page()
            window.goto(file.as_uri())
            name = f"{language['title'].lower()}, width {width}"
            figures[name] = training(window, language["title"], width, language["floor"], language["by_frequency"])
            window.close()
    yield Entry("lab", figures, [told.config for told in SHIPPED[:-1]], numbers="fp32")


def training(window: Page, title: str, width: int, floor: float, by_frequency: float) -> Figures:
    """Seconds to what the page shows while it trains a model of this width on a language."""
    window.get_by_label(title).check()
    window.locator(".side .status").filter(has_text="none of them trained").wait_for()
    slider = window.get_by_label("Width")
    slider.press("End")  # the reader's choice, even if the page would choose another
    while width < int(slider.locator("xpath=following-sibling::output").inner_text()):
        slider.press("ArrowLeft")
    began = window.evaluate("performance.now()")
    window.locator(".side .status").filter(has_text="updates take about").wait_for(timeout=120_000)
    ready = (window.evaluate("performance.now()") - began) / 1000
    window.evaluate(WATCH)
    window.get_by_role("button", name="Train", exact=True).click()
    window.get_by_role("button", name="Trained").wait_for(timeout=1_800_000)
    seen = window.evaluate("seen")
    return {
        "ready (s)": ready,
        "first point (s)": seen[0][0],
        "half of the way (s)": below(seen, (floor + by_frequency) / 2),
        "within 2 % (s)": below(seen, (1 + NEAR) * floor),
        "all updates (s)": seen[-1][0],
        "above the floor (%)": 100 * (seen[-1][1] / floor - 1),
    }


def below(seen: list[tuple[float, float]], bound: float) -> float | str:
    """The seconds after which a loss was first this low."""
    return next((seconds for seconds, loss in seen if loss <= bound), "never")
