"""The page of a run that fills gaps: each token hidden alone, beside the truth given all others; nothing of writing."""

import pytest
import torch
from playwright.sync_api import expect

from browsing import settled, value, values, watched
from pellucid import load
from pellucid.data.both_sides import distributions_from_both_sides
from pellucid.errors import ConfigError
from pellucid.web.app import make_app
from pellucid.web.classroom import choices_after
from pellucid.web.microscope import Changes, Microscope
from serving import served

CHECKPOINT, PLACE = "gaps@4", 5


def close(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), atol=2e-3, rtol=1e-4)


def test_a_click_on_a_token_hides_it_and_the_page_shows_what_fits(browser, gaps_run, fables_run):
    run = load(gaps_run)
    microscope = Microscope([gaps_run])
    text = microscope.runs.held_out(CHECKPOINT, 1)[0]
    ids, mask_id = [run.tokenizer.end_of_text, *run.tokenizer.encode(text)], run.tokenizer.control_id("<|mask|>")
    hidden = torch.tensor([[*ids[:t], mask_id, *ids[t + 1 :]] for t in range(1, len(ids))])
    q_TV = torch.stack([row[t] for t, row in enumerate(run.model.eval()(hidden).detach().softmax(-1), start=1)])
    language = microscope.runs.corpus(microscope.runs.open(CHECKPOINT)).language
    p_T = list(distributions_from_both_sides(language, run.tokenizer, text))
    with served(make_app([gaps_run, fables_run])) as (_, port), watched(browser, f"http://127.0.0.1:{port}/") as page:
        settled(page)
        shown = ["1 The run", "2 The text", "3 Attention", "4 Logit lens", "5 The hidden token"]
        for headings in ("main h2", ".parts button"):
            assert page.locator(f"{headings}:visible").all_inner_texts() == shown
        expect(page.locator("#left-out")).to_contain_text("because this model fills gaps from both sides")
        for absent in ("#sample", "#set-guess", "#part-next input"):
            expect(page.locator(absent).first).to_be_hidden()
        nats_T = -q_TV[range(len(ids) - 1), ids[1:]].log()
        close(values(page, "#part-text .token")[1:], nats_T)
        close(
            values(page, "#part-text .token", "data-floor")[1:],
            [-torch.tensor(p[i]).log() for p, i in zip(p_T, ids[1:], strict=True)],
        )

        page.locator("#part-text .token").nth(PLACE).click()
        settled(page)
        expect(page.locator("#part-next h3")).to_contain_text("In place of")
        expect(page.locator("#part-next .written")).to_have_text(text[: 2 * PLACE - 2] + "▢" + text[2 * PLACE :])
        candidates = [int(each) for each in values(page, ".candidate", "data-id")]
        close(values(page, ".candidate [data-name=model]"), q_TV[PLACE - 1, candidates])
        close(values(page, ".candidate [data-name=truth]"), [p_T[PLACE - 1].get(id_, 0.0) for id_ in candidates])
        row = microscope.traced(CHECKPOINT, text)[1].attention[0, 0, PLACE]
        sources = [int(each) for each in values(page, ".source", "data-place")]
        close(values(page, ".source"), row[sources].double())
        assert value(page, "row_sum") == pytest.approx(1, abs=1e-3)

        page.locator("#part-text .token").first.click()  # it is never hidden: the next one is shown
        settled(page)
        expect(page.locator("#part-next h3")).to_contain_text("(token 1)")
        page.keyboard.press("s")
        page.keyboard.press("r")
        page.locator("#text").fill(text[:-2])
        settled(page)
        expect(page.locator(".verdict")).to_contain_text("known exactly only in a whole text")
        page.select_option("#run-choice", "fables")
        settled(page)
        expect(page.locator("#part-next h2")).to_have_text("5 The next token", use_inner_text=True)
        expect(page.locator("#sample")).to_be_visible()
        page.evaluate(f"microscope.store.set({{ other: '{CHECKPOINT}' }})")
        expect(page.locator("#part-compare .empty")).to_contain_text("B ")


def test_what_has_no_meaning_without_next_tokens_is_refused(gaps_run):
    microscope = Microscope([gaps_run])
    text = microscope.runs.examples(CHECKPOINT)[0]["text"]
    for ask in (
        lambda: microscope.heads(CHECKPOINT),
        lambda: microscope.knock_out(CHECKPOINT, 2),
        lambda: microscope.inside(CHECKPOINT, text, 0),
        lambda: microscope.beliefs(CHECKPOINT, text),
        lambda: microscope.trace(CHECKPOINT, text, changes=Changes([("attention", 0)])),
        lambda: choices_after(microscope, CHECKPOINT, text),
    ):
        with pytest.raises(ConfigError, match="gaps fills gaps from both sides"):
            ask()
    with pytest.raises(ConfigError, match="no token of it can be hidden"):
        microscope.trace(CHECKPOINT, "")
    assert microscope.deciding(CHECKPOINT, text)["places"] == []
