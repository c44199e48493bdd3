"""The live parts about models, in a real browser and in a page without a server: they say what Python computes."""

import json
import math

import numpy as np
import pytest
import torch
from playwright.sync_api import Locator, expect
from torch.utils.flop_counter import FlopCounterMode

import lesson_11
import lesson_13
import lesson_14
import pellucid
from live_page import number, numbers, press, slide, text
from pellucid.model.positions import Rotary

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


# ---- The tilted reference ----

REFERENCE_QX = lesson_14.Policy().log_p().detach().exp()
JUDGED_X = lesson_14.REWARDS_QX[1].clone()
JUDGED_X[lesson_14.ANSWERS.index("fox sing again .")] = 1.25
TILTED = {
    "about owl ?": (REFERENCE_QX[1], lesson_14.REWARDS_QX[1]),
    "about fox ?": (REFERENCE_QX[0], lesson_14.REWARDS_QX[0]),
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
        best_X = lesson_14.optimal_policy(reference_X[None], rewards_X[None], beta)[0]
        shown = numbers(tilt)
        np.testing.assert_allclose([shown[name] for name in lesson_14.ANSWERS], best_X, rtol=1e-5)
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
    best_X = lesson_14.optimal_policy(REFERENCE_QX[1:], JUDGED_X[None], 0.05)[0]
    assert numbers(tilt)["truth"] == pytest.approx(float(best_X @ lesson_14.REWARDS_QX[1]), rel=1e-5)
    assert "worse than the reference, 0.525." in text(tilt, ".said")


def test_the_point_on_the_curve_is_what_the_price_buys(tilt):
    at_price(tilt, 0.5)
    point, shown = tilt.locator("circle.now"), numbers(tilt)
    assert float(point.get_attribute("data-kl")) == pytest.approx(shown["KL"], rel=1e-5)
    assert float(point.get_attribute("data-value")) == pytest.approx(shown["reward"], rel=1e-5)


# ---- Beams ----

BEAMS = {1: "1 beam: greedy", 2: "2 beams", 3: "3 beams"}


def beams_after(n_tokens: int, n_beams: int) -> list[tuple[str, float]]:
    """The beams of lesson 13's search after so many rounds."""
    found = lesson_13.beam_search(
        lambda text: lesson_13.small_tree(text) if len(text) < n_tokens else {}, n_beams=n_beams
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
    children = {a + b: lesson_13.small_tree(())[a] * p for a in "AB" for b, p in lesson_13.small_tree((a,)).items()}
    assert numbers(beam) == pytest.approx(children)
    press(beam, "Forward")
    assert text(beam, ".said").startswith("AB (0.2) and AC (0.15) stay. B has no child among them.")
    drawn = beam.locator(".tree").inner_html()
    press(beam, "Forward")
    press(beam, "Step back")
    assert beam.locator(".tree").inner_html() == drawn


def test_what_greedy_and_two_and_three_beams_find(beam, live):
    press(beam, "2 beams")
    beam.get_by_role("button", name="Forward").focus()
    for _ in range(8):
        live.keyboard.press("Enter")
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
    """The work of writing the `new`-th token, counted one by one: the last position has read the token before."""
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
            assert shown[f"all positions {side}"] == lesson_13.positions_computed(N_PROMPT, new, has_cache)
        sizes = {letter: model[letter] for letter in "LDHG"}
        assert shown["kept bytes with"] == lesson_11.kv_cache_bytes(N_PROMPT + new - 1, **sizes)
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


def test_the_text_and_the_rows_grow_to_their_end(cache, live):
    cache.get_by_role("button", name="Write a token").focus()
    live.keyboard.press("Enter")
    assert text(cache, ".newest") == " young"
    assert [cache.locator(f".{side} rect.computed").count() for side in ("with", "without")] == [2, 2]
    press(cache, "Write ten", times=4)
    assert cache.get_by_role("button", name="Write ten").is_disabled()
    assert cache.locator(".unwritten").count() == 0
