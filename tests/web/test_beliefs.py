"""The page of a run on another language than fables: the belief about a hidden state, and its own skills."""

import re

import pytest
import torch
from playwright.sync_api import expect

from browsing import settled, value, watched
from pellucid import train
from pellucid.inspection.beliefs import belief_maps
from pellucid.inspection.trace import trace_text
from pellucid.languages.hidden import Hidden, mess3
from pellucid.trained import load_trained_run
from pellucid.web import microscope
from pellucid.web.app import make_app
from pellucid.web.microscope import Microscope
from pellucid.web.runs import Runs
from serving import served

LANGUAGE = Hidden(mess3(0.05, 0.85), 30)
TEXT = " a a b"


@pytest.fixture(autouse=True)
def few_documents(monkeypatch):
    monkeypatch.setattr(microscope, "N_DOCUMENTS_OF_BELIEFS", 40)


@pytest.fixture(scope="module")
def runs(fables_run, tmp_path_factory):
    """Two runs, each trained a little on another language: `hidden` and `sums`."""
    folder = tmp_path_factory.mktemp("languages")
    for corpus in ({"type": "hidden", "length": 30, "size": 200, "validation_fraction": 0.05}, {"type": "sums"}):
        changes = {"corpus": corpus, "model.context_length": 32, "tokenizer.vocab_size": 300}
        name = corpus["type"]
        train(fables_run / "config.yaml", folder / name, overrides=changes, steps=2, data_dir=folder / "data")
    return [folder / "hidden", folder / "sums"]


@pytest.fixture(scope="module")
def hidden_run(runs):
    return runs[0]


def test_the_beliefs_are_those_of_the_language_and_of_a_map_of_the_residual_stream(hidden_run):
    found = Microscope([hidden_run]).beliefs("hidden@2", TEXT)
    assert found["truth"] == [LANGUAGE.stationary, *LANGUAGE.beliefs(TEXT)]
    trained, _ = load_trained_run(hidden_run)
    maps = belief_maps(trained.model, trained.tokenizer, LANGUAGE, 40)
    residuals_NTD = trace_text(trained.model, trained.tokenizer, TEXT).residuals
    with_ones = torch.cat([residuals_NTD, torch.ones(*residuals_NTD.shape[:2], 1)], dim=-1).double()
    read_NTS = torch.tensor(found["read"], dtype=torch.float64)
    torch.testing.assert_close(read_NTS, with_ones @ torch.tensor(maps.weights))
    assert read_NTS.sum(-1).allclose(torch.ones(()).double())  # as the beliefs that it was fitted on
    assert found["explained"][0] == pytest.approx(0.75, abs=0.15)  # the embedding has the last symbol, and no other


def test_no_belief_is_shown_of_a_text_that_no_document_begins_with(hidden_run, fables_run):
    page = Microscope([hidden_run, fables_run])
    assert page.beliefs("hidden@2", " a x") == page.beliefs("fables@4", TEXT) == {"known": False}


def test_the_page_shows_the_truth_what_the_chosen_point_has_of_it_and_examples_by_skill(browser, runs):
    with (
        served(make_app(runs)) as (_, port),
        watched(browser, f"http://127.0.0.1:{port}/", f"#text={TEXT.replace(' ', '%20')}") as page,
    ):
        beliefs = settled(page).locator("#part-lens .beliefs")
        beliefs.scroll_into_view_if_needed()
        found = Microscope(runs).beliefs("hidden@2", TEXT)
        for state in range(3):
            assert value(page, f"true_{'ABC'[state]}") == pytest.approx(found["truth"][-1][state], rel=1e-5)
            assert value(page, f"read_{'ABC'[state]}") == pytest.approx(found["read"][-1][-1][state], rel=1e-5)
        page.locator("#part-lens [data-point='0'][data-place='1']").click()
        assert value(settled(page), "read_A") == pytest.approx(found["read"][0][1][0], rel=1e-5)
        assert value(page, "true_A") == pytest.approx(found["truth"][1][0], rel=1e-5)
        expect(beliefs.locator("svg circle")).to_have_count(len(found["read"]) + 1)
        expect(beliefs.locator("svg")).to_have_attribute("aria-label", re.compile("Truth: A"))
        expect(page.locator("#part-machine .story .chip")).to_have_text(["a free choice", "symbol", "a held-out text"])

        page.evaluate("microscope.store.set({ checkpoint: 'sums@2', text: '7 3 + 8 5' })")
        expect(page.locator(".verdict")).to_contain_text("Here a text begins with a blank")
        page.locator("#part-machine .story .chip", has_text="digits").click()
        expect(page.locator(".verdict")).to_contain_text("a text can begin like this.")


def test_the_table_of_knock_outs_leaves_out_skills_that_do_not_occur(modules):
    headings = modules.evaluate(
        """async () => {
            const { knockTable } = await import("/static/knock_table.js");
            const skills = { seen: 1, unseen: 0 };
            const table = knockTable({ floor: skills, intact: skills, knocked_out: [] }, () => null);
            return [...table.querySelectorAll("thead th")].map((each) => each.textContent);
        }"""
    )
    assert headings == ["without", "seen", "all"]


def test_an_example_of_short_documents_is_a_beginning_that_needs_its_skill(runs):
    sums = Runs(runs)
    documents = sums.held_out("sums@2", 40)
    examples = {each["skill"]: each["text"] for each in sums.examples("sums@2")}
    assert {"digits", "numbers"} <= set(examples)
    assert all(any(each.startswith(text) for each in documents) for text in examples.values())
    assert examples["digits"].endswith(" =")
