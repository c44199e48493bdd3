"""A page with all live parts of the lessons, what one does to them, and the numbers and texts that they show."""

from live_parts import STYLE, live_script
from playwright.sync_api import Locator

PARTS = (
    "tape",
    "rope",
    "floats",
    "tilt",
    "beam",
    "cache",
    "particles",
    "merges",
    "logits",
    "fading",
    "edge",
    "ring",
    "guess",
)
PAGE = f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Live parts</title><style>{STYLE.read_text("utf-8")}</style><main><h1>Live parts</h1>
{"".join(f'<div class="live" data-live="{part}"></div>' for part in PARTS)}</main>{live_script()}"""


def press(part: Locator, name: str, times: int = 1) -> None:
    for _ in range(times):
        part.get_by_role("button", name=name, exact=True).click()


def slide(part: Locator, **to: float) -> None:
    for name, value in to.items():
        part.locator(f"[data-input={name}]").fill(str(value))


def number(part: Locator, selector: str) -> float:
    return float(part.locator(selector).get_attribute("data-value"))


def numbers(part: Locator) -> dict[str, float]:
    """All numbers that a part shows, by their names."""
    read = "all => all.map(({ dataset }) => [dataset.name, dataset.value])"
    shown = part.locator("[data-name][data-value]").evaluate_all(read)
    return {name: float(value.replace("Infinity", "inf")) for name, value in shown}


def text(part: Locator, selector: str) -> str:
    return part.locator(selector).text_content()
