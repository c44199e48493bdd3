"""The first screen says what the model is and how good, opens where several tokens may come, and shows why."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from browsing import LAPTOP, PHONE, box, settled, value, values, watched
from pellucid import load
from pellucid.api import Run
from pellucid.inspection.build import fables_of
from pellucid.inspection.explain_truth import truth_of_text
from pellucid.inspection.logit_parts import logit_parts
from pellucid.web.app import make_app
from serving import served

SMALL = {"width": 1280, "height": 720}
KEYBOARD = {"width": 390, "height": 500}  # a phone, while its keyboard covers the rest


@pytest.fixture(scope="module")
def address(fables_run: Path, chat_run: Path, lstm_run: Path) -> Iterator[str]:
    with served(make_app([fables_run, chat_run, lstm_run])) as (host, port):
        yield f"http://{host}:{port}/"


@pytest.fixture(scope="module")
def run(fables_run: Path) -> Run:
    return load(fables_run, "latest")


@contextmanager
def opened(browser: Browser, address: str, view: str = "") -> Iterator[Page]:
    """The page, when all that it asks for by itself is there: a click on what is being drawn again would be lost."""
    with watched(browser, address, f"#checkpoint=fables%404{view}") as page:
        page.wait_for_function("() => microscope.truth?.known && microscope.heads")
        page.wait_for_selector("#quality:not(:empty)")  # the metrics may come after the first trace
        yield settled(page)


def close(actual: object, expected: object) -> None:
    actual, expected = (torch.as_tensor(each, dtype=torch.float64) for each in (actual, expected))
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=0)


def test_it_says_what_the_model_is_and_how_good_and_opens_on_an_open_place(browser, address, run, fables_run):
    with opened(browser, address) as page:
        row = json.loads((fables_run / "metrics.jsonl").read_text().splitlines()[-1])
        assert value(page, "numbers") == sum(weight.numel() for weight in run.model.parameters())
        assert value(page, "read") == row["tokens"]
        expect(page.locator("#part-machine .lead")).to_contain_text("It reads short animal fables")
        close(value(page, "run_loss"), row["val_loss"])
        close(value(page, "run_level"), row["val_floor"])
        close(value(page, "run_excess"), row["val_loss"] - row["val_floor"])

        text = page.input_value("#machine-text")
        truth = truth_of_text(fables_of(run.trained, "test"), run.tokenizer, text).distributions[-1]
        assert 0.2 <= max(truth.values()) <= 0.5
        ids = run.trace(text).logits[-1, -1].topk(5).indices.tolist()
        close(values(page, ".outcome [data-name^='machine truth']"), [truth.get(id_, 0.0) for id_ in ids])
        assert page.locator(".outcome .key").inner_text().split() == ["model", "truth"]

        page.set_viewport_size(SMALL)
        settled(page)
        for shown in ("#quality", "#about", "#machine-text", "#write-story", "#held-out", ".diagram", ".outcome"):
            stands = box(page, shown)
            assert stands["height"] > 0, shown
            assert stands["bottom"] <= SMALL["height"], shown
            assert stands["right"] <= SMALL["width"], shown


def assert_path(page: Page, run: Run, m: int) -> None:
    """The diagram shows what each part adds to the score of the m-th candidate."""
    traced = run.trace(page.input_value("#machine-text"))
    logits_V = traced.logits[-1, -1]
    id_ = int(logits_V.topk(5).indices[m])
    parts = logit_parts(run.model, traced, len(traced.ids) - 1, [id_])
    added = values(page, ", ".join(f"[data-name='adds {point}']" for point in range(5)))
    close(added.sort().values, parts.parts[:, 0].sort().values)
    close(value(page, "score"), logits_V[id_])
    close(added.sum(), logits_V[id_])
    for layer, head in torch.cartesian_prod(*map(torch.arange, parts.heads.shape[:2])).tolist():
        shown = values(page, f"[data-name='adds {layer}.{head}']")
        close(shown if len(shown) else [0.0], parts.heads[layer, head, :1].where(torch.tensor(len(shown) > 0), 0.0))
        assert len(shown) or abs(parts.heads[layer, head, 0]) < 0.05


def test_the_path_to_the_score_of_a_candidate_adds_up_to_it(browser, address, run):
    with opened(browser, address) as page:
        assert_path(page, run, 0)
        page.click(".guesses button >> nth=2")
        assert_path(page, run, 2)
        page.click(".story .chip >> nth=1")
        settled(page)
        assert_path(page, run, 0)
        page.evaluate("microscope.store.set({ guess: true })")
        expect(page.locator(".plus")).to_have_count(0)  # it would tell how sure the model is
        page.evaluate("microscope.store.set({ guess: false, off: 'a0' })")
        settled(page)
        expect(page.locator("[data-name='adds 1']")).to_have_text("0.0")
        expect(page.locator("[data-name='adds 0.1']")).to_have_count(0)
        page.evaluate("microscope.store.set({ off: '', checkpoint: 'lstm@1' })")
        settled(page)
        expect(page.locator(".plus")).to_have_count(0)


def test_a_story_is_written_and_after_its_end_another(browser, address):
    with opened(browser, address, "&top_k=1") as page:
        begun = page.input_value("#machine-text")
        story = page.locator("#write-story")
        expect(story).to_have_text("Write a story")
        story.click()
        expect(story).to_have_text("Stop")
        page.wait_for_function("n => microscope.trace.text.length > n + 20", arg=len(begun))
        story.click()
        expect(story).to_have_text("Write a story")
        settled(page)
        assert page.input_value("#machine-text").startswith(begun)

        page.evaluate("microscope.model.stop_ids = [...microscope.model.texts.keys()]")
        page.click("#add-token")
        expect(page.locator(".refused")).to_have_text("The model ends the text here.")
        ended = page.input_value("#machine-text")
        page.evaluate("microscope.model.stop_ids = [microscope.model.end_of_text]")
        story.click()
        page.wait_for_function("() => 0 < microscope.trace.text.length && microscope.trace.text.length < 30")
        story.click()
        settled(page)
        assert not page.input_value("#machine-text").startswith(begun)
        page.go_back()
        expect(page.locator("#machine-text")).to_have_value(ended)


def test_on_a_phone_the_next_token_stays_in_sight_while_one_types(browser, address):
    with opened(browser, address) as page:
        page.set_viewport_size(PHONE)
        settled(page)
        page.set_viewport_size(KEYBOARD)
        page.focus("#machine-text")
        page.keyboard.press("Control+End")
        page.keyboard.type(" Then")
        settled(page)
        expect(page.locator(".guesses button").first).to_be_in_viewport(ratio=1)
        assert box(page, ".guesses button", 2)["y"] < KEYBOARD["height"]
        page.set_viewport_size(LAPTOP)


def test_a_conversation_runs_as_bubbles_and_its_marks_stand_in_the_text_alone(browser, address):
    with watched(browser, address, "#checkpoint=chat%401&top_k=1") as page:
        page.wait_for_function("() => microscope.trace?.text && microscope.heads")
        expect(page.locator(".bubble.assistant")).to_have_count(1)
        assert "<|" not in page.input_value("#machine-text")
        page.fill("#machine-text", "Who came?")
        settled(page)
        asked = "<|user|>Who came?<|end|><|assistant|>"
        assert page.input_value("#text") == asked
        expect(page.locator(".bubble")).to_have_count(0)
        tell = page.locator("#write-story")
        expect(tell).to_have_text("Answer")
        tell.click()
        page.wait_for_function("n => microscope.trace.text.length > n", arg=len(asked) + 5)
        tell.click()
        settled(page)
        answer = page.input_value("#text").removeprefix(asked)
        assert page.text_content(".bubble.assistant") == answer
        assert page.input_value("#machine-text") == "Who came?"

        page.evaluate("microscope.model.stop_ids = [...microscope.model.texts.keys()]")
        page.click("#add-token")
        expect(page.locator(".refused")).to_be_visible()
        page.evaluate("microscope.store.set({ top_k: 0 })")
        tell.click()  # once more, to the same question
        expect(page.locator("#text")).to_have_value(asked)

        more = f"{asked}A fox.<|end|><|user|>Where?<|end|><|assistant|>Here"
        page.fill("#text", more)
        expect(page.locator(".bubble")).to_have_text(["Who came?", "A fox.", "Here"])
        page.fill("#machine-text", "When?")  # part 3, which is out of sight, follows when the letter is answered
        expect(page.locator("#text")).to_have_value(f"{asked}A fox.<|end|><|user|>When?<|end|><|assistant|>")
