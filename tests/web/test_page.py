"""The page in a real browser: every number is torch's, every part can be reached, and nothing leaves this machine."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from browsing import LAPTOP, PHONE, settled, value, values, watched
from pellucid import load
from pellucid.api import Run
from pellucid.generation.sampling import apply_temperature, keep_top_k, keep_top_p
from pellucid.inspection.attribution import what_decides
from pellucid.inspection.build import fables_of, scores_of_run
from pellucid.inspection.explain import beginning_that_fits
from pellucid.inspection.explain_truth import truth_of_text
from pellucid.tokenizer.chat import prompt_ids
from pellucid.web.app import make_app
from pellucid.web.runs import NOT_BEGUN, Runs
from serving import served

CHANGE_OF_ADDRESS = """said => new Promise((heard, gaveUp) => {
  setTimeout(() => gaveUp(new Error("the browser told no change of address")), 60_000); // nothing else would end it
  const to = `#${new URLSearchParams(said)}`;
  addEventListener("hashchange", () => heard(), { once: true }); // the page has heard it before
  if (location.hash === to) dispatchEvent(new Event("hashchange")); // the view may be ahead of its address
  else location.hash = to;
})"""
PAUSE = 900  # milliseconds at each part of a pass
CONTROLS = "button, select, textarea, input, summary, [role=slider]"


@pytest.fixture(scope="module")
def address(fables_run: Path) -> Iterator[str]:
    """Where the page of the run is served."""
    with served(make_app([fables_run])) as (host, port):
        yield f"http://{host}:{port}/"


@pytest.fixture(scope="module")
def window(browser: Browser, address: str) -> Iterator[Page]:
    """One window for all tests, whose page is complete: it has heard of the run and measured its parts."""
    with watched(browser, address) as page:
        page.wait_for_function("() => microscope.metrics.fables && microscope.samples.fables")
        page.wait_for_selector("[data-row='1.1']")
        yield page


@pytest.fixture
def show(window: Page):
    """Shows the view of an address, in the one window, and waits until it is drawn."""

    def shown(**state: object) -> Page:
        said = {key: json.dumps(each) if isinstance(each, bool) else str(each) for key, each in state.items()}
        window.evaluate(CHANGE_OF_ADDRESS, said)
        return settled(window)

    return shown


@pytest.fixture(scope="module")
def run(fables_run: Path) -> Run:
    return load(fables_run, "latest")


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    """The beginning of a held-out fable."""
    return next(run.trained.corpus().pieces("validation")).text[:40].rpartition(" ")[0]


def close(actual: torch.Tensor | float, expected: torch.Tensor | float) -> None:
    actual, expected = (torch.as_tensor(each, dtype=torch.float64) for each in (actual, expected))
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=0, equal_nan=True)


def test_surprise_and_floor_of_each_token_are_torchs_and_the_grammars(show, run, text):
    page = show(text=text)
    traced, truth = run.trace(text), truth_of_text(fables_of(run.trained, "test"), run.tokenizer, text)
    log_q_TV, following = traced.logits[-1].log_softmax(-1), traced.ids[1:]
    surprise = -log_q_TV[range(len(following)), following]
    floors = zip(truth.distributions, following, strict=False)
    floor = -torch.tensor([p[id_] for p, id_ in floors], dtype=torch.float64).log()

    close(values(page, "#part-text .token")[1:], surprise)
    close(values(page, "#part-text .token", "data-floor")[1:], floor)
    close(value(page, "surprise"), surprise.mean())
    close(value(page, "excess"), (surprise - floor).mean())


def test_the_first_screen_shows_the_text_on_its_way_through_the_model(show, run, text):
    page = show(text=text)
    traced = run.trace(text)
    for layer, head in torch.cartesian_prod(*map(torch.arange, traced.attention.shape[:2])).tolist():
        close(value(page, f"machine {layer}.{head}"), traced.attention[layer, head, -1].max())
    p, ids = traced.logits[-1, -1].softmax(-1).topk(5)
    close(torch.tensor([value(page, f"machine p {id_}") for id_ in ids.tolist()]), p)
    so_far = page.locator("#part-machine .so-far").all_text_contents()
    best = traced.logits[:, -1].softmax(-1).max(-1).values
    assert [float(said.rpartition(" ")[2].strip("%")) for said in so_far] == pytest.approx(
        (100 * best).tolist(), abs=0.1
    )


def test_a_part_of_the_first_screen_is_the_door_to_its_panel(show, text):
    page = show(text=text, head="0.0")
    page.click("#part-machine .is-attention button.title >> nth=1")
    expect(page.locator("#h-attention")).to_be_in_viewport()
    settled(page)  # a click would be lost on a button that is being drawn again
    page.click("#part-machine .heads button[aria-label^='Head 1.1']")
    page.wait_for_function("() => microscope.state.head === '1.1'")
    settled(page)
    page.click("#part-machine .is-feed_forward button.title >> nth=0")
    expect(page.locator("#h-inside")).to_be_in_viewport()
    page.wait_for_function("() => microscope.state.head === '0.0' && microscope.state.inside")


def test_a_pass_lights_each_part_in_its_order_and_then_stops(browser, address, text):
    with watched(browser, address, f"#{urlencode({'text': text})}") as page:  # its own: the clock stays stopped
        settled(page)
        page.clock.install(time=0)
        page.clock.pause_at(100_000)
        stages = page.locator("#part-machine .stage")
        page.locator("#pass").dispatch_event("click")
        for n in range(1, stages.count() + 1):
            assert stages.evaluate_all("all => all.map((each) => each.classList.contains('lit'))") == [
                i < n for i in range(stages.count())
            ]
            assert page.locator(".caption").text_content() == stages.nth(n - 1).get_attribute("data-says")
            page.clock.run_for(PAUSE)
        assert page.locator("#part-machine .lit").count() == 0


def test_what_is_typed_on_the_first_screen_moves_the_whole_page(show, run, text):
    page = show(text=text)
    page.fill("#machine-text", f"{text} and")
    settled(page)
    assert page.input_value("#text") == f"{text} and"
    close(value(page, "tokens"), len(run.trace(f"{text} and").ids) - 1)
    page = show(text=text, temperature=0)
    page.click("#add-token")
    settled(page)
    best = int(run.trace(text).logits[-1, -1].argmax())
    assert page.input_value("#machine-text") == text + run.tokenizer.decode([best])


WATCH_DRAWING = """() => {
  const { draw } = microscope;
  const nameAt = (selector) => document.querySelector(selector).textContent;
  window.seen = [];
  microscope.draw = () => {
    draw();
    seen.push([microscope.isTyping, nameAt("#part-machine .tokens .here"), nameAt("#part-next h3 .mono")]);
  };
}"""


def test_while_somebody_types_the_parts_out_of_sight_wait(browser, address, text):
    with watched(browser, address, f"#{urlencode({'text': text})}") as page:
        settled(page)
        page.evaluate(WATCH_DRAWING)
        page.focus("#machine-text")
        page.keyboard.press("Control+End")
        page.keyboard.type("!")
        settled(page)
        seen = page.evaluate("seen")
    _, before, _ = seen[0]  # the letter is there, and its trace is not
    assert [True, "!", before] in seen
    assert seen[-1] == [False, "!", "!"]


def test_the_temperature_of_the_first_screen_is_that_of_part_5(show, run, text):
    page = show(text=text)
    page.fill("#machine-temperature", "0.5")
    settled(page)
    assert page.input_value("#slider-temperature") == "0.5"
    p, ids = (2 * run.trace(text).logits[-1, -1]).softmax(-1).topk(5)
    close(torch.tensor([value(page, f"machine p {id_}") for id_ in ids.tolist()]), p)


def test_the_first_screen_outlines_the_words_that_decide_however_far_back_they_are(show, run, fables_run):
    example = next(each for each in Runs([fables_run]).examples("fables@4") if each["skill"] == "recall")["text"]
    places = what_decides(fables_of(run.trained, "test"), run.tokenizer, example)[-1]
    page = show(text=example)
    expect(page.locator("#part-machine .decides")).to_have_count(min(len(places), 2))
    page.click("#part-machine .decides button >> nth=-1")
    assert page.evaluate("microscope.state.at") in places


def test_a_projector_shows_the_whole_model_at_once(show, text):
    page = show(text=text, large=True)
    page.set_viewport_size({"width": 1280, "height": 720})
    settled(page)
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    for box in page.eval_on_selector_all(
        "#part-machine .stage", "all => all.map((each) => each.getBoundingClientRect().toJSON())"
    ):
        assert box["left"] >= 0, box
        assert box["right"] <= 1280, box
        assert box["bottom"] <= 720, box
    page.set_viewport_size(LAPTOP)


def test_what_is_switched_off_is_crossed_out_on_the_first_screen(show, text):
    page = show(text=text, off="1.0 f0")
    assert page.locator("#part-machine button.off").get_attribute("aria-label").startswith("Head 1.0")
    assert page.locator("#part-machine .stage.off .title").text_content() == "Feed-forward"


def test_a_click_on_a_token_moves_every_panel_there(show, run, text):
    page = show(text=text, head="1.0", inside=True)
    page.click("#part-text .token[data-place='3']")
    settled(page)
    traced = run.trace(text)
    logits_NV, row_S = traced.logits[:, 3], traced.attention[1, 0, 3]

    places = values(page, "#part-attention .source", "data-place").long()
    close(values(page, "#part-attention .source"), row_S[places])
    close(value(page, "row_sum"), 1.0)
    ids = values(page, "#part-next .candidate", "data-id").long()
    close(values(page, "#part-next [data-name=model]", "data-raw"), logits_NV[-1].softmax(-1)[ids])
    p = truth_of_text(fables_of(run.trained, "test"), run.tokenizer, text).distributions[3]
    close(values(page, "#part-next [data-name=truth]"), torch.tensor([p.get(int(id_), 0.0) for id_ in ids]))
    true_p = torch.tensor(list(p.values()), dtype=torch.float64)
    log_q = logits_NV[-1].double().log_softmax(-1)[list(p)]
    close(value(page, "kl"), (true_p * (true_p.log() - log_q)).sum())
    close(value(page, "kl_truth"), (true_p * (true_p.log() - log_q)).sum())
    close(value(page, "entropy"), -(true_p * true_p.log()).sum())
    for step in traced.inside(1):
        if step.values.dim() == 2:
            [mean] = values(page, f"[data-step='{step.sublayer} {step.name}'] [data-name^=mean]")
            close(mean, step.values[3].mean())


def test_the_logit_lens_is_the_models_norm_and_unembedding_at_each_point(show, run, text):
    page = show(text=text)
    logits_NTV = run.trace(text).logits
    n, t = (values(page, ".cell", f"data-{name}").long() for name in ("point", "place"))
    log_q = logits_NTV.log_softmax(-1)
    best = logits_NTV.softmax(-1).max(-1)

    assert torch.equal(values(page, ".cell", "data-id").long(), best.indices[n, t])
    close(values(page, ".cell"), best.values[n, t])
    close(values(page, ".cell", "data-kl"), (log_q[-1].exp() * (log_q[-1] - log_q)).sum(-1)[n, t])

    page.click(f".cell[data-point='1'][data-place='{t.max()}']")
    settled(page)
    close(value(page, "kl_end"), (log_q[-1, -1].exp() * (log_q[-1, -1] - log_q[1, -1])).sum())
    ids = values(page, "#part-lens .likeliest li", "data-id").long()
    close(values(page, "#part-lens .likeliest li"), logits_NTV[1, -1].softmax(-1)[ids])


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.5, 0, 1), (1.3, 7, 1), (1, 0, 0.4), (0.8, 20, 0.75), (0, 0, 1)]
)
def test_the_sliders_act_on_the_logits_as_sampling_does(show, run, text, temperature, top_k, top_p):
    page = show(text=text)
    for name, chosen in {"temperature": temperature, "top_k": top_k, "top_p": top_p}.items():
        page.fill(f"#slider-{name}", str(chosen))
    settled(page)
    logits_1V = run.trace(text).logits[-1, -1:]
    expected_V = torch.zeros(logits_1V.size(1))
    if temperature == 0:
        expected_V[logits_1V.argmax()] = 1
    else:
        logits_1C, ids_1C = keep_top_k(logits_1V, top_k or logits_1V.size(1))
        expected_V[ids_1C[0]] = keep_top_p(apply_temperature(logits_1C, temperature), top_p).softmax(-1)[0]

    ids = values(page, "#part-next .candidate", "data-id").long()
    close(values(page, "#part-next [data-name=model]"), expected_V[ids])
    close(value(page, "left"), (expected_V > 0).sum())


def test_a_weight_is_read_where_one_points_at_the_map(show, run, text):
    page = show(text=text, head="0.1")
    weights_TS = run.trace(text).attention[0, 1]
    box, n = page.locator("#part-attention .map").bounding_box(), len(weights_TS)
    page.locator("#part-attention .map").hover(position={"x": 2.5 * box["width"] / n, "y": 5.5 * box["height"] / n})

    close(value(page, "weight"), weights_TS[5, 2])
    ids = run.trace(text).ids
    for axis, place in (("rows", 5), ("columns", 2)):
        assert page.text_content(f".names.{axis} .here") == run.tokenizer.decode([ids[place]]).replace(" ", "␣")
    close(value(page, "least_sum"), weights_TS.sum(-1).min())
    close(value(page, "most_sum"), weights_TS.sum(-1).max())


def test_what_decides_the_next_token_is_outlined_with_how_much_the_head_takes_from_it(show, run):
    corpus, length = run.trained.corpus(), run.model.context_length
    fable = beginning_that_fits(run.tokenizer, next(corpus.pieces("validation")).text, length - 1)
    decided = enumerate(what_decides(corpus.language, run.tokenizer, fable))
    at, places = next((t, places) for t, places in decided if places)
    page = show(text=fable, at=at, head="1.1")
    page.wait_for_selector(".seen .decides", state="attached")

    is_outlined = page.eval_on_selector_all(".seen span", "all => all.map((e) => e.classList.contains('decides'))")
    assert [s for s, outlined in enumerate(is_outlined) if outlined] == places
    close(value(page, "on_deciding"), run.trace(fable).attention[1, 1, at, places].sum())


def test_attention_opens_on_the_head_that_looks_at_what_decides(browser, address, run, text):
    weights_HS = run.trace(text).attention[:, :, -1].flatten(0, 1)
    places = [s for s in range(weights_HS.size(1)) if s % 4]
    shares_H = weights_HS[:, places].sum(-1)
    page, best = browser.new_page(viewport=LAPTOP), f"{int(shares_H.argmax()) // 2}.{int(shares_H.argmax()) % 2}"
    page.route("**/api/deciding", lambda route: route.fulfill(json={"places": [places] * weights_HS.size(1)}))
    page.goto(f"{address}#{urlencode({'text': text})}")
    card = page.locator(f".thumbs [aria-selected=true][data-head='{best}']")
    expect(card).to_contain_text(f"{shares_H.max():.1%} on the outlined")
    page.keyboard.press(".")
    expect(page.locator(".thumbs [aria-selected=true]")).not_to_have_attribute("data-head", best)
    page.close()


def test_of_a_longer_text_the_map_names_every_second_or_third_token(show, run, text):
    page = show(text=f"{text} {text}")
    n_tokens = len(run.trace(f"{text} {text}").ids)
    boxes = page.eval_on_selector_all(
        ".names.rows span", "all => all.map((e) => [e.getBoundingClientRect().top, e.getBoundingClientRect().bottom])"
    )
    assert len(boxes) >= n_tokens / 3
    named = page.eval_on_selector_all(".names.rows span:not(.extra)", "all => all.map((e) => Number(e.dataset.place))")
    assert named == list(range(0, n_tokens, named[1]))


def test_a_bar_is_as_long_as_its_share(show, text):
    page = show(text=text, other="fables@2", top_k=0)
    for bars, numbers in (
        ("#part-lens .bar.model", "#part-lens .likeliest li"),
        ("#part-compare li .bar.A", "#part-compare .number[data-side=A]"),
    ):
        widths = page.eval_on_selector_all(bars, "all => all.map((e) => parseFloat(e.style.width) / 100)")
        close(torch.tensor(widths), values(page, numbers))


def test_a_step_inside_a_layer_is_told_as_its_model_computes_it(show, text):
    page = show(text=text, inside=True)
    said = page.locator(".step > p.small:not(.muted)")
    expect(said.nth(1)).to_contain_text("brought to mean 0 and variance 1")
    page.evaluate("""() => {
        const [norm, , , values, scores] = microscope.inside.steps.slice(1);
        const steps = [
            { ...norm, equations: [21] }, { ...scores, equations: [38] }, { ...values, axes: "ETF" },
            { ...norm, equations: [] },
        ];
        microscope.inside = { layer: 0, steps };
        microscope.draw();
    }""")

    expect(said.nth(0)).to_contain_text("brought to a mean square of 1")
    expect(said.nth(1)).to_contain_text("The future counts 0")
    expect(said.nth(2)).to_contain_text("Expert 0 of 2.")
    expect(said.nth(3)).to_have_text("Recorded values: no equation is known for this layer.")


def test_without_a_head_all_panels_show_the_model_without_it(show, run, text):
    page = show(text=text)
    page.click("[data-part='1.0']")
    page.click("[data-part='f0']")
    settled(page)
    without = run.trace(text, knock_out=[("head", 1, 0), ("feed_forward", 0)]).logits[-1, -1].softmax(-1)

    ids = values(page, "#part-next .candidate", "data-id").long()
    close(values(page, "#part-next [data-name=model]"), without[ids])
    close(values(page, "#part-next [data-name=base]"), run.trace(text).logits[-1, -1].softmax(-1)[ids])
    assert "without head 1.0, feed-forward 0" in page.inner_text("#status")

    page.click("#all-on")
    settled(page)
    ids = values(page, "#part-next .candidate", "data-id").long()
    close(values(page, "#part-next [data-name=model]"), run.trace(text).logits[-1, -1].softmax(-1)[ids])


def test_a_head_gives_what_it_gave_for_another_text(show, run, text):
    page = show(text=text, off="0.1")
    other = text.replace("old", "low")
    assert len(run.tokenizer.encode(other)) == len(run.tokenizer.encode(text))
    page.fill("#instead", other)
    page.press("#instead", "Tab")
    settled(page)
    assert page.inner_text("#status") == "step 4, patched head 0.1"

    patched = run.trace(text, patch={("head", 0, 1): run.trace(other)}).logits[-1, -1].softmax(-1)
    ids = values(page, "#part-next .candidate", "data-id").long()
    close(values(page, "#part-next [data-name=model]"), patched[ids])


def test_another_hero_is_put_in_the_place_of_the_first_by_one_button(show, run):
    story = "This is the story of Otto, a plump and wise fox who lived by a wide river. Everyone knew"
    page = show(text=story)
    ids = run.trace(story).ids
    page.evaluate(f"""() => {{
        const [text, swap] = [microscope.state.text, {{ from: "Otto", to: "Olive", text: "{story}" }}];
        microscope.deciding = {{ text, places: Array({len(ids)}).fill([6]), swap }};
        microscope.trace.attention.values.fill(1); // whatever the model of this test looks at
        microscope.draw();
    }}""")
    page.click("#swap")
    assert page.evaluate("microscope.state.off") != ""
    expect(page.locator("#swap-back")).to_have_text("Put Otto back")
    page.click("#swap-back")
    assert page.evaluate("microscope.state.off + microscope.state.instead") == ""


def test_the_table_of_knock_outs_is_that_of_the_run_and_its_rows_are_switches(browser, address, run, text, fables_run):
    """Measured without asking, for the checkpoint with which a page opens: so it has a window of its own."""
    with watched(browser, address, f"#{urlencode({'text': text})}") as page:
        page.wait_for_selector("[data-row='1.1']")
        assert json.loads((fables_run / "parts.json").read_text())
        table = run.knock_out(fables=int(value(page, "fables")))
        skills = [skill for skill, nats in table.intact.items() if nats]  # those that occur in these fables

        for row, part in zip(table.rows, ["0.0", "0.1", "a0", "f0", "1.0", "1.1", "a1", "f1"], strict=True):
            means = [estimate.mean for estimate in (*(row.by_skill[skill] for skill in skills), row.all)]
            close(values(page, f"[data-row='{part}'] td"), torch.tensor(means))
        for head in run.heads(fables=table.n_documents).attribution.heads:
            looks = torch.tensor([share.mean for skill, share in head.looks.items() if skill in skills])
            close(values(page, f"[data-row='{head.layer}.{head.head}'] .looks"), looks)
        page.click("[data-row='1.1'] button")
        settled(page)
        assert page.get_attribute(".switches [data-part='1.1']", "aria-checked") == "false"


def test_heads_have_the_scores_that_are_measured(show, run, text):
    page = show(text=text, head="1.1")
    measured = scores_of_run(run.trained)[-1]
    for name, score in measured.scores.items():
        close(value(page, f"score {name}"), score)


def test_dragging_the_curve_shows_the_model_of_that_moment_and_b_stands_beside_it(show, fables_run, run, text):
    page = show(text=text, other="fables@4")
    expect(page.locator(".samples h3")).to_have_text("What it wrote after 4 steps")
    expect(page.locator("#part-run aside")).to_contain_text("reads 512 held-out tokens at most")
    page.focus(".curve")
    page.keyboard.press("Home")
    settled(page)
    early = load(fables_run, 2)

    for side, model in (("A", early), ("B", run)):
        traced = model.trace(text)
        surprise = -traced.logits[-1].log_softmax(-1)[range(len(traced.ids) - 1), traced.ids[1:]]
        close(values(page, f".cell-{side}[data-side]")[1:], surprise)
        ids = values(page, "#part-compare li", "data-id").long()
        close(values(page, f"#part-compare .number[data-side={side}]"), traced.logits[-1, -1].softmax(-1)[ids])
    assert page.text_content(".run [data-name=step]").startswith("2 of")
    expect(page.locator(".samples")).to_be_empty()  # a later model wrote them


def test_part_8_opens_with_a_b_and_shows_none_if_that_is_chosen(browser, fables_run, lstm_run, text, show):
    with (
        served(make_app([fables_run, lstm_run])) as (_, port),
        watched(browser, f"http://127.0.0.1:{port}/", f"#{urlencode({'text': text})}") as page,
    ):
        expect(page.locator("#other")).to_have_value("lstm@1")  # another run that cuts text into the same tokens
        expect(page.locator("#part-compare .pair-token")).to_have_count(len(values(page, "#part-text .token")))
        expect(page.locator("#part-compare .maps")).to_contain_text("B has no attention heads.")
        page.select_option("#other", "none")
        expect(page.locator("#part-compare .pair-token")).to_have_count(0)
    page = show(text=text, checkpoint="fables@4")
    expect(page.locator("#other")).to_have_value("fables@2")  # of a single run, an earlier checkpoint
    assert show(text=text, other="none").locator("#part-compare .empty").count() == 1


def test_nothing_inside_is_asked_of_a_model_that_was_chosen_a_moment_ago(browser, fables_run, lstm_run, text):
    with (
        served(make_app([fables_run, lstm_run])) as (host, port),
        watched(browser, f"http://{host}:{port}/", f"#{urlencode({'text': text, 'checkpoint': 'fables@4'})}") as page,
    ):
        page.wait_for_selector("[data-part]", state="attached")  # a moment later part 7 asks
        page.evaluate("microscope.store.set({checkpoint: 'lstm@1'})")
        page.wait_for_timeout(1500)
        settled(page)
        page.evaluate("microscope.store.set({checkpoint: 'fables@4'})")
        page.wait_for_selector("[data-row]", state="attached")


def test_a_large_model_is_measured_only_when_that_is_asked_for(browser, fables_run, text):
    """It takes minutes in which the model answers nothing else as fast."""

    def enlarged(route):
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"n_parameters": 1e9})

    with served(make_app([fables_run])) as (host, port), watched(browser, "", "about:blank") as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        page.route("**/api/model?*", enlarged)
        page.goto(f"http://{host}:{port}/#{urlencode({'text': text})}")
        page.wait_for_selector("[data-part]", state="attached")
        page.wait_for_timeout(1500)
        assert "knock_out" not in asked
        expect(page.locator("#measure")).to_be_visible()


def test_where_there_is_one_checkpoint_part_8_says_what_it_takes_to_compare(browser, fables_run, tmp_path, text):
    shutil.copytree(fables_run, tmp_path / "one", ignore=shutil.ignore_patterns("step-*2", "snapshots"))
    with (
        served(make_app([tmp_path / "one"])) as (host, port),
        watched(browser, f"http://{host}:{port}/", f"#{urlencode({'text': text})}") as page,
    ):
        expect(page.locator("#part-compare .empty")).to_contain_text("Serve a second run beside it")
        expect(page.locator("#other")).to_be_hidden()


def test_a_word_is_explained_where_one_points_at_it(show, text):
    page = show(text=text)
    terms = page.locator(".term")
    said = terms.evaluate_all("all => all.map((each) => [each.textContent, each.dataset.says, each.tabIndex])")
    assert {"loss", "floor", "excess", "KL", "head"} <= {word for word, _, _ in said}
    assert all(says and tab == 0 for _, says, tab in said)
    shown = "each => getComputedStyle(each, '::after').content"
    floor = page.locator("#part-run .term").filter(has_text="floor")
    assert floor.evaluate(shown) == "none"
    floor.focus()
    assert floor.evaluate(shown) == f'"{floor.get_attribute("data-says")}"'


def test_the_texts_are_those_that_the_model_of_the_moment_wrote_last(show, text):
    page = show(text=text)
    written = page.evaluate("microscope.samples.fables")
    page.evaluate("""() => {
        microscope.samples.fables = [{ step: 1, texts: ["early"] }, { step: 3, texts: ["late"] }];
        microscope.draw();
    }""")
    expect(page.locator(".samples blockquote")).to_have_text("late")
    page.focus(".curve")
    page.keyboard.press("Home")
    expect(page.locator(".samples h3")).to_have_text("What it wrote after 1 step")
    expect(page.locator(".samples blockquote")).to_have_text("early")
    page.evaluate("written => (microscope.samples.fables = written)", written)


def test_sampling_adds_a_token_and_rewinding_takes_it_back(show, run, text):
    page = show(text=text, top_k=1)
    page.click("#sample")
    settled(page)
    best = int(run.trace(text).logits[-1, -1].argmax())

    assert page.input_value("#text") == text + run.tokenizer.decode([best])
    assert page.inner_text(".written") == text + run.tokenizer.decode([best])  # beside the button that wrote it
    assert page.inner_text(".written b").strip() == run.tokenizer.decode([best]).strip()
    page.click("#rewind")
    settled(page)
    assert page.input_value("#text") == text


SLOW_SERVER = """() => {
  const { trace } = microscope.source;
  const waiting = [];
  window.isReadAfterAnswers = (text) => {
    waiting.splice(0).forEach((go) => go());
    return microscope.trace.text === text;
  };
  microscope.source.trace = async (asked) => {
    await new Promise((go) => waiting.push(go));
    return trace(asked);
  };
}"""


def read(page: Page, text: str) -> None:
    """Lets the slow server answer until the page has the trace of this text."""
    page.wait_for_function("text => isReadAfterAnswers(text)", arg=text)
    assert page.input_value("#machine-text") == text


def test_what_is_typed_while_the_server_is_slow_is_what_tokens_are_added_to(browser, address, run, text):
    typed = f"{text} and then"
    ids = run.trace(typed).ids
    for _ in range(3):
        ids.append(int(run.model(torch.tensor([ids]))[0, -1].argmax()))
    with watched(browser, address, f"#{urlencode({'text': text, 'top_k': 1})}") as page:
        settled(page).evaluate(SLOW_SERVER)
        page.fill("#machine-text", typed)
        for _ in range(3):  # before the trace of what was typed is there
            page.click("#add-token")
        assert page.input_value("#machine-text") == typed
        read(page, run.tokenizer.decode(ids[1:]))
        for _ in range(2):
            page.click("#rewind")
        read(page, run.tokenizer.decode(ids[1:-2]))


def test_a_click_for_a_text_that_is_typed_over_is_forgotten(browser, address, text):
    with watched(browser, address, f"#{urlencode({'text': text})}") as page:
        settled(page).evaluate(SLOW_SERVER)
        page.fill("#machine-text", f"{text} and")
        page.click("#add-token")
        page.fill("#machine-text", f"{text} or")
        read(page, f"{text} or")
        page.wait_for_timeout(100)
        assert page.input_value("#machine-text") == f"{text} or"


def test_the_first_screen_says_why_no_token_is_added(show, text):
    page = show(text=text)
    expect(page.locator("#part-machine .refused")).to_be_hidden()
    page = show(text=text * 60)
    expect(page.locator("#part-machine .refused")).to_have_text("The model reads 256 tokens at most.")
    page = show(text=text)
    page.evaluate("microscope.model.stop_ids = [...microscope.model.texts.keys()]")
    page.click("#add-token")
    expect(page.locator("#part-machine .refused")).to_have_text("The model ends the text here.")
    page.evaluate("microscope.model.stop_ids = [microscope.model.end_of_text]")
    page.fill("#machine-text", "Once")
    expect(page.locator("#part-machine .refused")).to_be_hidden()


EACH_LEFT_OUT = (
    "left out: at=1.5, head=1.2.3, point=x, off=0.0 f7 , temperature=-5, top_k=-1, top_p=0, stop=0, theme=red"
)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("off=0.0+f7+&top_k=-1&top_p=0&temperature=-5&at=1.5&point=x&theme=red&head=1.2.3&stop=0", EACH_LEFT_OUT),
        ("off=9.9", "the model has no place ('head', 9, 9)"),
        ("off=0.1&instead=abc", ""),
        ("tour=none", "there is no 'none'"),
        ("tour=recall&stop=99", ""),
    ],
)
def test_a_broken_link_opens_all_parts_and_says_what_it_left_out(browser, address, text, said, message):
    page, faults = browser.new_page(viewport=LAPTOP), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{address}#text={text}&{said}")
    settled(page).wait_for_selector("#part-next .candidate")
    if message:
        expect(page.locator("#problem")).to_contain_text(message)
    assert (page.evaluate("microscope.state.off"), page.evaluate("microscope.state.temperature")) == ("", 1)
    page.close()
    assert faults == []


def test_of_a_book_only_as_much_is_sent_as_a_model_can_read(show, text):
    page = show(text=text)
    page.fill("#machine-text", "Once upon a time. " * 3000 + "\U0001f98a")
    settled(page)
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#part-machine .refused")).to_have_text("The page sends 15,000 characters at most.")
    assert len(page.input_value("#text")) == 15_000
    page.fill("#machine-text", f"{'x' * 14_999}\U0001f98a")
    settled(page)
    assert page.input_value("#text") == "x" * 14_999


def test_a_text_that_fills_the_context_is_written_anew_from_an_earlier_token(show, run, text):
    page, said = show(text=text * 20), ""
    ends = re.compile(r"^The model (reads 256 tokens at most|ends the text here)\.$")
    while "256" not in said:  # it may draw the end of the text before
        page.evaluate("document.querySelector('.said').textContent = ''")
        page.click("#write")
        expect(page.locator(".said")).to_have_text(ends)
        expect(page.locator("#write")).to_have_text("Write on")
        said = page.locator(".said").inner_text()

    page.evaluate("microscope.store.set({ at: 3, top_k: 1 })")
    settled(page).click("#sample")
    ids = run.trace(text).ids[:4]
    best = int(run.model(torch.tensor([ids]))[0, -1].argmax())
    expect(page.locator("#text")).to_have_value(run.tokenizer.decode([*ids[1:], best]))


def test_writing_goes_on_after_a_token_that_is_only_a_part_of_a_character(show, text):
    page = show(text=text)
    page.evaluate("Math.random = () => 0")  # the likeliest token, which is not the end of the text
    page.evaluate("window.bytes = microscope.model.bytes; microscope.model.bytes = bytes.map(() => 'c3')")
    page.click("#write")
    expect(page.locator(".said")).to_contain_text("a part of a character")

    page.evaluate("microscope.model.bytes = bytes")
    page.wait_for_function("length => microscope.trace.text.length > length", arg=len(text))
    page.click("#write")
    settled(page)


def test_when_held_out_texts_are_used_up_the_page_says_so_and_begins_again(show, text):
    page = show(text=text)
    page.evaluate("""() => {
        window.numbers = [];
        window.fable = microscope.source.fable;
        microscope.source.fable = async ({ number }) => {
            numbers.push(number);
            throw new Error("5 documents are held out here");
        };
    }""")
    page.click("#held-out")
    expect(page.locator("#part-text .note")).to_contain_text("5 documents are held out here")
    page.click("#held-out")
    page.evaluate("() => { microscope.source.fable = fable; }")
    assert page.evaluate("numbers") == [1, 1]


def test_another_run_is_shown_with_its_own_vocabulary_however_late_that_comes(show, text):
    page = show(text=text)
    page.evaluate("""() => {
        const { source } = microscope;
        window.own = { ...source };
        const asFables = (asked) => ({ ...asked, checkpoint: "fables@4" });
        for (const name of Object.keys(own).filter((name) => typeof own[name] === "function"))
            source[name] = (asked) => own[name](asFables(asked));
        // The same words under other numbers, which the vocabulary at hand does not reach.
        source.model = async (asked) => {
            await new Promise((resolve) => setTimeout(resolve, 200));
            const model = await own.model(asFables(asked));
            const [texts, bytes] = [model.texts.map((text) => text.toUpperCase()), model.bytes];
            return { ...model, texts: [...model.texts, ...texts], bytes: [...bytes, ...bytes] };
        };
        source.trace = async (asked) => {
            const trace = await own.trace(asFables(asked));
            const ids = trace.ids.map((id) => id + microscope.model.vocab_size);
            return { ...trace, checkpoint: asked.checkpoint, ids };
        };
        microscope.runs.push({ ...microscope.runs[0], name: "other", checkpoints: [{ id: "other@1", step: 1 }] });
        microscope.store.set({ checkpoint: "other@1" });
    }""")
    page.wait_for_function("() => microscope.model.texts.length > microscope.model.vocab_size && microscope.deciding")
    shown, has_problem = page.locator("#part-text .token").nth(1).text_content(), page.locator("#problem").is_visible()
    page.evaluate("Object.assign(microscope.source, own); microscope.runs.pop()")
    show(text=text)

    assert shown == page.locator("#part-text .token").nth(1).text_content().upper()
    assert not has_problem


def test_the_grammar_says_from_where_on_a_text_is_impossible(show, text):
    page = show(text=text)
    assert "a fable can begin like this" in page.text_content(".verdict")

    page.fill("#text", text + " xylophone")
    settled(page)
    assert "no fable goes on like this" in page.text_content(".verdict")
    assert "xylophone" in page.text_content(".verdict mark")
    assert "not known" in page.text_content("#part-text .sum")


WRITES_LATE = """to => {
  const { setTimeout } = window;
  let write;
  window.setTimeout = (work) => (write = work);
  document.querySelector("#set-large").click();
  window.setTimeout = setTimeout;
  location.hash = to;
  write(); // before the page has heard of the new address
  return location.hash;
}"""


def test_an_address_just_called_up_is_not_written_over_by_the_view_before_it(show, text):
    page = show(text=text, at=3)
    assert page.evaluate(WRITES_LATE, "at=2") == "#at=2"
    page.wait_for_function("() => !document.documentElement.classList.contains('large')")
    assert settled(page).locator(".token.here").first.get_attribute("data-place") == "2"


def test_a_view_that_is_called_up_again_is_shown_though_the_address_had_not_changed_yet(show, text):
    page = show(text=text)
    page.evaluate("microscope.store.set({ text: 'Long ago' })")
    assert show(text=text).input_value("#text") == text


def test_a_guess_reveals_the_bars_and_is_counted(show, text):
    page = show(text=text, at=3, guess=True, other="fables@2")
    assert page.locator("#part-next .candidate, #part-compare li").count() == 0
    assert page.is_hidden("#text")  # it would tell what comes next
    assert values(page, "[data-name=kl_end], [data-name=kl_truth]").isnan().all()  # so would these

    for _ in range(2):  # of which the second does not count
        show(text=text, at=3, guess=True, other="fables@2")
        page.locator(".guess").first.click()
        assert page.locator("#part-next .candidate").count() > 0
        assert value(page, "guesses") == 1
        page.click("#guess-on")
        settled(page)
        page.wait_for_url(lambda url: "at=4" in url)  # written after a pause: the same address again would be no change
        assert page.locator(".token.here").first.get_attribute("data-place") == "4"
        assert page.locator("#part-next .candidate").count() == 0

    page.reload()
    settled(page)
    assert value(page, "guesses") == 1
    page.click("#score-reset")
    assert value(page, "guesses") == 0


def test_a_link_opens_the_same_view_again(show, browser, address, text):
    page = show(text=text, at=4, head="1.1", off="0.0", temperature=0.7, theme="dark", large=True)
    page.wait_for_url(lambda url: "large=true&theme=dark" in url)  # the address is written after a pause
    settled(page)  # on a busy machine the numbers may come later than that
    again = browser.new_page(viewport=LAPTOP)
    again.goto(page.url)
    settled(again)

    cells = ".cell[data-place='4']"  # of the token that is looked from; how many others there is room for may differ
    for selector in ("#part-text .token", "#part-attention .source", cells, "#part-next [data-name=model]"):
        assert torch.equal(values(again, selector), values(page, selector)) or selector.endswith(".token")
    assert again.get_attribute("html", "data-theme") == "dark"
    again.close()


def test_a_link_to_a_checkpoint_that_is_not_there_says_so_and_shows_the_best(show, run, text):
    page = show(text=text, checkpoint="fables@9")
    expect(page.locator("#problem")).to_have_text("There is no checkpoint fables@9 here. This is fables@4.")
    expect(page.locator("#status")).to_have_text("step 4")
    expect(page.locator("#part-text .token")).to_have_count(len(run.trace(text).ids))
    show(text=text, checkpoint="fables@2")
    expect(page.locator("#problem")).to_be_hidden()


def test_arrow_keys_move_the_token_that_is_looked_from(show, run, text):
    page = show(text=text)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    settled(page)

    logits_V = run.trace(text).logits[-1, -3]
    ids = values(page, "#part-next .candidate", "data-id").long()
    close(values(page, "#part-next [data-name=model]"), logits_V.softmax(-1)[ids])


def test_a_place_that_is_left_before_its_logits_have_come_keeps_no_panel_waiting(show, text):
    page = show(text=text)
    page.evaluate("""async () => {
        const { source, store } = microscope;
        const { logits } = source;
        let answered;
        const isAnswered = new Promise((resolve) => (answered = resolve));
        source.logits = async (asked) => (await isAnswered, logits(asked));
        store.set({ at: 3 });
        store.set({ at: -1 });
        answered();
        source.logits = logits;
    }""")
    settled(page)
    assert page.evaluate("microscope.logits.at === microscope.trace.ids.length - 1")


def test_the_keyboard_alone_reaches_everything(show, text):
    page = show(text=text, inside=True, other="fables@2")
    times_around = 0  # the first time it begins somewhere
    while times_around < 2:
        page.keyboard.press("Tab")
        times_around += page.evaluate(
            "(() => { const e = document.activeElement; e.dataset.reached = 1; return e === document.body; })()"
        )
    missed = page.eval_on_selector_all(
        CONTROLS,
        "all => all.filter((e) => e.checkVisibility() && !e.disabled && !e.dataset.reached)"
        ".filter((e) => !e.closest('[role=listbox]'))"
        ".map((e) => e.outerHTML.slice(0, 80))",
    )
    assert missed == []
    for group, here in (("#part-text .strip", ".token"), ("#part-attention .thumbs", "button"), (".lens", ".cell")):
        page.focus(f"{group} [tabindex='0']")
        page.keyboard.press("Home")
        settled(page)
        assert page.evaluate(f"document.activeElement === document.querySelector('{group} {here}')"), group


@pytest.mark.parametrize(("theme", "rules"), [("light", None), ("dark", {"runOnly": ["color-contrast"]})])
def test_axe_finds_no_serious_violation(show, text, theme, rules):
    """On a text of three words: of each kind of element there are several, and every one takes its time."""
    page = show(text=" ".join(text.split()[:3]), theme=theme, inside=theme == "light", other="fables@2", off="1.0")
    page.eval_on_selector_all("main .body", "all => all.forEach((e) => { e.style.contentVisibility = 'visible' })")
    found = Axe().run(page, options=rules).response["violations"]
    serious = [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
    assert serious == []


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("large", [False, True], ids=["normal", "projector"])
def test_every_control_is_inside_the_window(show, text, size, large):
    page = show(text=text, inside=True, other="fables@2", large=large)
    page.set_viewport_size(size)
    settled(page)
    outside = page.eval_on_selector_all(
        CONTROLS,
        "all => all.filter((e) => e.checkVisibility() && !e.closest('.parts, .table-frame')).filter((e) => {"
        " const box = e.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth + 0.5; })"
        ".map((e) => e.outerHTML.slice(0, 80))",
    )
    width = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size(LAPTOP)
    assert outside == []
    assert width <= size["width"]


def test_one_part_is_marked_in_the_bar_where_two_are_in_sight(show, text):
    page = show(text=text)
    page.evaluate("scrollBy(0, document.querySelector('#part-next').getBoundingClientRect().top - 0.225 * innerHeight)")
    page.wait_for_selector(".parts .here >> text=The next token")
    assert page.locator(".parts .here").count() == 1


@pytest.mark.parametrize("part", ["Inside one step", "Compare"])
def test_the_part_that_one_goes_to_is_the_one_that_is_marked(show, text, part):
    page = show(text=text)
    page.click(f".parts button >> text={part}")  # the one is short, the other the last
    page.wait_for_selector(f".parts .here >> text={part}")


def test_what_is_filled_on_the_way_to_a_part_does_not_push_it_away(show, text):
    page = show(text=text)
    page.evaluate("scrollTo(0, 0)")
    page.evaluate("""() => {
        const room = document.createElement("div");
        room.id = "room";
        room.style.height = "1500px";
        const fill = () => document.getElementById("part-knock").prepend(room);
        addEventListener("scroll", fill, { once: true });
    }""")
    page.click(".parts button >> text=Compare")
    page.wait_for_selector("#room", state="attached")
    page.wait_for_selector(".parts .here >> text=Compare")
    page.evaluate("document.getElementById('room').remove()")


def test_a_long_text_leaves_room_for_what_is_computed_of_it(show, text):
    page = show(text=text * 60)
    assert page.locator("#text").bounding_box()["height"] <= LAPTOP["height"] / 2


def test_on_a_phone_the_part_in_sight_is_named_in_the_bar(show, text):
    page = show(text=text)
    page.set_viewport_size(PHONE)
    is_in_sight = """(width) => {  // the parts above it may still be drawn for the phone, and move it
        document.querySelector("#part-knock").scrollIntoView();
        const here = document.querySelector(".parts .here");
        const { left, right } = here?.getBoundingClientRect() ?? {};
        return here?.textContent.includes("Knock out") && 0 <= left && right <= width;
    }"""
    page.wait_for_function(is_in_sight, arg=PHONE["width"])
    page.set_viewport_size(LAPTOP)


def test_a_page_without_a_server_says_so_and_fills_itself_when_it_answers(browser, address):
    page = browser.new_page()
    page.route("**/api/**", lambda route: route.abort())
    page.goto(address)
    expect(page.locator("#problem")).to_contain_text("The server does not answer")

    page.unroute("**/api/**")
    expect(page.locator("#part-text .token").first).to_be_attached()
    expect(page.locator("#problem")).to_be_hidden()
    page.close()


def test_what_the_server_cannot_give_is_said_where_it_is_missing_and_the_rest_is_shown(browser, address):
    page = browser.new_page()
    gone = {"name": "other", **NOT_BEGUN, "problem": "other: this folder is gone; bring it back"}
    fable = page.request.get(f"{address}api/run").json()["runs"]
    refused = {"error": {"message": "heads: attention weights do not sum to 1 here; choose another run"}}
    page.route("**/api/run*", lambda route: route.fulfill(json={"runs": [gone, *fable]}))
    page.route("**/api/heads*", lambda route: route.fulfill(status=400, json=refused))
    page.route("**/api/news*", lambda route: route.fulfill(status=500))
    page.goto(f"{address}#other=fables@9")
    expect(page.locator("#problem")).to_contain_text("the server answered 500")
    expect(page.locator("#part-text .token").first).to_be_attached()
    expect(page.locator("#part-attention")).to_contain_text("No names for these heads: heads: attention weights")
    expect(page.locator("#run-choice")).to_have_value("fables")
    expect(page.locator("#part-compare .empty")).to_have_text("fables, step 9 is not there any more. Choose another B.")
    assert page.locator("#run-choice option").all_inner_texts() == ["other (gone)", "fables"]

    page.unroute("**/api/news*")
    expect(page.locator("#problem")).to_be_hidden()
    page.close()


def test_a_checkpoint_that_training_deletes_makes_room_for_another_of_its_run(browser, address):
    """Beside it stands another run, the first of the list."""
    page = browser.new_page()
    [fables] = page.request.get(f"{address}api/run").json()["runs"]
    [at_2, at_4] = fables["checkpoints"]
    other = {**fables, "name": "other", "best": None, "checkpoints": [{"id": "other@1", "step": 1, "val_loss": None}]}
    listed = [at_2]

    def runs() -> dict[str, object]:
        return {"runs": [other, {**fables, "best": listed[-1]["id"], "checkpoints": listed}]}

    def news() -> dict[str, object]:
        state = {"is_there": True, "is_training": listed == [at_4], "config": ""}
        log = {"goes_on": False, "rows": [{"step": 4}], "seen": ""}
        return {"runs": {"fables": {**state, "checkpoints": [each["step"] for each in listed], **log}}}

    page.route("**/api/run*", lambda route: route.fulfill(json=runs()))
    page.route("**/api/news*", lambda route: route.fulfill(json=news()))
    page.goto(f"{address}#checkpoint=fables@2")
    status, problem = settled(page).locator("#status"), page.locator("#problem")
    expect(status).to_have_text("fables, step 2")

    listed = [at_4]
    expect(status).to_have_text("fables, step 4")
    expect(settled(page).locator("#live")).to_be_visible()
    expect(problem).to_be_hidden()

    listed = [at_2, at_4]
    page.wait_for_function("() => microscope.runs[1].checkpoints.length === 2")
    page.evaluate("microscope.store.set({ checkpoint: 'fables@2' })")
    expect(status).to_have_text("fables, step 2")
    settled(page)
    listed = [at_4]
    expect(problem).to_have_text("Step 2 of fables was deleted while training. This is fables@4.")
    expect(status).to_have_text("fables, step 4")
    page.close()


def test_of_a_model_without_heads_the_page_leaves_out_what_there_is_not_and_shows_the_rest(
    browser, fables_run, lstm_run, text
):
    run = load(lstm_run)
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode(text)]
    log_q_TV = run.model.eval()(torch.tensor([ids]))[0].detach().log_softmax(-1)
    view = urlencode({"checkpoint": "lstm@1", "text": text, "off": "1.0", "inside": "true", "other": "fables@4"})
    with (
        served(make_app([lstm_run, fables_run])) as (_, port),
        watched(browser, f"http://127.0.0.1:{port}/", f"#{view}") as page,
    ):
        settled(page)
        shown = ["Your model", "1 The run", "2 The text", "5 The next token", "8 Compare"]
        for headings in ("main h2", ".parts button"):
            assert page.locator(f"{headings}:visible").all_inner_texts() == shown
        why = "this kind of model (lstm) has no attention heads and no residual stream"
        expect(page.locator("#left-out")).to_contain_text(f"7 Knock out, because {why}.")
        close(values(page, "#part-text .token")[1:], -log_q_TV[range(len(ids) - 1), ids[1:]])
        best = values(page, "#part-next .candidate", "data-id").long()
        close(values(page, "#part-next [data-name=model]"), log_q_TV[-1, best].exp())
        expect(page.locator(".map[data-side=A]")).to_have_count(0)
        expect(page.locator(".map[data-side=B]")).to_have_count(1)
        close(values(page, ".cell-B[data-side]")[1:].mean(), value(page, "mean_B"))
        close(values(page, ".cell-floor")[1:].mean(), value(page, "compare_floor"))
        page.keyboard.press(".")
        expect(page.locator("#problem")).to_be_hidden()

        page.select_option("#run-choice", "fables")
        settled(page)
        expect(page.locator("main > section:visible")).to_have_count(9)
        expect(page.locator("#left-out")).to_be_hidden()


def test_what_a_model_of_conversations_writes_stays_in_its_turn(browser, chat_run):
    run = load(chat_run)
    asked = prompt_ids(run.tokenizer, [("user", "Tell me a story.")])
    with (
        served(make_app([chat_run])) as (_, port),
        (
            watched(browser, f"http://127.0.0.1:{port}/", f"#{urlencode({'text': 'Tell me a story.', 'top_k': 1})}")
        ) as page,
    ):
        settled(page).click("#sample")
        page.wait_for_function("n => microscope.trace.ids.length > n", arg=len(asked))
        best = int(run.model(torch.tensor([asked]))[0, -1].argmax())
        assert page.evaluate("microscope.trace.ids") == [*asked, best]
        assert page.input_value("#text").startswith("<|user|>Tell me a story.<|end|><|assistant|>")
        expect(page.locator("#held-out")).to_have_text("a held-out conversation")
        expect(page.locator("#measure")).to_be_hidden()
        expect(page.locator("#part-knock [role=status]")).to_contain_text("only in a language that names its skills")


def test_of_a_conversation_only_the_answer_is_coloured_and_counted(browser, chat_run):
    run, question = load(chat_run), "Tell me a story about a fox."
    given = prompt_ids(run.tokenizer, [("user", question)])
    ids = [*given, *run.tokenizer.encode("Long ago")]
    log_q_TV = run.model(torch.tensor([ids]))[0].detach().log_softmax(-1)
    surprise = -log_q_TV[range(len(ids) - 1), ids[1:]][len(given) - 1 :]
    with served(make_app([chat_run])) as (_, port), watched(browser, f"http://127.0.0.1:{port}/") as page:
        page.wait_for_selector(".token")
        page.fill("#text", question)
        expect(settled(page).locator(".token")).to_have_count(len(given))
        assert values(page, ".token").isnan().all()
        expect(page.locator("#part-text .sum")).to_contain_text("no answer yet")
        best = values(page, "#part-next .candidate", "data-id").long()
        close(values(page, "#part-next [data-name=model]"), log_q_TV[len(given) - 1, best].exp())

        page.fill("#text", f"<|user|>{question}<|end|><|assistant|>Long ago")
        expect(settled(page).locator(".token")).to_have_count(len(ids))
        close(values(page, ".token")[len(given) :], surprise)
        close(value(page, "surprise"), surprise.mean())
        assert value(page, "answered") == len(surprise)
        page.wait_for_function("() => document.querySelector('[data-name=floor]').dataset.value")
        close(value(page, "floor"), values(page, ".token", "data-floor")[len(given) :].mean())


def test_the_page_may_load_nothing_from_elsewhere(window, address):
    policy = window.request.get(address).headers["content-security-policy"]

    assert "default-src 'self'" in policy
