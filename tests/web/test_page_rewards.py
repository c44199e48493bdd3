"""Part 1 of the page shows what a run that learns from rewards or pairs makes larger, and what would be best."""

import math

import pytest
from playwright.sync_api import expect

from browsing import settled, value, watched
from pellucid.training.metrics import read_rows
from pellucid.web.app import make_app
from serving import served

GRPO = {"type": "grpo", "group_size": 2, "max_new_tokens": 4}


@pytest.fixture(scope="module")
def grpo_run(learned_further):
    return learned_further(GRPO, steps=4)


def test_a_run_that_learns_from_rewards_shows_them_below_the_most_there_is(browser, grpo_run):
    rows = {row["step"]: row for row in read_rows(grpo_run / "metrics.jsonl")}
    with (
        served(make_app([grpo_run])) as (_, port),
        watched(browser, f"http://127.0.0.1:{port}/", "#checkpoint=grpo@2") as page,
    ):
        curves = settled(page).locator("#part-run .measures button")
        expect(curves).to_have_text(["reward", "KL", "loss"])
        assert [value(page, name) for name in ("val_reward", "level")] == [rows[2]["val_reward"], 1]
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


def test_a_run_that_learns_from_pairs_shows_how_often_it_is_right_and_what_guessing_gives(browser, learned_further):
    runs = [learned_further({"type": objective}) for objective in ("dpo", "reward_model")]
    with served(make_app(runs)) as (_, port), watched(browser, f"http://127.0.0.1:{port}/") as page:
        curves = page.locator("#part-run .measures button")
        for run in runs:
            settled(page).evaluate("checkpoint => microscope.store.set({ checkpoint, curve: '' })", f"{run.name}@1")
            [row] = read_rows(run / "metrics.jsonl")
            expect(settled(page).locator("#run-choice")).to_have_value(run.name)
            expect(curves).to_have_text(["accuracy", "margin", "loss"])
            assert [value(page, name) for name in ("val_accuracy", "level")] == [row["val_accuracy"], 0.5]
            curves.filter(has_text="loss").click()
            assert value(page, "val_loss") == pytest.approx(row["val_loss"], rel=1e-6)
            assert value(page, "level") == pytest.approx(math.log(2))
