"""Part 1 of the page shows what a run that learns from rewards or pairs makes larger, and what would be best."""

import math

import pytest
from playwright.sync_api import expect

from browsing import settled, value, watched
from pellucid.training.metrics import read_rows
from pellucid.web.app import make_app
from serving import served

GRPO = {"type": "grpo", "group_size": 2, "max_new_tokens": 4}


def test_a_run_shows_what_it_makes_larger_below_the_most_there_is_or_above_what_guessing_gives(
    browser, learned_further
):
    runs = [learned_further(GRPO, steps=4), learned_further({"type": "dpo"})]
    rows = {row["step"]: row for row in read_rows(runs[0] / "metrics.jsonl")}
    with (
        served(make_app(runs)) as (_, port),
        watched(browser, f"http://127.0.0.1:{port}/", "#checkpoint=grpo@2") as page,
    ):
        curves = settled(page).locator("#part-run .measures button")
        expect(curves).to_have_text(["reward", "KL", "loss"])
        assert [value(page, name) for name in ("val_reward", "level")] == [rows[2]["val_reward"], 1]
        expect(page.locator("#part-run [data-name^=val_]")).to_have_count(3)  # the reward, whole fables, as asked
        expect(page.locator(".curve line.floor")).to_have_count(1)
        curves.filter(has_text="KL").click()
        assert value(page, "val_kl") == pytest.approx(rows[2]["val_kl"], rel=1e-6)
        expect(page.locator(".curve line.floor")).to_have_count(0)
        page.focus(".curve")
        page.keyboard.press("End")
        assert value(settled(page), "val_kl") == pytest.approx(rows[4]["val_kl"], rel=1e-6)
        page.wait_for_url(lambda url: "curve=KL" in url)
        page.reload()
        expect(settled(page).locator("#part-run .measures [aria-pressed=true]")).to_have_text("KL")

        page.evaluate("microscope.store.set({ checkpoint: 'dpo@1', curve: '' })")
        [row] = read_rows(runs[1] / "metrics.jsonl")
        expect(settled(page).locator("#run-choice")).to_have_value("dpo")
        expect(curves).to_have_text(["accuracy", "margin", "loss"])
        assert [value(page, name) for name in ("val_accuracy", "level")] == [row["val_accuracy"], 0.5]
        curves.filter(has_text="loss").click()
        assert value(page, "val_loss") == pytest.approx(row["val_loss"], rel=1e-6)
        assert value(page, "level") == pytest.approx(math.log(2))
