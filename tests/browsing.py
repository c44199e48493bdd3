"""A window of a real browser on a page that is served, and the numbers that the page shows."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from playwright.sync_api import Browser, Page

LAPTOP, PHONE = {"width": 1366, "height": 768}, {"width": 390, "height": 844}
READY = "main[aria-busy=false]"


@contextmanager
def watched(browser: Browser, address: str, view: str = "") -> Iterator[Page]:
    """A window; at its end, that nothing went wrong in it and nothing was asked of others."""
    page = browser.new_page(viewport=LAPTOP)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("request", lambda asked: None if asked.url.startswith((address, "blob:")) else faults.append(asked.url))
    page.on("response", lambda given: faults.append(f"{given.status} {given.url}") if given.status >= 400 else None)
    try:
        page.goto(address + view)
        yield page
    finally:
        page.unroute_all(behavior="ignoreErrors")  # an answer that is still changed then would fail the next test
        page.close()
    assert faults == [], faults


def settled(page: Page) -> Page:
    """The page, after its requests have been answered."""
    page.wait_for_timeout(30)  # events and requests have begun
    page.wait_for_selector(READY, timeout=120_000)
    return page


def values(page: Page, selector: str, attribute: str = "data-value") -> torch.Tensor:
    """The numbers that elements carry; NaN for one that has none."""
    texts = page.eval_on_selector_all(selector, f"all => all.map((each) => each.getAttribute('{attribute}'))")
    return torch.tensor([float(each) if each else torch.nan for each in texts], dtype=torch.float64)


def value(page: Page, name: str) -> float:
    """The number that the element of this name carries."""
    [number] = values(page, f"[data-name='{name}']")
    return float(number)


def box(page: Page, selector: str, n: int = 0) -> dict[str, float]:
    """Where the n-th such element stands, found and measured in one step: meanwhile the page may draw it anew."""
    measure = "([selector, n]) => document.querySelectorAll(selector)[n].getBoundingClientRect().toJSON()"
    return page.evaluate(measure, [selector, n])


def serious_violations(page: Page, where: str | None = None, rules: list[str] | None = None) -> list[str]:
    """What axe finds against accessibility in a part of the page, by the names of its rules; None: all of either."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"runOnly": rules} if rules else None
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in Axe().run(page, context=where, options=options).response["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
