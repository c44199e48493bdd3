"""The live parts of the lessons, in a real browser and in a page without a server: they say what Python computes."""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from live_parts import STYLE, live_script
from playwright.sync_api import Browser, Locator, Page, expect

from autodiff.operations import tanh
from autodiff.tape import value_and_gradients
from pellucid.model.positions import Rotary
from web.conftest import browser as browser_of_the_page

browser = browser_of_the_page
PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1366, "height": 768}
PAGE = f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Live parts</title><style>{STYLE.read_text("utf-8")}</style><main><h1>Live parts</h1>
<div class="live" data-live="tape"></div>
<div class="live" data-live="rope"></div></main>{live_script()}"""

EXPRESSIONS: dict[str, tuple[Callable, list[dict[str, float]]]] = {
    "x + x²": (lambda x: x + x * x, [{"x": 3}, {"x": -2.5}, {"x": 0}]),
    "u + u², with u = x²": (lambda x: x * x + x * x * (x * x), [{"x": 2}, {"x": -1.5}]),
    "tanh(w · x + b)": (
        lambda w, x, b: tanh(w * x + b),
        [{"w": 0.8, "x": 1.5, "b": -0.5}, {"w": -1.1, "x": 0.3, "b": 0}, {"w": 2, "x": -2, "b": 1.9}],
    ),
}


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
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


@pytest.fixture
def tape(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=tape]")


@pytest.fixture
def rope(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=rope]")


def press(part: Locator, name: str, times: int = 1) -> None:
    for _ in range(times):
        part.get_by_role("button", name=name, exact=True).click()


def slide(part: Locator, **to: float) -> None:
    for name, value in to.items():
        part.locator(f"[data-input={name}]").fill(str(value))


def to_the_end(tape: Locator) -> None:
    while tape.get_by_role("button", name="Forward").is_enabled():
        press(tape, "Forward")


def number(part: Locator, selector: str) -> float:
    return float(part.locator(selector).get_attribute("data-value"))


def text(part: Locator, selector: str) -> str:
    return part.locator(selector).text_content()


# ---- The tape ----


@pytest.mark.parametrize("title", EXPRESSIONS)
def test_values_and_cotangents_are_those_of_the_lessons_own_tape(tape, title):
    f, places = EXPRESSIONS[title]
    press(tape, title)
    to_the_end(tape)
    for inputs in places:  # the walk is over, and the sliders still move it
        slide(tape, **inputs)
        value, gradients = value_and_gradients(f, *map(float, inputs.values()))
        shown = [number(tape, f"[data-cotangent-of='{name}']") for name in inputs]
        np.testing.assert_allclose(number(tape, "[data-value-of=f]"), value, atol=1e-12)
        np.testing.assert_allclose(shown, gradients, atol=1e-12)


def test_both_shares_of_x_are_seen_to_arrive_before_they_are_added(tape):
    assert tape.locator("[data-cotangent-of]").count() == 0
    assert text(tape, "[data-value-of=x]") == "3"
    seen = []
    while tape.get_by_role("button", name="Forward").is_enabled():
        press(tape, "Forward")
        if tape.locator("[data-cotangent-of=x]").count():
            seen.append(text(tape, "[data-cotangent-of=x]"))
    assert seen == ["1", "1", "1 + 6", "1 + 6 = 7"]
    assert tape.locator(".edge text").all_text_contents() == ["6 · 1 = 6", "1 · 1 = 1", "1 · 1 = 1"]


def test_u_passes_on_nothing_before_both_of_its_shares_have_arrived(tape):
    press(tape, "u + u², with u = x²")
    while not tape.locator("[data-cotangent-of=x]").count():
        before = text(tape, ".said")
        press(tape, "Forward")
    assert before == "u is used twice, and both count: 1 + 8 = 9."
    assert text(tape, "[data-cotangent-of=x]") == "36"


def test_each_step_says_why_in_numbers_that_one_may_write(tape):
    press(tape, "tanh(w · x + b)")
    slide(tape, x=-1.5)
    to_the_end(tape)
    press(tape, "Step back")
    assert text(tape, ".said").startswith("The slope by one factor is the other factor, x = −1.5. So w gets −1.5 · 0.")
    press(tape, "x + x²")
    slide(tape, x=-2.5)
    press(tape, "Forward", times=6)
    assert text(tape, ".said") == "The slope of x² is 2x = 2 · (−2.5). So x gets −5 · 1 = −5."
    expect(tape.get_by_label("x got 1 and −5. What is its cotangent?")).to_be_visible()


def test_a_guess_is_told_whether_it_is_right_and_by_the_keyboard_alone(tape, page):
    press(tape, "Forward", times=3)  # two values, and the 1 of the result
    guess = tape.get_by_label("What does x get from x + x²?")
    guess.press("Enter")
    expect(tape.locator(".verdict")).to_have_text("Type a number first.")
    guess.fill("3")
    guess.press("Enter")
    expect(tape.locator(".verdict")).to_contain_text("Not 3. A sum grows as much as its part")
    for question, answer in [
        ("What does x get from x + x²?", "1"),
        ("What does x² get from x + x²?", "1"),
        ("What does x get from x²?", "6"),
        ("x got 1 and 6. What is its cotangent?", "7"),
    ]:
        expect(tape.get_by_label(question)).to_be_focused()
        page.keyboard.press("ControlOrMeta+A")
        page.keyboard.type(answer)
        page.keyboard.press("Enter")
        expect(tape.locator(".verdict")).to_have_text(f"Right: {answer}.")
    expect(tape.get_by_role("button", name="Again")).to_be_focused()
    page.keyboard.press("Enter")
    expect(tape.get_by_role("button", name="Forward")).to_be_focused()


def test_a_step_back_undoes_a_step_forward(tape):
    press(tape, "Forward", times=4)
    drawn = tape.locator(".graph").inner_html()
    press(tape, "Forward")
    assert tape.locator(".graph").inner_html() != drawn
    press(tape, "Step back")
    assert tape.locator(".graph").inner_html() == drawn


# ---- The clocks ----


def scores_of(rope: Locator, pairs: list[tuple[int, int]]) -> list[float]:
    shown = []
    for query, key in pairs:
        slide(rope, query=63, key=0)  # neither is in the way of the other
        slide(rope, query=query, key=key)
        shown.append(number(rope, "[data-name=score]"))
    return shown


@pytest.mark.parametrize("head", ["equal hands", "three back", "slow clocks"])
def test_the_score_is_that_of_the_models_rotation(rope, head):
    press(rope, head)
    rotary = Rotary(context_length=64, head_width=8)

    def turned(name, position):
        hands = torch.tensor(json.loads(rope.get_attribute(f"data-{name}")), dtype=torch.float32)
        return rotary.rotate(hands[None, None, None], start=position).flatten()

    pairs = [(0, 0), (12, 9), (40, 3), (63, 0), (63, 63)]
    true = [float(turned("query", t) @ turned("key", s)) for t, s in pairs]
    np.testing.assert_allclose(scores_of(rope, pairs), true, atol=1e-6)


@pytest.mark.parametrize("head", ["equal hands", "three back", "slow clocks"])
def test_the_score_and_all_angles_stay_when_both_move(rope, head):
    press(rope, head)
    angles = [f"[data-name='angle {i}']" for i in range(4)]
    before = [number(rope, each) for each in ("[data-name=score]", *angles)]
    press(rope, "+10", times=2)
    press(rope, "+1")
    assert [text(rope, f".sliders label:nth-child({i}) output") for i in (1, 2)] == ["33", "30"]
    after = [number(rope, each) for each in ("[data-name=score]", *angles)]
    np.testing.assert_allclose(after, before, atol=1e-6)
    slide(rope, key=29)
    assert number(rope, angles[0]) != pytest.approx(before[1], abs=0.5)


def test_the_mark_on_the_curve_is_the_score_at_this_distance(rope):
    slide(rope, query=40, key=20)
    mark = rope.locator("circle.now")
    assert mark.get_attribute("data-distance") == "20"
    np.testing.assert_allclose(number(rope, "circle.now"), number(rope, "[data-name=score]"), atol=1e-5)


def test_a_head_that_looks_three_back_scores_highest_there(rope):
    press(rope, "three back")
    scores = scores_of(rope, [(distance, 0) for distance in range(8)])
    assert int(np.argmax(scores)) == 3
    assert scores[3] == pytest.approx(4)


def test_neither_leaves_the_text_nor_passes_the_other(rope):
    press(rope, "+10", times=9)
    press(rope, "+10")
    assert text(rope, ".said") == "They stand at the edge of the text."
    slide(rope, query=5)
    outputs = rope.locator(".sliders output")
    assert outputs.all_text_contents() == ["5", "5"]


# ---- Both ----


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(page, tape, rope, size):
    page.set_viewport_size(size)
    for title in EXPRESSIONS:
        press(tape, title)
        to_the_end(tape)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        outside = """graph => { const frame = graph.getBoundingClientRect();
            return [...graph.querySelectorAll("text")].filter((each) => {
                const box = each.getBoundingClientRect();
                return box.left < frame.left || box.right > frame.right; }).map((each) => each.textContent); }"""
        assert tape.locator(".graph").evaluate(outside) == []
    press(tape, "Step back")
    found = Axe().run(page).response["violations"] if size == PHONE else []
    page.set_viewport_size(LAPTOP)
    assert found == []
