"""The live parts of the lessons, in a real browser and in a page without a server: they say what Python computes."""

import json
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from live_parts import STYLE, live_script
from playwright.sync_api import Browser, Locator, Page, expect
from torch.utils.flop_counter import FlopCounterMode

import lesson_09
import lesson_10
import lesson_11
import lesson_12
import pellucid
from autodiff.operations import tanh
from autodiff.tape import value_and_gradients
from pellucid.model.positions import Rotary
from web.conftest import browser as browser_of_the_page

browser = browser_of_the_page
PHONE = {"width": 390, "height": 844}
LAPTOP = {"width": 1366, "height": 768}
PARTS = ("tape", "rope", "floats", "tilt", "beam", "cache", "particles")
PAGE = f"""<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Live parts</title><style>{STYLE.read_text("utf-8")}</style><main><h1>Live parts</h1>
{"".join(f'<div class="live" data-live="{part}"></div>' for part in PARTS)}</main>{live_script()}"""

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


@pytest.fixture
def floats(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=floats]")


@pytest.fixture
def tilt(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=tilt]")


@pytest.fixture
def beam(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=beam]")


@pytest.fixture
def cache(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=cache]")


@pytest.fixture
def particles(page: Page) -> Locator:
    page.reload()
    return page.locator("[data-live=particles]")


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


def numbers(part: Locator) -> dict[str, float]:
    """All numbers that a part shows, by their names."""
    read = "all => all.map(({ dataset }) => [dataset.name, dataset.value])"
    shown = part.locator("[data-name][data-value]").evaluate_all(read)
    return {name: float(value.replace("Infinity", "inf")) for name, value in shown}


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


# ---- The bits of a float ----

CODES = {16: torch.uint16, 32: torch.uint32, 8: torch.uint8}  # a number's bits, read as a whole number
FORMATS = {
    "float32": (torch.float32, 32),
    "float16": (torch.float16, 16),
    "bfloat16": (torch.bfloat16, 16),
    "float8, E4M3": (torch.float8_e4m3fn, 8),
    "float8, E5M2": (torch.float8_e5m2, 8),
}
NUMBERS = [0, 0.1, -0.75, 1 / 3, 257, 65504, 65520, -1e6, 447, 449, 464.5, 3e-8, -1e-5, 1.5 * 2**-149, 3.5e38, math.inf]


def value_of(code: int, name: str) -> float:
    dtype, n_bits = FORMATS[name]
    return float(torch.tensor([code], dtype=CODES[n_bits]).view(dtype).double())


def code_of(number: float, name: str) -> int:
    dtype, n_bits = FORMATS[name]
    return int(torch.tensor([number], dtype=torch.float32).to(dtype).view(CODES[n_bits]))


def set_bits(floats: Locator, bits: str) -> None:
    click = """(part, bits) => [...part.querySelectorAll("[data-worth]")].forEach((button, i) => {
        if (button.textContent !== bits[i]) button.click(); })"""
    floats.evaluate(click, bits)


def bits_of(floats: Locator) -> str:
    return "".join(floats.locator("[data-worth]").all_text_contents())


def ask(floats: Locator, number: str) -> None:
    floats.get_by_label("Number", exact=True).fill(number)


@pytest.mark.parametrize("name", FORMATS)
def test_bits_are_read_as_pytorch_reads_them(floats, name):
    press(floats, name)
    n_bits = FORMATS[name][1]
    random_codes = [int(code) for code in np.random.default_rng(3).integers(2**n_bits, size=3)]
    ones = 2 ** (n_bits - 1) - 1  # all but the sign
    for code in (0, 1, ones, code_of(1, name), code_of(math.inf, name), code_of(-0.0, name), *random_codes):
        set_bits(floats, f"{code:0{n_bits}b}")
        shown, true = numbers(floats), value_of(code, name)
        np.testing.assert_equal(shown["value"], true)
        if not math.isfinite(true):
            continue
        assert (-1) ** shown["S"] * shown["fraction"] * 2 ** shown["power"] == true
        if math.isfinite(further := value_of(code + 1, name)):
            assert shown["gap down" if shown["S"] else "gap up"] == abs(further - true)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_typed_becomes_the_number_that_pytorch_takes(floats, name):
    press(floats, name)
    for number in NUMBERS:
        ask(floats, str(number))
        is_too_large = name == "float8, E4M3" and abs(number) > 464  # PyTorch made NaN of it, and now makes 448
        true = 0b01111110 + 0b10000000 * (number < 0) if is_too_large else code_of(number, name)
        assert int(bits_of(floats), 2) == true, number


def test_a_format_keeps_the_number_that_was_asked_for(floats):
    assert text(floats, ".result") == "+ 2⁻⁴ · 1.5996 = 0.0999755859375"
    press(floats, "float8, E4M3")
    assert text(floats, ".said") == "You asked for 0.1. The nearest number is off by 0.0016, which is 1.6 %."
    press(floats, "float32")
    assert numbers(floats)["value"] == float(np.float32(0.1))


def test_256_and_its_neighbours_in_bfloat16(floats):
    press(floats, "bfloat16")
    ask(floats, "257")
    assert text(floats, ".said") == "257 is exactly between two numbers. The even one is taken: its last bit is 0."
    shown = numbers(floats)
    assert (shown["value"], shown["gap up"], shown["gap down"]) == (256, 2, 1)
    press(floats, "One up")
    assert numbers(floats)["value"] == 258
    press(floats, "One down", times=2)
    assert numbers(floats)["value"] == 255
    press(floats, "largest")
    press(floats, "One up")
    assert numbers(floats)["value"] == math.inf
    assert floats.get_by_role("button", name="One up").is_disabled()


def test_numbers_may_be_written_in_several_ways(floats):
    for written, number in {"2^-24": 2**-24, "−3e-5": -3e-5, "65,504": 65504, "0,5": 0.5, "1/3": 1 / 3}.items():
        ask(floats, written)
        assert numbers(floats)["value"] == float(np.float16(number)), written
    ask(floats, "one")
    assert text(floats, ".said").startswith("Type a number, such as")


def test_the_bits_are_one_stop_of_the_keyboard(floats, page):
    press(floats, "smallest")
    page.keyboard.press("Tab")
    expect(floats.get_by_label("sign bit, minus")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert numbers(floats)["value"] == 2 * (1 + 2**-10)
    page.keyboard.press("Tab")
    expect(floats.get_by_role("button", name="One down")).to_be_focused()


# ---- The tilted reference ----

REFERENCE_QX = lesson_12.Policy().log_p().detach().exp()
JUDGED_X = lesson_12.REWARDS_QX[1].clone()
JUDGED_X[lesson_12.ANSWERS.index("fox sing again .")] = 1.25
TILTED = {
    "about owl ?": (REFERENCE_QX[1], lesson_12.REWARDS_QX[1]),
    "about fox ?": (REFERENCE_QX[0], lesson_12.REWARDS_QX[0]),
    "a judge that errs": (REFERENCE_QX[1], JUDGED_X),
}


def at_price(tilt: Locator, beta: float) -> float:
    """Sets the price, as nearly as the slider can, and returns it."""
    power = round(math.log10(beta), 2)
    slide(tilt, price=power)
    return 10**power


@pytest.mark.parametrize("title", TILTED)
def test_the_tilted_policy_is_the_best_one(tilt, title):
    press(tilt, title)
    reference_X, rewards_X = TILTED[title]
    for wanted in (10, 1, 0.25, 0.0321):
        beta = at_price(tilt, wanted)
        best_X = lesson_12.optimal_policy(reference_X[None], rewards_X[None], beta)[0]
        shown = numbers(tilt)
        np.testing.assert_allclose([shown[name] for name in lesson_12.ANSWERS], best_X, rtol=1e-5)
        kl = float(torch.special.xlogy(best_X, best_X / reference_X).sum())
        Z = float((reference_X * torch.exp(rewards_X / beta)).sum())
        assert shown["reward"] == pytest.approx(float(best_X @ rewards_X), rel=1e-5)
        assert shown["KL"] == pytest.approx(kl, rel=1e-5, abs=1e-9)
        assert shown["value"] == pytest.approx(beta * math.log(Z), rel=1e-5)
        for reward in rewards_X.unique().tolist():
            assert shown[f"factor {reward:g}"] == pytest.approx(math.exp(reward / beta) / Z, rel=1e-5)


def test_the_value_at_a_quarter_is_that_of_the_page_and_others_are_judged_by_the_truth(tilt):
    press(tilt, "0.25")
    assert text(tilt, ".sum") == "mean reward − β · KL = 0.839 − 0.25 · 0.592 = 0.691 = β ln Z"
    assert numbers(tilt)["obeys"] == pytest.approx(71.1, abs=0.05)
    press(tilt, "a judge that errs")
    press(tilt, "0.05")
    best_X = lesson_12.optimal_policy(REFERENCE_QX[1:], JUDGED_X[None], 0.05)[0]
    assert numbers(tilt)["truth"] == pytest.approx(float(best_X @ lesson_12.REWARDS_QX[1]), rel=1e-5)
    assert "worse than the reference, 0.525." in text(tilt, ".said")


def test_the_point_on_the_curve_is_what_the_price_buys(tilt):
    at_price(tilt, 0.5)
    point, shown = tilt.locator("circle.now"), numbers(tilt)
    assert float(point.get_attribute("data-kl")) == pytest.approx(shown["KL"], rel=1e-5)
    assert float(point.get_attribute("data-value")) == pytest.approx(shown["reward"], rel=1e-5)


# ---- Beams ----

BEAMS = {1: "1 beam: greedy", 2: "2 beams", 3: "3 beams"}


def beams_after(n_tokens: int, n_beams: int) -> list[tuple[str, float]]:
    """The beams of lesson 11's search after so many rounds."""
    found = lesson_11.beam_search(
        lambda text: lesson_11.small_tree(text) if len(text) < n_tokens else {}, n_beams=n_beams
    )
    return [("".join(text), math.exp(log_p)) for text, log_p in found]


@pytest.mark.parametrize("n_beams", BEAMS)
def test_the_beams_are_those_of_the_lessons_own_search(beam, n_beams):
    press(beam, BEAMS[n_beams])
    for n_tokens in (1, 2, 3, 4):
        press(beam, "Forward", times=2)
        true, shown = beams_after(n_tokens, n_beams), numbers(beam)
        assert beam.locator("tr.kept th").all_text_contents() == [text for text, _ in true]
        for text_of_beam, p in true:
            assert shown[text_of_beam] == pytest.approx(p, rel=1e-6)
    assert beam.get_by_role("button", name="Forward").is_disabled()
    assert [shown[f"found by {n}"] for n in BEAMS] == pytest.approx([beams_after(4, n)[0][1] for n in BEAMS])


def test_all_continuations_are_there_before_the_likeliest_are_kept(beam):
    press(beam, "2 beams")
    press(beam, "Forward", times=3)
    assert text(beam, ".said") == "8 candidates: the continuations of A and B. Which two stay?"
    children = {a + b: lesson_11.small_tree(())[a] * p for a in "AB" for b, p in lesson_11.small_tree((a,)).items()}
    assert numbers(beam) == pytest.approx(children)
    press(beam, "Forward")
    assert text(beam, ".said").startswith("AB (0.2) and AC (0.15) stay. B has no child among them.")
    drawn = beam.locator(".tree").inner_html()
    press(beam, "Forward")
    press(beam, "Step back")
    assert beam.locator(".tree").inner_html() == drawn


def test_what_greedy_and_two_and_three_beams_find(beam, page):
    press(beam, "2 beams")
    beam.get_by_role("button", name="Forward").focus()
    for _ in range(8):
        page.keyboard.press("Enter")
    assert text(beam, ".said").startswith(
        "Found: ACB. with 0.054. One beam finds ABC. (0.048), two find ACB. (0.054), "
    )
    expect(beam.get_by_role("button", name="Again")).to_be_focused()


# ---- The cache ----

N_PROMPT = 6
DEMO = {"L": 2, "D": 128, "H": 4, "G": 4, "F": 512, "V": 2048}
GPT_3 = {"L": 96, "D": 12_288, "H": 96, "G": 96, "F": 4 * 12_288, "V": 50_257}
MODELS = {"the demo": DEMO, "GPT-3": GPT_3, "GPT-3, 12 queries to a key": GPT_3 | {"G": 8}}


def work(model: dict[str, int], new: int, has_cache: bool) -> dict[str, int]:
    """What a new token takes, counted one by one; it is the `new`-th, and the last position has read the one before."""
    positions = [t for t in range(1, N_PROMPT + new) if not has_cache or new == 1 or t == N_PROMPT + new - 1]
    scores = sum(1 for t in positions for _ in range(t))
    K = model["D"] // model["H"]
    of_a_position = 2 * model["D"] * (model["H"] + model["G"]) * K + 2 * model["D"] * model["F"]
    of_attention = 2 * model["H"] * K * scores
    products = model["L"] * (of_a_position * len(positions) + of_attention) + model["V"] * model["D"]
    return {"positions": len(positions), "scores": scores, "products": products}


@pytest.mark.parametrize("name", MODELS)
def test_the_work_and_the_memory_of_writing_are_counted_right(cache, name):
    press(cache, name)
    model = MODELS[name]
    for new in (1, 2, 12):
        if new > 1:
            press(cache, "Write a token" if new == 2 else "Write ten")
        shown = numbers(cache)
        for has_cache, side in ((True, "with"), (False, "without")):
            steps = [work(model, n, has_cache) for n in range(1, new + 1)]
            for count in ("positions", "scores", "products"):
                assert shown[f"this {count} {side}"] == steps[-1][count]
                assert shown[f"all {count} {side}"] == sum(step[count] for step in steps)
            assert shown[f"all positions {side}"] == lesson_11.positions_computed(N_PROMPT, new, has_cache)
        sizes = {letter: model[letter] for letter in "LDHG"}
        assert shown["kept bytes with"] == lesson_09.kv_cache_bytes(N_PROMPT + new - 1, **sizes)
        assert shown["kept numbers without"] == 0


def test_the_demo_writes_this_text_and_multiplies_so_often(cache):
    run = pellucid.load("demo")
    tokens = cache.locator(".text span").all_text_contents()
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode("".join(tokens))]
    assert [run.tokenizer.decode([i]) for i in ids[1:]] == tokens
    state = run.model.new_state(1, len(ids))
    with torch.inference_mode():
        greedy = run.model(torch.tensor([ids]))[0].argmax(dim=-1)[:-1]
        run.model(torch.tensor([ids[1:7]]), state)
        with FlopCounterMode(display=False) as counter:
            run.model(torch.tensor([ids[7:8]]), state)
    assert greedy.tolist()[N_PROMPT:] == ids[1 + N_PROMPT :]
    press(cache, "Write a token")
    assert numbers(cache)["this products with"] == counter.get_total_flops() / 2


def test_the_text_and_the_rows_grow_to_their_end(cache, page):
    cache.get_by_role("button", name="Write a token").focus()
    page.keyboard.press("Enter")
    assert text(cache, ".newest") == " young"
    assert [cache.locator(f".{side} rect.computed").count() for side in ("with", "without")] == [2, 2]
    press(cache, "Write ten", times=4)
    assert cache.get_by_role("button", name="Write ten").is_disabled()
    assert cache.locator(".unwritten").count() == 0


# ---- The particles ----


def start_of(particles: Locator) -> np.ndarray:
    return np.array(json.loads(particles.get_attribute("data-start")))


def flowed(start_TD: np.ndarray, beta: float, step: float, n_layers: int, is_causal: bool) -> tuple[float, float]:
    """How far apart the tokens are at most after so many layers, and how far from where token 0 began."""
    x_TD = start_TD
    for _ in range(n_layers):
        x_TD = lesson_10.attention_flow_step(x_TD, beta, step, is_causal)
    apart = np.linalg.norm(x_TD[:, None] - x_TD, axis=2).max()
    return apart, np.linalg.norm(x_TD - start_TD[0], axis=1).max()


def test_tokens_flow_as_the_lessons_own_step_lets_them(particles):
    start_TD = start_of(particles)
    np.testing.assert_allclose(start_TD, lesson_10.tokens_on_the_sphere(24), atol=1e-4)
    for beta, step, n_layers in ((1, 0.1, 0), (1, 0.1, 60), (4, 0.1, 130), (1, 1, 6), (9, 0.5, 120)):
        press(particles, f"{step:g}")
        slide(particles, beta=beta, layers=n_layers)
        shown = numbers(particles)
        for name, is_causal in (("free", False), ("causal", True)):
            true = flowed(start_TD, beta, step, n_layers, is_causal)
            assert (shown[f"apart {name}"], shown[f"from first {name}"]) == pytest.approx(true, rel=1e-5, abs=1e-7)


def test_depth_is_time_and_other_tokens_meet_at_their_own_first_one(particles):
    slide(particles, layers=60)
    assert numbers(particles)["apart free"] == pytest.approx(0.137, abs=0.0005)  # as on the page
    press(particles, "1")
    assert particles.locator(".sliders output").first.text_content() == "6"
    assert numbers(particles)["apart free"] == pytest.approx(0.621, abs=0.0005)
    before = start_of(particles)
    press(particles, "Other tokens")
    assert np.abs(start_of(particles) - before).max() > 0.1
    np.testing.assert_allclose(np.linalg.norm(start_of(particles), axis=1), 1)
    assert numbers(particles)["apart free"] > 1
    slide(particles, beta=0, layers=60)
    assert numbers(particles)["from first causal"] < 0.05


def test_nothing_moves_until_play_and_after_pause(particles, page):
    layers = particles.locator(".sliders output").first
    page.wait_for_timeout(50)
    assert layers.text_content() == "0"
    press(particles, "Play")
    expect(layers).not_to_have_text("0")
    press(particles, "Pause")
    stopped = layers.text_content()
    page.wait_for_timeout(50)
    assert layers.text_content() == stopped


# ---- All of them ----


@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "slate"), (PHONE, "default")], ids=["laptop, dark", "phone"])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(page, tape, size, scheme):
    page.set_viewport_size(size)
    page.evaluate("scheme => document.body.dataset.mdColorScheme = scheme", scheme)
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
    found = Axe().run(page).response["violations"]
    page.set_viewport_size(LAPTOP)
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
