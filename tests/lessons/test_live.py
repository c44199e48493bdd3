"""The live parts about numbers, in a real browser and in a page without a server: they say what Python computes."""

import json
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

import lesson_00
import lesson_07
import lesson_08
import lesson_12
import lesson_15
from autodiff.operations import tanh
from autodiff.second import hessian
from autodiff.tape import gradient, value_and_gradients
from browsing import LAPTOP, PHONE
from lesson_10 import near_minimum, small_error
from live_page import number, numbers, press, slide, text
from pellucid import plain

# ---- The tape ----

EXPRESSIONS: dict[str, tuple[Callable, list[dict[str, float]]]] = {
    "x + x²": (lambda x: x + x * x, [{"x": 3}, {"x": -2.5}, {"x": 0}]),
    "u + u², with u = x²": (lambda x: x * x + x * x * (x * x), [{"x": 2}, {"x": -1.5}]),
    "tanh(w · x + b)": (
        lambda w, x, b: tanh(w * x + b),
        [{"w": 0.8, "x": 1.5, "b": -0.5}, {"w": -1.1, "x": 0.3, "b": 0}, {"w": 2, "x": -2, "b": 1.9}],
    ),
}


def to_the_end(tape: Locator) -> None:
    while tape.get_by_role("button", name="Forward").is_enabled():
        press(tape, "Forward")


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


def test_a_guess_is_told_whether_it_is_right_and_by_the_keyboard_alone(tape, live):
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
        live.keyboard.press("ControlOrMeta+A")
        live.keyboard.type(answer)
        live.keyboard.press("Enter")
        expect(tape.locator(".verdict")).to_have_text(f"Right: {answer}.")
    expect(tape.get_by_role("button", name="Again")).to_be_focused()
    live.keyboard.press("Enter")
    expect(tape.get_by_role("button", name="Forward")).to_be_focused()


def test_a_step_back_undoes_a_step_forward(tape):
    press(tape, "Forward", times=4)
    drawn = tape.locator(".graph").inner_html()
    press(tape, "Forward")
    assert tape.locator(".graph").inner_html() != drawn
    press(tape, "Step back")
    assert tape.locator(".graph").inner_html() == drawn


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
    for asked in NUMBERS:
        ask(floats, str(asked))
        is_too_large = name == "float8, E4M3" and abs(asked) > 464  # PyTorch made NaN of it, and now makes 448
        true = 0b01111110 + 0b10000000 * (asked < 0) if is_too_large else code_of(asked, name)
        assert int(bits_of(floats), 2) == true, asked


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
    for written, meant in {"2^-24": 2**-24, "−3e-5": -3e-5, "65,504": 65504, "0,5": 0.5, "1/3": 1 / 3}.items():
        ask(floats, written)
        assert numbers(floats)["value"] == float(np.float16(meant)), written
    ask(floats, "one")
    assert text(floats, ".said").startswith("Type a number, such as")


def test_the_bits_are_one_stop_of_the_keyboard(floats, live):
    press(floats, "smallest")
    live.keyboard.press("Tab")
    expect(floats.get_by_label("sign bit, minus")).to_be_focused()
    live.keyboard.press("ArrowRight")
    live.keyboard.press("Space")
    assert numbers(floats)["value"] == 2 * (1 + 2**-10)
    live.keyboard.press("Tab")
    expect(floats.get_by_role("button", name="One down")).to_be_focused()


# ---- The particles ----


def start_of(particles: Locator) -> np.ndarray:
    return np.array(json.loads(particles.get_attribute("data-start")))


def flowed(start_TD: np.ndarray, beta: float, step: float, n_layers: int, is_causal: bool) -> tuple[float, float]:
    """How far apart the tokens are at most after so many layers, and how far from where token 0 began."""
    x_TD = start_TD
    for _ in range(n_layers):
        x_TD = lesson_12.attention_flow_step(x_TD, beta, step, is_causal)
    apart = np.linalg.norm(x_TD[:, None] - x_TD, axis=2).max()
    return apart, np.linalg.norm(x_TD - start_TD[0], axis=1).max()


def test_tokens_flow_as_the_lessons_own_step_lets_them(particles):
    start_TD = start_of(particles)
    np.testing.assert_allclose(start_TD, lesson_12.tokens_on_the_sphere(24), atol=1e-4)
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


def test_nothing_moves_until_play_and_after_pause(particles, live):
    layers = particles.locator(".sliders output").first
    live.wait_for_timeout(50)
    assert layers.text_content() == "0"
    press(particles, "Play")
    expect(layers).not_to_have_text("0")
    press(particles, "Pause")
    stopped = layers.text_content()
    live.wait_for_timeout(50)
    assert layers.text_content() == stopped


# ---- Merge by merge ----

TEXTS = [
    "abracadabra",
    "aaa aaa ab ab ab",
    "I'll see 12 foxes, isn't it?  Yes, isn't it 12",
    "süße Füße, 🦊🦊 🦊",
    "no",
]


@pytest.mark.parametrize("written", TEXTS)
def test_merges_are_those_of_plain_and_so_is_what_they_make_of_the_text(merges, written):
    merges.get_by_label("Your own text").fill(written)
    at = 0
    while merges.get_by_role("button", name="Forward").is_enabled():
        press(merges, "Forward")
        at += 1
        learned = plain.learn_merges(written, at)
        assert json.loads(merges.get_attribute("data-merges")) == [list(pair) for pair in learned]
        assert json.loads(merges.get_attribute("data-ids")) == plain.encode(written, learned)
        shown = numbers(merges)
        assert shown == {"tokens": len(plain.encode(written, learned)), "vocabulary": 256 + at}
    assert plain.learn_merges(written, at + 1) == plain.learn_merges(written, at)
    press(merges, "Step back", times=bool(at))
    assert len(json.loads(merges.get_attribute("data-merges"))) == max(0, at - 1)


def test_the_next_pair_is_guessed_and_a_tie_is_explained(merges, live):
    press(merges, "r+a")
    assert text(merges, ".said") == "r+a comes 2 times. So does another pair, and its ids are smaller."
    press(merges, "c+a")
    assert text(merges, ".said") == "Not c+a: it comes once, and another pair comes more often."
    merges.get_by_role("button", name="a+b", exact=True).press("Enter")
    assert text(merges, ".said") == "Right: a+b comes 2 times; b+r does, too, but its ids are larger."
    press(merges, "Forward", times=2)
    assert text(merges, ".question") == "No pair comes twice any more, so this is the end."
    expect(merges.get_by_role("button", name="Again")).to_be_focused()
    assert merges.locator(".merges li").all_text_contents() == ["a+b (2)", "r+a (2)", "ab+ra (2)"]


# ---- p - 1 ----


def test_the_gradient_is_that_of_the_lesson_and_a_step_goes_against_it(logits):
    words = ("fox", "crow", "frog", "hare", "hen")
    for came, z in ((0, (1, 2, 0, -1, 0.5)), (3, (6, 6, -6, -6, 0.3))):
        press(logits, words[came])
        slide(logits, **dict(zip(words, z, strict=True)))
        shown, z = numbers(logits), np.array([z], dtype=float)
        gradient = lesson_07.gradient_of_cross_entropy(z, np.array([came]))[0]
        np.testing.assert_allclose([shown[f"gradient {word}"] for word in words], gradient, atol=1e-6)
        np.testing.assert_allclose(shown["loss"], -lesson_07.stable_log_softmax(z)[0, came], atol=1e-5)
        assert abs(shown["sum of the gradient"]) < 1e-6
    press(logits, "Again")
    press(logits, "Add 1 to all logits")
    raised = numbers(logits)
    press(logits, "Again")
    for name, value in numbers(logits).items():
        assert raised[name] == pytest.approx(value + name.startswith("z "), abs=1e-6)
    press(logits, "Step")
    stepped = numbers(logits)
    z = np.array([[1, 2, 0, -1, 0.5]])
    after = z - 2 * lesson_07.gradient_of_cross_entropy(z, np.array([3]))
    np.testing.assert_allclose([stepped[f"z {word}"] for word in words], after[0], atol=1e-6)
    assert stepped["loss"] < raised["loss"]


# ---- A gradient that fades ----


def test_what_is_left_of_a_gradient_is_what_the_lesson_computes(fading):
    for gain, size, bias, n in ((1.0, 0.3, 1.0, 20), (0.5, 0.0, 5.0, 100), (1.2, 0.9, 0.0, 7)):
        slide(fading, gain=gain, state=size, bias=bias, distance=n)
        shown = numbers(fading)
        W = gain * np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
        jacobian = lesson_08.jacobian_through_time(W, np.full((n, 4), size))
        assert shown["RNN"] == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-5)
        f = 1 / (1 + math.exp(-bias))
        assert shown["LSTM"] == pytest.approx(f**n, rel=1e-5)
        assert f ** shown["half of LSTM"] == pytest.approx(0.5, rel=1e-4)
    slide(fading, gain=1.5, state=0)
    assert "The RNN's gradient explodes: 1.50 times as much with each step." in text(fading, ".said")


# ---- The edge ----

BESIDE = near_minimum() + 0.002 * np.random.default_rng(0).normal(size=15)


def theta_of(edge: Locator) -> np.ndarray:
    return np.array(json.loads(edge.get_attribute("data-theta")))


def sharpness_at(theta: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(hessian(small_error, theta))[-1])


@pytest.mark.parametrize("share", [0.5, 0.95, 1.01, 1.2])
def test_a_rate_leads_where_python_says(edge, share):
    limit = 2 / sharpness_at(near_minimum())
    slide(edge, share=share, step=30)
    theta = BESIDE
    for _ in range(30):
        theta = theta - share * limit * gradient(small_error, theta)
    shown = numbers(edge)
    np.testing.assert_allclose(theta_of(edge), theta, atol=1e-6)
    assert shown["rate"] == pytest.approx(share * limit, rel=1e-6)
    assert shown["2 / rate"] == pytest.approx(2 / shown["rate"], rel=1e-5)
    assert shown["factor"] == pytest.approx(1 - 2 * share, abs=1e-6)
    assert shown["error"] == pytest.approx(float(small_error(theta) - small_error(near_minimum())), rel=1e-4)
    assert shown["sharpness"] == pytest.approx(sharpness_at(theta), rel=1e-4)


def test_above_the_limit_it_ends_where_the_sharpness_is_about_what_the_rate_demands(edge):
    for share in ("1.05", "1.2", "1.5"):  # a walk that is long and sensitive: its place is taken as it is
        press(edge, share)
        slide(edge, step=500)
        shown = numbers(edge)
        assert shown["sharpness"] == pytest.approx(sharpness_at(theta_of(edge)), rel=1e-4)
        assert shown["2 / rate"] == pytest.approx(shown["sharpness"], rel=0.06)
        assert text(edge, ".said").startswith("It does not fly away")
    press(edge, "0.95")
    assert numbers(edge)["error"] < 1e-7
    assert text(edge, ".said").startswith("Below the limit")


def test_the_rate_and_the_step_are_set_by_the_keyboard(edge, live):
    edge.locator("[data-input=share]").focus()
    live.keyboard.press("ArrowRight")
    assert edge.locator(".sliders output").all_text_contents() == ["0.96", "10"]
    live.keyboard.press("Tab")
    live.keyboard.press("End")
    assert edge.locator(".sliders output").all_text_contents() == ["0.96", "500"]


# ---- A ring of devices ----


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_the_ring_hands_on_what_the_lessons_own_ring_does(ring, n):
    """In each chunk lie a 1, whose sum counts the devices, and the chunk's number."""
    start = [np.array([[1.0, chunk] for chunk in range(n)]) for _ in range(n)]
    wire, sent = lesson_15.Ring(n), []

    def pass_right(messages):
        sent.append([(round(count), round(of / count)) for count, of in messages])
        return wire.pass_right(messages)

    in_the_end = lesson_15.ring_all_reduce(start, pass_right)
    press(ring, f"{n} devices")
    for k, messages in enumerate(sent):
        before = numbers(ring)
        for device, (count, chunk) in enumerate(messages):
            assert before[f"device {device}, chunk {chunk}"] == count
        count, chunk = messages[k % n]
        press(ring, f"chunk {(chunk + 1) % n}")
        expect(ring.locator(".verdict")).to_contain_text(f"Not {(chunk + 1) % n}.")
        press(ring, f"chunk {chunk}")
        expect(ring.locator(".verdict")).to_have_text(f"Right: device {k % n} hands on chunk {chunk}.")
        assert numbers(ring)["sent"] == pytest.approx((k + 1) / n, rel=1e-6)
    shown = numbers(ring)
    assert [shown[f"device {i}, chunk {j}"] for i in range(n) for j in range(n)] == np.array(in_the_end)[
        ..., 0
    ].ravel().tolist()
    assert shown["sent in the end"] == pytest.approx(wire.n_sent[0] / start[0].size, rel=1e-6)
    assert shown["through device 0"] == 2 * (n - 1)
    assert ring.get_by_role("button", name="Next round").is_disabled()
    expect(ring.get_by_role("button", name="Again")).to_be_focused()


def test_a_round_of_the_ring_can_be_taken_back_and_the_keyboard_goes_on(ring, live):
    press(ring, "Next round", times=2)
    drawn = ring.locator("table").inner_html()
    press(ring, "Next round")
    assert text(ring, ".said").startswith("Round 3 of 6. What arrived was added. Now each chunk is complete on one")
    press(ring, "Step back")
    assert ring.locator("table").inner_html() == drawn
    ring.get_by_role("button", name="Next round").focus()
    for _ in range(4):
        live.keyboard.press("Enter")
    assert text(ring, ".said") == "Round 6 of 6. What arrived was kept. All devices have all sums."
    expect(ring.get_by_role("button", name="Again")).to_be_focused()


# ---- All of them ----


@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "slate"), (PHONE, "default")], ids=["laptop, dark", "phone"])
def test_nothing_is_wider_than_the_window_and_axe_finds_nothing(live, tape, size, scheme):
    live.set_viewport_size(size)
    live.evaluate("scheme => document.body.dataset.mdColorScheme = scheme", scheme)
    for title in EXPRESSIONS:
        press(tape, title)
        to_the_end(tape)
        assert live.evaluate("document.documentElement.scrollWidth") <= size["width"]
        outside = """graph => { const frame = graph.getBoundingClientRect();
            return [...graph.querySelectorAll("text")].filter((each) => {
                const box = each.getBoundingClientRect();
                return box.left < frame.left || box.right > frame.right; }).map((each) => each.textContent); }"""
        assert tape.locator(".graph").evaluate(outside) == []
    press(tape, "Step back")
    found = Axe().run(live).response["violations"]
    live.set_viewport_size(LAPTOP)
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


# ---- The six guesses ----

PLACES = (10, 47, 64, 70, 77, 122)  # of lesson 0's page
ANA = ["fox 0.3, mouse 0.2, cat 0.2", "owl 30%, fox 30%, crow 10%", "Edgar 0.9", "third 0.6; next 0.2",
       "forgot 0,5, never 1/5", "a .4, never .2"]  # fmt: skip


def came_and_truth() -> list[tuple[str, float]]:
    fables = lesson_00.Fables(24)
    fable = fables.write(random.Random(0))
    words = [lesson_00.first_words(fable, n + 1).split()[-1] for n in PLACES]
    return [
        (word, lesson_00.next_words(fables, lesson_00.first_words(fable, n))[word])
        for n, word in zip(PLACES, words, strict=True)
    ]


def bet(guess: Locator, text: str) -> None:
    guess.get_by_label("One to three words").fill(text)
    press(guess, "Bet")


def test_guesses_pay_what_lesson_0_computes(guess):
    for bets in ANA:
        bet(guess, bets)
    shown = numbers(guess)
    named = [{"fox": 0.3, "mouse": 0.2, "cat": 0.2}, {"owl": 0.3, "fox": 0.3, "crow": 0.1}, {"Edgar": 0.9},
             {"third": 0.6, "next": 0.2}, {"forgot.": 0.5, "never": 0.2}, {"A": 0.4, "Never": 0.2}]  # fmt: skip
    for i, ((word, p), each) in enumerate(zip(came_and_truth(), named, strict=True)):
        paid = lesson_00.surprise_of_guess(each, word, 1000)
        assert shown[f"you-{i}"] == shown[f"ana-{i}"] == pytest.approx(paid, abs=2e-6)
        assert shown[f"truth-{i}"] == pytest.approx(lesson_00.surprise(p), abs=1e-5)
    assert (round(shown["ana-all"], 2), round(shown["truth-all"], 2)) == (20.46, 7.23)  # as the page says
    assert "13.23 could have been saved" in text(guess, ".text")


def test_a_guess_that_makes_no_sense_is_not_paid_and_never_is_for_ever(guess):
    for wrong, why in (("fox", "write a word and its probability"), ("fox 0.9, owl 0.3", "these have 1.2"),
                       ("fox 0.2, Fox 0.1", "twice")):  # fmt: skip
        bet(guess, wrong)
        expect(guess.locator(".verdict")).to_contain_text(why)
    assert numbers(guess) == {}
    bet(guess, "fox 1")
    assert numbers(guess)["you-0"] == math.inf
    expect(guess.locator(".said")).to_contain_text(
        "It was “frog”. You gave it 0 and pay ∞ nats; the truth gave it 0.024"
    )
    for _ in PLACES[1:]:
        bet(guess, "")  # nothing named: all 1,000 words are alike
    assert numbers(guess)["you-1"] == pytest.approx(math.log(1000), abs=1e-5)
    assert "must be right for ever" in text(guess, ".text")


def test_guesses_are_made_by_the_keyboard_alone(guess, live):
    guess.get_by_label("One to three words").focus()
    for _ in PLACES:
        live.keyboard.type("fox 0.5")
        live.keyboard.press("Enter")
    expect(guess.get_by_role("button", name="Again")).to_be_focused()
    live.keyboard.press("Enter")
    expect(guess.get_by_label("One to three words")).to_be_focused()
    assert numbers(guess) == {}
