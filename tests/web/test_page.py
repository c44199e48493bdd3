"""Journeys through the page in a real browser: every number is torch's, and every part can be reached."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from browsing import LAPTOP, PHONE, box, serious_violations, settled, value, values, watched
from pellucid import load, train
from pellucid.api import Run
from pellucid.generation.sampling import apply_temperature, keep_top_k, keep_top_p
from pellucid.inspection.attribution import what_decides
from pellucid.inspection.build import fables_of, scores_of_run
from pellucid.inspection.explain import beginning_that_fits
from pellucid.inspection.explain_truth import truth_of_text
from pellucid.inspection.trace import Trace
from pellucid.tokenizer.chat import prompt_ids
from pellucid.web.app import make_app
from pellucid.web.descriptions import NOT_BEGUN
from pellucid.web.runs import Runs
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
SVG = "{http://www.w3.org/2000/svg}"
CANDIDATES, OF_THE_MODEL = "#part-next .candidate", "#part-next [data-name=model]"


@pytest.fixture(scope="module")
def address(fables_run: Path) -> Iterator[str]:
    """Where the page of the run is served."""
    with served(make_app([fables_run])) as (host, port):
        yield f"http://{host}:{port}/"


def show(page: Page, **state: object) -> Page:
    """The page with the view of an address, whatever it showed before, once it is drawn."""
    said = {key: json.dumps(each) if isinstance(each, bool) else str(each) for key, each in state.items()}
    page.evaluate(CHANGE_OF_ADDRESS, said)
    return settled(page)


def complete(page: Page) -> Page:
    """The page, when it has heard of the run and measured its parts."""
    page.wait_for_function("() => microscope.metrics.fables && microscope.samples.fables")
    page.wait_for_selector("[data-row='1.1']")
    return page


@pytest.fixture(scope="module")
def window(browser: Browser, address: str) -> Iterator[Page]:
    """One for most journeys: to open another takes two seconds of computing, and to load the page again a half."""
    with watched(browser, address) as page:
        yield page


@pytest.fixture
def page(window: Page, address: str) -> Page:
    """The page as it opens, but in a window where others have been."""
    window.set_viewport_size(LAPTOP)
    window.goto("about:blank")
    window.goto(address)
    return complete(window)


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


def surprise_of(traced) -> torch.Tensor:
    return -traced.logits[-1].log_softmax(-1)[range(len(traced.ids) - 1), traced.ids[1:]]


def assert_expects(page: Page, p_V: torch.Tensor) -> None:
    """Part 5 shows these probabilities of the model."""
    ids = values(page, CANDIDATES, "data-id").long()
    assert len(ids) > 0
    close(values(page, OF_THE_MODEL), p_V[ids])


def likeliest(run: Run, ids: list[int]) -> int:
    return int(run.model(torch.tensor([ids]))[0, -1].argmax())


def test_every_number_about_a_text_is_torchs_or_the_grammars(page, run, text, address):
    show(page, text=text, head="0.1", other="fables@2", top_k=0)
    assert "default-src 'self'" in page.request.get(address).headers["content-security-policy"]
    traced, truth = run.trace(text), truth_of_text(fables_of(run.trained, "test"), run.tokenizer, text)
    surprise = surprise_of(traced)
    floors = zip(truth.distributions, traced.ids[1:], strict=False)
    floor = -torch.tensor([p[id_] for p, id_ in floors], dtype=torch.float64).log()
    close(values(page, "#part-text .token")[1:], surprise)
    close(values(page, "#part-text .token", "data-floor")[1:], floor)
    close(value(page, "surprise"), surprise.mean())
    close(value(page, "excess"), (surprise - floor).mean())
    assert_first_screen(page, traced)
    assert_attention(page, run, traced)
    assert_lens(page, traced.logits)
    for bars, numbers in (
        ("#part-lens .bar.model", "#part-lens .likeliest li"),
        ("#part-compare li .bar.A", "#part-compare .number[data-side=A]"),
    ):
        widths = page.eval_on_selector_all(bars, "all => all.map((e) => parseFloat(e.style.width) / 100)")
        close(torch.tensor(widths), values(page, numbers))
    assert_sliders(page, traced.logits[-1, -1:])

    # A click on a token moves every panel there, and arrow keys move on
    show(page, text=text, head="1.0", inside=True)
    page.click("#part-text .token[data-place='3']")
    settled(page)
    assert_next_token(page, traced.logits[-1, 3].double(), truth.distributions[3])
    row_S = traced.attention[1, 0, 3]
    close(values(page, "#part-attention .source"), row_S[values(page, "#part-attention .source", "data-place").long()])
    close(value(page, "row_sum"), 1.0)
    for step in traced.inside(1):
        if step.values.dim() == 2:
            [mean] = values(page, f"[data-step='{step.sublayer} {step.name}'] [data-name^=mean]")
            close(mean, step.values[3].mean())
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    settled(page)
    assert_expects(page, traced.logits[-1, 1].softmax(-1))

    # A place that is left before its logits have come keeps no panel waiting
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


def assert_first_screen(page: Page, traced: Trace) -> None:
    for layer, head in torch.cartesian_prod(*map(torch.arange, traced.attention.shape[:2])).tolist():
        close(value(page, f"machine {layer}.{head}"), traced.attention[layer, head, -1].max())
    p, ids = traced.logits[-1, -1].softmax(-1).topk(5)
    close(torch.tensor([value(page, f"machine p {id_}") for id_ in ids.tolist()]), p)
    so_far = page.locator("#part-machine .so-far").all_text_contents()
    best = traced.logits[:, -1].softmax(-1).max(-1).values
    assert [float(said.rpartition(" ")[2].strip("%")) for said in so_far] == pytest.approx(
        (100 * best).tolist(), abs=0.1
    )


def assert_attention(page: Page, run: Run, traced: Trace) -> None:
    weights_TS = traced.attention[0, 1]
    stands, n = box(page, "#part-attention .map"), len(weights_TS)
    place = {"x": 2.5 * stands["width"] / n, "y": 5.5 * stands["height"] / n}
    page.locator("#part-attention .map").hover(position=place)
    close(value(page, "weight"), weights_TS[5, 2])
    for axis, place in (("rows", 5), ("columns", 2)):
        named = page.text_content(f".names.{axis} .here")
        assert named == run.tokenizer.decode([traced.ids[place]]).replace(" ", "␣")
    close(value(page, "least_sum"), weights_TS.sum(-1).min())
    close(value(page, "most_sum"), weights_TS.sum(-1).max())
    for name, score in scores_of_run(run.trained)[1].scores.items():
        close(value(page, f"score {name}"), score)


def assert_lens(page: Page, logits_NTV: torch.Tensor) -> None:
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


def assert_next_token(page: Page, logits_V: torch.Tensor, truth: Mapping[int, float]) -> None:
    """Part 5 shows what the model expects beside the truth, and how far apart they are."""
    ids = values(page, CANDIDATES, "data-id").long()
    close(values(page, OF_THE_MODEL, "data-raw"), logits_V.softmax(-1)[ids])
    close(values(page, "#part-next [data-name=truth]"), torch.tensor([truth.get(int(id_), 0.0) for id_ in ids]))
    true_p = torch.tensor(list(truth.values()), dtype=torch.float64)
    kl = (true_p * (true_p.log() - logits_V.log_softmax(-1)[list(truth)])).sum()
    close(value(page, "kl"), kl)
    close(value(page, "kl_truth"), kl)
    close(value(page, "entropy"), -(true_p * true_p.log()).sum())


def assert_sliders(page: Page, logits_1V: torch.Tensor) -> None:
    """They act on the logits as sampling does."""
    for temperature, top_k, top_p in ((1.3, 7, 1), (0.8, 20, 0.75), (0, 0, 1)):
        for name, chosen in {"temperature": temperature, "top_k": top_k, "top_p": top_p}.items():
            page.fill(f"#slider-{name}", str(chosen))
        settled(page)
        expected_V = torch.zeros(logits_1V.size(1))
        if temperature == 0:
            expected_V[logits_1V.argmax()] = 1
        else:
            logits_1C, ids_1C = keep_top_k(logits_1V, top_k or logits_1V.size(1))
            expected_V[ids_1C[0]] = keep_top_p(apply_temperature(logits_1C, temperature), top_p).softmax(-1)[0]
        assert_expects(page, expected_V)
        close(value(page, "left"), (expected_V > 0).sum())
    page.fill("#machine-temperature", "0.5")  # the same slider on the first screen
    settled(page)
    assert page.input_value("#slider-temperature") == "0.5"
    p, ids = (2 * logits_1V[0]).softmax(-1).topk(5)
    close(torch.tensor([value(page, f"machine p {id_}") for id_ in ids.tolist()]), p)


def test_the_words_that_decide_are_outlined_and_attention_opens_on_the_head_that_looks_there(
    browser, address, run, fables_run, text
):
    weights_HS = run.trace(text).attention[:, :, -1].flatten(0, 1)
    places = [s for s in range(weights_HS.size(1)) if s % 4]
    shares_H = weights_HS[:, places].sum(-1)
    best = f"{int(shares_H.argmax()) // 2}.{int(shares_H.argmax()) % 2}"
    with watched(browser, "", "about:blank") as page:
        page.route("**/api/deciding", lambda route: route.fulfill(json={"places": [places] * weights_HS.size(1)}))
        page.goto(f"{address}#{urlencode({'text': text})}")
        card = page.locator(f".thumbs [aria-selected=true][data-head='{best}']")
        expect(card).to_contain_text(f"{shares_H.max():.1%} on the outlined")
        page.keyboard.press(".")
        expect(page.locator(".thumbs [aria-selected=true]")).not_to_have_attribute("data-head", best)
        page.unroute("**/api/deciding")

        corpus, length = run.trained.corpus(), run.model.context_length
        example = next(each for each in Runs([fables_run]).examples("fables@4") if each["skill"] == "recall")["text"]
        places = what_decides(corpus.language, run.tokenizer, example)[-1]
        show(page, text=example)
        expect(page.locator("#part-machine .decides")).to_have_count(min(len(places), 2))  # however far back they are
        page.click("#part-machine .decides button >> nth=-1")
        assert page.evaluate("microscope.state.at") in places

        fable = beginning_that_fits(run.tokenizer, next(corpus.pieces("validation")).text, length - 1)
        decided = enumerate(what_decides(corpus.language, run.tokenizer, fable))
        at, places = next((t, places) for t, places in decided if places)
        show(page, text=fable, at=at, head="1.1")
        page.wait_for_selector(".seen .decides", state="attached")
        is_outlined = page.eval_on_selector_all(".seen span", "all => all.map((e) => e.classList.contains('decides'))")
        assert [s for s, outlined in enumerate(is_outlined) if outlined] == places
        close(value(page, "on_deciding"), run.trace(fable).attention[1, 1, at, places].sum())


def test_what_is_switched_off_is_off_in_every_panel_and_costs_what_the_run_says(page, run, text, fables_run):
    show(page, text=text)
    # The table was measured without asking, and its rows are switches
    assert json.loads((fables_run / "parts.json").read_text())
    table = run.knock_out(fables=int(value(page, "fables")))
    skills = [skill for skill, nats in table.intact.items() if nats]  # those that occur in these fables

    for row, part in zip(table.rows, ["0.0", "0.1", "a0", "f0", "1.0", "1.1", "a1", "f1"], strict=True):
        means = [estimate.mean for estimate in (*(row.by_skill[skill] for skill in skills), row.all)]
        close(values(page, f"[data-row='{part}'] td"), torch.tensor(means))
    # One scale of colour for all columns: what costs more is never paler
    coloured = "#part-knock td.sure"
    strengths = page.eval_on_selector_all(
        coloured, "all => all.map((e) => Number(e.style.getPropertyValue('--strength')))"
    )
    means = values(page, coloured)
    most = max(row.all.mean for row in table.rows if row.places[0][0] == "head")
    close(torch.tensor(strengths), (means / max(most, 1e-9)).clamp(max=1))
    for head in run.heads(fables=table.n_documents).attribution.heads:
        looks = torch.tensor([share.mean for skill, share in head.looks.items() if skill in skills])
        close(values(page, f"[data-row='{head.layer}.{head.head}'] .looks"), looks)
    page.click("[data-row='1.1'] button")
    settled(page)
    assert page.get_attribute(".switches [data-part='1.1']", "aria-checked") == "false"
    page.click("#all-on")
    settled(page)

    page.click("[data-part='1.0']")
    page.click("[data-part='f0']")
    settled(page)
    without = run.trace(text, knock_out=[("head", 1, 0), ("feed_forward", 0)]).logits[-1, -1].softmax(-1)
    assert_expects(page, without)
    whole_V = run.trace(text).logits[-1, -1].softmax(-1)
    ids = values(page, CANDIDATES, "data-id").long()
    close(values(page, "#part-next [data-name=base]"), whole_V[ids])
    assert "without head 1.0, feed-forward 0" in page.inner_text("#status")
    assert page.locator("#part-machine button.off").get_attribute("aria-label").startswith("Head 1.0")
    assert page.locator("#part-machine .stage.off .title").text_content() == "Feed-forward"
    page.click("#all-on")
    settled(page)
    assert_expects(page, whole_V)

    show(page, text=text, off="0.1")
    other = text.replace("old", "low")
    assert len(run.tokenizer.encode(other)) == len(run.tokenizer.encode(text))
    page.fill("#instead", other)
    page.press("#instead", "Tab")
    settled(page)
    assert page.inner_text("#status") == "step 4, patched head 0.1"
    assert_expects(page, run.trace(text, patch={("head", 0, 1): run.trace(other)}).logits[-1, -1].softmax(-1))

    story = "This is the story of Otto, a plump and wise fox who lived by a wide river. Everyone knew"
    show(page, text=story)
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

    # A step inside a layer is told as its model computes it
    show(page, text=text, inside=True)
    said = page.locator(".step > p.small:not(.muted)")
    expect(said.nth(1)).to_contain_text("brought to mean 0 and variance 1")
    [norm] = page.locator("[data-step='attention norm(x)'] math").all_text_contents()
    assert norm.startswith("norm(x)=γ")
    assert not norm.endswith("b")  # this model has no biases
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


WATCH_DRAWING = """() => {
  const { draw } = microscope;
  const nameAt = (selector) => document.querySelector(selector).textContent;
  window.seen = [];
  microscope.draw = () => {
    draw();
    seen.push([microscope.isTyping, nameAt("#part-machine .tokens .here"), nameAt("#part-next h3 .mono")]);
  };
}"""
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


def test_whoever_types_and_clicks_fast_loses_nothing(browser, address, run, text):
    """A window of its own: at the end the server is slow, and the clock stands still."""
    with watched(browser, address) as page:
        show(complete(page), text=text)
        page.evaluate(WATCH_DRAWING)
        page.focus("#machine-text")
        page.keyboard.press("Control+End")
        page.keyboard.type("!")
        settled(page)
        seen = page.evaluate("seen")
        _, before, _ = seen[0]  # the letter is there, and its trace is not
        assert [True, "!", before] in seen  # the parts out of sight wait
        assert seen[-1] == [False, "!", "!"]

        page.fill("#machine-text", f"{text} and")  # on the first screen, for the whole page
        settled(page)
        assert page.input_value("#text") == f"{text} and"
        close(value(page, "tokens"), len(run.trace(f"{text} and").ids) - 1)
        page.evaluate("text => microscope.store.set({ text, temperature: 0 })", text)
        settled(page).click("#add-token")
        settled(page)
        best = int(run.trace(text).logits[-1, -1].argmax())
        assert page.input_value("#machine-text") == text + run.tokenizer.decode([best])

        page.evaluate("text => microscope.store.set({ text, temperature: 1, top_k: 1 })", text)
        settled(page).evaluate(SLOW_SERVER)
        typed = f"{text} and then"
        ids = run.trace(typed).ids
        for _ in range(3):
            ids.append(likeliest(run, ids))
        page.fill("#machine-text", typed)
        for _ in range(3):  # before the trace of what was typed is there
            page.click("#add-token")
        assert page.input_value("#machine-text") == typed
        read(page, run.tokenizer.decode(ids[1:]))
        for _ in range(2):
            page.click("#rewind")
        read(page, run.tokenizer.decode(ids[1:-2]))

        page.fill("#machine-text", f"{text} and")
        page.click("#add-token")
        page.fill("#machine-text", f"{text} or")  # typed over: the click is forgotten
        all_is_answered = "text => isReadAfterAnswers(text) && document.querySelector('main[aria-busy=false]')"
        page.wait_for_function(all_is_answered, arg=f"{text} or")
        assert page.input_value("#machine-text") == f"{text} or"

        page.clock.install(time=0)
        page.clock.pause_at(100_000)
        stages = page.locator("#part-machine .stage")
        page.locator("#pass").dispatch_event("click")  # a pass lights each part in its order, and then stops
        for n in range(1, stages.count() + 1):
            assert stages.evaluate_all("all => all.map((each) => each.classList.contains('lit'))") == [
                i < n for i in range(stages.count())
            ]
            assert page.locator(".caption").text_content() == stages.nth(n - 1).get_attribute("data-says")
            page.clock.run_for(PAUSE)
        assert page.locator("#part-machine .lit").count() == 0


def test_tokens_are_added_and_taken_back_and_the_page_says_why_none_can_be(page, run, text):
    show(page, text=text, top_k=1)
    page.click("#sample")
    settled(page)
    best = run.tokenizer.decode([likeliest(run, run.trace(text).ids)])
    assert page.input_value("#text") == text + best
    assert page.inner_text(".written") == text + best  # beside the button that wrote it
    assert page.inner_text(".written b").strip() == best.strip()
    page.click("#rewind")
    settled(page)
    assert page.input_value("#text") == text

    refused = page.locator("#part-machine .refused")
    expect(refused).to_be_hidden()
    page.evaluate("microscope.model.stop_ids = [...microscope.model.texts.keys()]")
    page.click("#add-token")
    expect(refused).to_have_text("The model ends the text here.")
    expect(page.locator(".said")).to_have_text("The model ends the text here.")
    page.evaluate("microscope.model.stop_ids = [microscope.model.end_of_text]")
    page.fill("#machine-text", "Once")
    expect(refused).to_be_hidden()
    expect(page.locator(".said")).to_be_empty()

    # A full context, from an earlier token on
    page, said = show(page, text=text * 20), ""
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
    expect(page.locator("#text")).to_have_value(run.tokenizer.decode([*ids[1:], likeliest(run, ids)]))

    # A token that is only a part of a character
    show(page, text=text)
    page.evaluate("window.random = Math.random; Math.random = () => 0")  # the likeliest, which is not the end
    page.evaluate("window.bytes = microscope.model.bytes; microscope.model.bytes = bytes.map(() => 'c3')")
    page.click("#write")
    expect(page.locator(".said")).to_contain_text("a part of a character")
    page.evaluate("microscope.model.bytes = bytes")
    page.wait_for_function("length => microscope.trace.text.length > length", arg=len(text))
    page.click("#write")
    settled(page)
    page.evaluate("Math.random = random")

    # Of a long text, only as much as there is room for is read, sent and shown
    show(page, text=f"{text} {text} {text}")
    n_tokens = len(run.trace(f"{text} {text} {text}").ids)
    for axis, counts in (("rows", n_tokens - 1), ("columns", strongest_column(page))):
        named = values(page, f".names.{axis} span:not(.extra)", "data-place").int().tolist()
        assert n_tokens / 3 <= len(named) < n_tokens  # every second or third, and what counts in the row looked from
        assert counts in named

    show(page, text=text * 60)
    expect(refused).to_have_text("The model reads 256 tokens at most. What comes after them is not read.")
    page.evaluate("Math.random = () => 0")  # else the text might end here
    for button in ("#add-token", "#rewind"):  # words that the model does not read are not taken away
        page.evaluate("document.querySelector('.said').textContent = ''")
        page.click(button)
        expect(page.locator(".said")).to_have_text("The model reads 256 tokens at most.")
        assert page.input_value("#text") == text * 60
    page.evaluate("Math.random = random")
    page.evaluate("microscope.store.set({ at: 3 })")
    expect(page.locator("#add-token")).to_have_text("Write from here")
    assert box(page, "#text")["height"] <= LAPTOP["height"] / 2

    page.fill("#machine-text", "Once upon a time. " * 3000 + "\U0001f98a")
    settled(page)
    expect(page.locator("#problem")).to_be_hidden()
    expect(refused).to_have_text("The page sends 15,000 characters at most.")
    assert len(page.input_value("#text")) == 15_000
    page.fill("#machine-text", f"{'x' * 14_999}\U0001f98a")
    settled(page)
    assert page.input_value("#text") == "x" * 14_999
    assert page.locator("#part-text .token").count() > 200  # of one word without end, the beginning is read


def strongest_column(page: Page) -> int:
    """The place from which the head that is shown takes most at the token looked from."""
    return int(page.locator("#part-attention .source").first.get_attribute("data-place"))


def test_with_the_heading_on_a_projector_the_row_that_is_looked_from_is_in_sight(page, text):
    page.set_viewport_size({"width": 1280, "height": 720})
    for large in (False, True):
        show(page, text=text, large=large)
        page.locator("#part-attention").scroll_into_view_if_needed()
        page.evaluate("document.querySelector('#part-attention').scrollIntoView()")
        settled(page)
        expect(page.locator("#part-attention h2")).to_be_in_viewport()
        assert box(page, "#part-attention .cross")["y"] < 720 - 8
        expect(page.locator("#part-attention .names.rows .here")).to_be_in_viewport()


def test_part_6_shows_no_layers_numbers_under_another_layers_name(page, text):
    show(page, text=text, head="0.0", inside=True)
    page.evaluate("""() => {
        microscope.source.inside = () => new Promise(() => {});  // they never come
        microscope.store.set({ head: "1.0" });
    }""")
    expect(page.locator("#part-inside summary")).to_contain_text("layer 1")
    expect(page.locator("#part-inside .chip[aria-pressed=true]")).to_have_text("layer 0")
    bars = page.locator("#part-inside [data-step='attention x'] .row-bars path")
    assert {bar.get_attribute("class") for bar in bars.all()} == {"plus", "minus"}
    assert sum(bar.get_attribute("d").count("M") for bar in bars.all()) == 16  # one for each number of the row


def test_five_layers_leave_the_next_token_in_sight(browser, fables_run, text, tmp_path):
    deep = {"model.n_layers": 5}
    train(fables_run / "config.yaml", tmp_path / "deep", overrides=deep, steps=1, data_dir=fables_run.parent / "data")
    with (
        served(make_app([tmp_path / "deep"])) as (host, port),
        watched(browser, f"http://{host}:{port}/") as page,
    ):
        page.set_viewport_size({"width": 1280, "height": 720})
        show(page, text=text)
        expect(page.locator("#part-machine .guesses li").first).to_be_in_viewport(ratio=1)
        lens = page.locator("#part-lens .lens")
        lens.scroll_into_view_if_needed()
        expect(lens.locator("[role=rowheader]")).to_have_count(11)
        expect(page.locator("#part-lens .likeliest li").first).to_be_in_viewport(ratio=1)


def test_the_curve_opens_on_the_excess_and_shows_the_loss_beside_its_floor_on_request(page, fables_run, text):
    rows = [row for row in load(fables_run, 4).metrics if "val_loss" in row]
    curve = show(page, text=text).locator(".curve")
    chips = page.locator("#part-run .measures button")
    expect(chips).to_have_text(["excess", "loss"])
    expect(chips.first).to_have_attribute("aria-pressed", "true")
    expect(curve.locator("line.floor")).to_have_count(0)
    shown = page.evaluate("""async () => {
        const { curvesOf, measuresOf } = await import("./static/measures.js");
        const [run, rows] = [microscope.runs[0], microscope.metrics.fables];
        return curvesOf(run, rows, measuresOf(run, rows)[0]);
    }""")
    close(torch.tensor(shown["held"]), torch.tensor([[r["step"], r["val_loss"] - r["val_floor"]] for r in rows]))
    assert [step for step, _ in shown["training"]] == [1, 2]  # of a batch it is mostly luck: only until it is measured
    close(value(page, "val_excess"), rows[-1]["val_loss"] - rows[-1]["val_floor"])
    chips.last.click()
    expect(curve.locator("line.floor")).to_have_count(1)
    close(value(page, "val_loss"), rows[-1]["val_loss"])


def test_the_curve_chooses_the_model_of_a_moment_and_the_reader_guesses_with_it(page, fables_run, run, text):
    show(page, text=text, other="fables@4")
    expect(page.locator(".samples h3")).to_have_text("What it wrote after 4 steps")
    expect(page.locator("#part-run aside")).to_contain_text("reads 512 held-out tokens at most")
    page.focus(".curve")
    page.keyboard.press("Home")
    settled(page)
    for side, model in (("A", load(fables_run, 2)), ("B", run)):
        traced = model.trace(text)
        close(values(page, f".cell-{side}[data-side]")[1:], surprise_of(traced))
        ids = values(page, "#part-compare li", "data-id").long()
        close(values(page, f"#part-compare .number[data-side={side}]"), traced.logits[-1, -1].softmax(-1)[ids])
    assert page.text_content(".run [data-name=step]").startswith("2 of")
    expect(page.locator(".samples")).to_be_empty()  # a later model wrote them

    written = page.evaluate("microscope.samples.fables")
    page.evaluate("""() => {
        microscope.samples.fables = [{ step: 1, texts: ["early"] }, { step: 3, texts: ["late"] }];
        microscope.draw();
    }""")
    expect(page.locator(".samples h3")).to_have_text("What it wrote after 1 step")
    expect(page.locator(".samples blockquote")).to_have_text("early")
    page.focus(".curve")
    page.keyboard.press("End")
    expect(page.locator(".samples blockquote")).to_have_text("late")
    page.evaluate("written => (microscope.samples.fables = written)", written)

    show(page, text=text, checkpoint="fables@4")
    expect(page.locator("#other")).to_have_value("fables@2")  # of a single run, an earlier checkpoint
    assert show(page, text=text, other="none").locator("#part-compare .empty").count() == 1

    # The grammar judges what is typed, and held-out texts begin again when they are used up
    show(page, text=text)
    assert "a fable can begin like this" in page.text_content(".verdict")
    page.fill("#text", text + " xylophone")
    settled(page)
    assert "no fable goes on like this" in page.text_content(".verdict")
    assert "xylophone" in page.text_content(".verdict mark")
    assert "not known" in page.text_content("#part-text .sum")

    page.evaluate("""() => {
        window.numbers = [];
        window.fable = microscope.source.fable;
        microscope.source.fable = async ({ number }) => {
            numbers.push(number);
            throw new Error("5 documents are held out here");
        };
    }""")
    page.click("#held-out")
    expect(page.locator("#part-machine .refused")).to_have_text("5 documents are held out here")
    page.click("#held-out")
    page.evaluate("() => { microscope.source.fable = fable; }")
    assert page.evaluate("numbers") == [1, 1]

    # A guess reveals the bars and is counted
    show(page, text=text, at=3, guess=True, other="fables@2")
    assert page.locator("#part-next .candidate, #part-compare li").count() == 0
    assert page.is_hidden("#text")  # it would tell what comes next
    assert values(page, "[data-name=kl_end], [data-name=kl_truth]").isnan().all()  # so would these

    for _ in range(2):  # of which the second does not count
        show(page, text=text, at=3, guess=True, other="fables@2")
        page.locator(".guess").first.click()
        assert page.locator(CANDIDATES).count() > 0
        assert value(page, "guesses") == 1
        page.click("#guess-on")
        settled(page)
        page.wait_for_url(lambda url: "at=4" in url)  # written after a pause: the same address again would be no change
        assert page.locator(".token.here").first.get_attribute("data-place") == "4"
        assert page.locator(CANDIDATES).count() == 0

    page.reload()
    settled(page)
    assert value(page, "guesses") == 1
    page.click("#score-reset")
    assert value(page, "guesses") == 0


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


EACH_LEFT_OUT = (
    "left out: at=1.5, head=1.2.3, point=x, off=0.0 f7 , temperature=-5, top_k=-1, top_p=0, stop=0, theme=red"
)
BROKEN_LINKS = {
    "off=0.0+f7+&top_k=-1&top_p=0&temperature=-5&at=1.5&point=x&theme=red&head=1.2.3&stop=0": EACH_LEFT_OUT,
    "off=9.9": "the model has no place ('head', 9, 9)",
    "tour=recall&stop=99": "tour recall, stop 1: ",
    "instead=abc&off=1.0": "as many tokens",
    "tour=nowhere&curve=nothing&head=9.9&point=99&at=999": "nowhere",
}


def test_an_address_is_the_view_and_the_view_its_address(page, run, browser, address, text):
    show(page, text=text, at=4, head="1.1", off="0.0", temperature=0.7, theme="dark", large=True)
    page.wait_for_url(lambda url: "large=true&theme=dark" in url)  # the address is written after a pause
    settled(page)  # on a busy machine the numbers may come later than that
    again = browser.new_page(viewport=LAPTOP)
    again.goto(page.url)
    settled(again)
    cells = ".cell[data-place='4']"  # of the token that is looked from; how many others there is room for may differ
    for selector in ("#part-attention .source", cells, OF_THE_MODEL):
        assert torch.equal(values(again, selector), values(page, selector))
    assert again.get_attribute("html", "data-theme") == "dark"
    again.close()

    show(page, text=text, at=3)
    assert page.evaluate(WRITES_LATE, "at=2") == "#at=2"  # it is not written over by the view before it
    page.wait_for_function("() => !document.documentElement.classList.contains('large')")
    assert settled(page).locator(".token.here").first.get_attribute("data-place") == "2"

    show(page, text=text)
    page.evaluate("microscope.store.set({ text: 'Long ago' })")
    assert show(page, text=text).input_value("#text") == text  # called up again before the address has changed

    # The browser's Back brings back what an example, another moment or a token from the middle has replaced
    show(page, text=text)
    page.fill("#machine-text", f"{text} and so on")
    settled(page).click("#part-machine .chips .chip >> nth=0")
    settled(page)
    assert page.input_value("#text") != f"{text} and so on"
    page.evaluate("microscope.store.set({ at: 3, top_k: 1 })")
    settled(page).click("#sample")
    page.wait_for_function("() => microscope.state.at === -1")
    page.focus(".curve")
    page.keyboard.press("Home")
    page.go_back()
    expect(page.locator(".token.here")).to_have_attribute("data-place", "3")
    page.go_back()
    expect(page.locator("#text")).to_have_value(f"{text} and so on")
    page.go_forward()
    expect(page.locator("#text")).not_to_have_value(f"{text} and so on")

    show(page, text=text, checkpoint="fables@9")
    expect(page.locator("#problem")).to_have_text("There is no checkpoint fables@9 here. This is fables@4.")
    expect(page.locator("#status")).to_have_text("step 4")
    expect(page.locator("#part-text .token")).to_have_count(len(run.trace(text).ids))
    show(page, text=text, checkpoint="fables@2")
    expect(page.locator("#problem")).to_be_hidden()


def picture_of(page: Page, part: str) -> ElementTree.Element:
    """The file that a part of the page is saved as, which needs no other."""
    with page.expect_download() as download:
        page.locator(f"#part-{part} .lead button", has_text="save picture").press("Enter")
    source = download.value.path().read_text("utf-8")
    assert not re.search(r"(href|src|class|on\w+)=|url\(|var\(|@import|foreignObject", source)
    return ElementTree.fromstring(source)


def said_in(picture: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(each.itertext()) for each in picture.iter(SVG + tag)]


def test_every_part_is_taken_away_as_a_link_or_as_a_picture_with_its_numbers(page, run, text, fables_run):
    text += ' "a<b & c>d'
    show(page, text=text, head="0.1", theme="dark", checkpoint="fables@2")
    traced = load(fables_run, 2).trace(text)

    bars = picture_of(page, "next")
    shown = page.locator("#part-next .candidate .numbers > *").all_inner_texts()
    assert len(shown) > 5
    assert [each for each in said_in(bars, "text") if each in shown] == shown
    numbers = [float(each) for each in re.findall(r"name model, value (\S+),", "\n".join(said_in(bars, "desc")))]
    close(torch.tensor(numbers), values(page, OF_THE_MODEL))
    assert said_in(bars, "title") == ["5 The next token: fables, step 2"]
    assert said_in(bars, "desc")[0].startswith(f"After “{text}”. {page.url.partition('#')[0]}#")
    assert bars[-1][0].get("fill") == "rgb(251,250,247)"  # the paper of the light palette
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")

    maps = [each.split("\n")[1:] for each in said_in(picture_of(page, "attention"), "desc") if each[0] == "\n"]
    *heads, large, _ = maps  # and the bar of colours
    assert len(heads) == 4
    close(torch.tensor([[float(weight) for weight in row.split()] for row in large]), traced.attention[0, 1])

    curve = next(each for each in said_in(picture_of(page, "run"), "desc") if each.startswith("held out: "))
    rows = [json.loads(row) for row in (fables_run / "metrics.jsonl").read_text().splitlines()]
    excess = [row["val_loss"] - row["val_floor"] for row in rows if "val_loss" in row]
    close(
        torch.tensor([float(value) for value in re.findall(r",(\S+)", curve.partition(";")[0])]), torch.tensor(excess)
    )

    for part in ("machine", "text", "lens", "inside", "knock", "compare"):
        *_, caption = texts = list(picture_of(page, part).iter(f"{SVG}text"))
        assert float(caption.get("y")) == max(float(each.get("y")) for each in texts)  # below all that is seen
    show(page, text=text, guess=True)
    assert "kl" not in "".join(said_in(picture_of(page, "next"), "desc")[1:])  # nor what else is hidden
    show(page, text="\x01 \ud83e")  # XML has no name for these
    assert "\ufffd" in said_in(picture_of(page, "text"), "desc")[0]

    show(page, text=text, head="0.1", checkpoint="fables@2", at=3)
    before = page.evaluate("microscope.store.get()")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = page.locator("#part-attention .lead button", has_text="copy link")
    copy.press("Enter")
    expect(page.locator("#part-attention .lead [aria-live]")).to_have_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(); }")
    copy.press("Enter")
    field = page.get_by_label("Link to this view")
    expect(field).to_be_focused()
    expect(field).to_have_value(link)
    assert serious_violations(page, "#part-attention") == []

    page.goto("about:blank")
    page.goto(link)
    complete(page)
    expect(page.locator("#part-attention h2")).to_be_in_viewport()
    assert settled(page).evaluate("microscope.store.get()") == before
    page.wait_for_function("() => !location.hash.includes('part=')")


def test_a_broken_link_opens_all_parts_and_says_what_it_left_out(browser, address, text):
    page, faults = browser.new_page(viewport=LAPTOP), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    for said, message in BROKEN_LINKS.items():
        page.goto("about:blank")
        page.goto(f"{address}#text={text}&{said}")
        settled(page).wait_for_selector(CANDIDATES)
        expect(page.locator("#problem")).to_contain_text(message)
        assert (page.evaluate("microscope.state.off"), page.evaluate("microscope.state.temperature")) == ("", 1)
    page.close()
    assert faults == []


def test_another_run_is_shown_with_its_own_vocabulary_however_late_that_comes(page, text):
    show(page, text=text)
    page.evaluate("""() => {
        const { source } = microscope;
        window.own = { ...source };
        const asFables = (asked) => ({ ...asked, checkpoint: "fables@4" });
        for (const name of Object.keys(own).filter((name) => typeof own[name] === "function" && name !== "news"))
            source[name] = (asked) => own[name](asFables(asked));
        // The same words under other numbers, which the vocabulary at hand does not reach.
        let isTraced;
        const traced = new Promise((resolve) => (isTraced = resolve));
        source.model = async (asked) => {
            await traced;
            const model = await own.model(asFables(asked));
            const [texts, bytes] = [model.texts.map((text) => text.toUpperCase()), model.bytes];
            return { ...model, texts: [...model.texts, ...texts], bytes: [...bytes, ...bytes] };
        };
        source.trace = async (asked) => {
            const trace = await own.trace(asFables(asked));
            const ids = trace.ids.map((id) => id + microscope.model.vocab_size);
            setTimeout(isTraced);
            return { ...trace, checkpoint: asked.checkpoint, ids };
        };
        microscope.runs.push({ ...microscope.runs[0], name: "other", checkpoints: [{ id: "other@1", step: 1 }] });
        microscope.store.set({ checkpoint: "other@1" });
    }""")
    page.wait_for_function("() => microscope.model.texts.length > microscope.model.vocab_size && microscope.deciding")
    shown, has_problem = page.locator("#part-text .token").nth(1).text_content(), page.locator("#problem").is_visible()
    page.evaluate("""() => {
        Object.assign(microscope.source, own);
        // What is still asked about the run that is not there is asked about the other, too.
        const known = ({ checkpoint, ...rest }) =>
            ({ ...rest, checkpoint: checkpoint === "other@1" ? "fables@4" : checkpoint });
        for (const name of ["examples", "heads"]) microscope.source[name] = (asked) => own[name](known(asked));
        microscope.runs.pop();
    }""")
    show(page, text=text)
    assert shown == page.locator("#part-text .token").nth(1).text_content().upper()
    assert not has_problem


def test_everything_is_reached_by_keyboard_and_link_and_axe_finds_no_serious_violation(page, text):
    show(page, text=text, inside=True, other="fables@2")
    is_around = False
    while not is_around:
        page.keyboard.press("Tab")
        is_around = page.evaluate(
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

    terms = page.locator(".term")
    said = terms.evaluate_all("all => all.map((each) => [each.textContent, each.dataset.says, each.tabIndex])")
    assert {"loss", "floor", "excess", "KL", "head"} <= {word for word, _, _ in said}
    assert all(says and tab == 0 for _, says, tab in said)
    shown = "each => getComputedStyle(each, '::after').content"
    floor = page.locator("#part-run .term").filter(has_text="floor")
    assert floor.evaluate(shown) == "none"
    floor.focus()
    assert floor.evaluate(shown) == f'"{floor.get_attribute("data-says")}"'

    # The bar goes to each part and marks the one in sight
    show(page, text=text, head="0.0")
    page.click("#part-machine .is-attention button.title >> nth=1")  # a part of the first screen is a door to its panel
    expect(page.locator("#h-attention")).to_be_in_viewport()
    settled(page)  # a click would be lost on a button that is being drawn again
    page.click("#part-machine .heads button[aria-label^='Head 1.1']")
    page.wait_for_function("() => microscope.state.head === '1.1'")
    settled(page)
    page.click("#part-machine .is-feed_forward button.title >> nth=0")
    expect(page.locator("#h-inside")).to_be_in_viewport()
    page.wait_for_function("() => microscope.state.head === '0.0' && microscope.state.inside")

    # Many equations open at their beginning
    page.set_viewport_size({"width": 1280, "height": 720})
    show(page, text=text)
    page.click("#part-inside .eq")
    expect(page.locator("#equation-title")).to_be_in_viewport()
    expect(page.locator("#equation-title")).to_be_focused()
    page.keyboard.press("Escape")
    page.set_viewport_size(LAPTOP)

    show(page, text=text)
    page.evaluate("scrollBy(0, document.querySelector('#part-next').getBoundingClientRect().top - 0.225 * innerHeight)")
    page.wait_for_selector(".parts .here >> text=The next token")
    assert page.locator(".parts .here").count() == 1  # though two are in sight
    page.click(".parts button >> text=Inside one step")  # a short one
    page.wait_for_selector(".parts .here >> text=Inside one step")

    page.keyboard.press("Shift")  # whoever touches a key is not scrolled any further
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    page.evaluate("""() => {
        const room = document.createElement("div");
        room.id = "room";
        room.style.height = "1500px";
        const fill = () => document.getElementById("part-knock").prepend(room);
        addEventListener("scroll", fill, { once: true });
    }""")
    page.click(".parts button >> text=Compare")  # the last one, which is pushed away by what is filled on the way
    page.wait_for_selector("#room", state="attached")
    page.wait_for_selector(".parts .here >> text=Compare")
    page.evaluate("document.getElementById('room').remove()")

    page.set_viewport_size(PHONE)
    is_in_sight = """(width) => {  // the parts above it may still be drawn for the phone, and move it
        document.querySelector("#part-knock").scrollIntoView();
        const here = document.querySelector(".parts .here");
        const { left, right } = here?.getBoundingClientRect() ?? {};
        return here?.textContent.includes("Knock out") && 0 <= left && right <= width;
    }"""
    page.wait_for_function(is_in_sight, arg=PHONE["width"])
    page.set_viewport_size(LAPTOP)

    # On a text of three words: of each kind of element there are several, and every one takes its time
    for theme, rules in (("light", None), ("dark", ["color-contrast"])):
        show(page, text=" ".join(text.split()[:3]), theme=theme, inside=theme == "light", other="fables@2", off="1.0")
        page.eval_on_selector_all("main .body", "all => all.forEach((e) => { e.style.contentVisibility = 'visible' })")
        assert serious_violations(page, rules=rules) == []


def test_every_control_is_inside_the_window_and_a_projector_shows_the_whole_model(page, text):
    for large in (False, True):
        show(page, text=text, inside=True, other="fables@2", large=large)
        for size in (PHONE, LAPTOP):
            page.set_viewport_size(size)
            settled(page)
            outside = page.eval_on_selector_all(
                CONTROLS,
                "all => all.filter((e) => e.checkVisibility() && !e.closest('.parts, .table-frame')).filter((e) => {"
                " const box = e.getBoundingClientRect(); return box.left < 0 || box.right > innerWidth + 0.5; })"
                ".map((e) => e.outerHTML.slice(0, 80))",
            )
            assert outside == []
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]

    page.set_viewport_size({"width": 1280, "height": 720})
    settled(page)
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    boxes = "all => all.map((each) => each.getBoundingClientRect().toJSON())"
    for stage in page.eval_on_selector_all("#part-machine .stage", boxes):
        assert stage["left"] >= 0, stage
        assert stage["right"] <= 1280, stage
        assert stage["bottom"] <= 720, stage


def test_a_page_without_a_server_says_so_and_then_what_the_server_cannot_give(browser, address):
    page = browser.new_page()
    page.route("**/api/**", lambda route: route.abort())
    page.goto(f"{address}#other=fables@9")
    expect(page.locator("#problem")).to_contain_text("The server does not answer")

    gone = {"name": "other", **NOT_BEGUN, "problem": "other: this folder is gone; bring it back"}
    fable = page.request.get(f"{address}api/run").json()["runs"]
    refused = {"error": {"message": "heads: attention weights do not sum to 1 here; choose another run"}}
    page.route("**/api/run*", lambda route: route.fulfill(json={"runs": [gone, *fable]}))
    page.route("**/api/heads*", lambda route: route.fulfill(status=400, json=refused))
    page.route("**/api/news*", lambda route: route.fulfill(status=500))
    page.unroute("**/api/**")
    expect(page.locator("#problem")).to_contain_text("the server answered 500")
    page.unroute("**/api/news*")
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#part-text .token").first).to_be_attached()
    expect(page.locator("#part-attention")).to_contain_text("No names for these heads: heads: attention weights")
    expect(page.locator("#run-choice")).to_have_value("fables")
    expect(page.locator("#part-compare .empty")).to_have_text("fables, step 9 is not there any more. Choose another B.")
    assert page.locator("#run-choice option").all_inner_texts() == ["other (gone)", "fables"]
    page.unroute_all(behavior="ignoreErrors")
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
    # The first news, that nothing trains, makes the page ask for the runs once more: they must not be the later ones.
    answers = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('api/run'))"
    page.wait_for_function(f"() => {answers}.length === 2")

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
    page.unroute_all(behavior="ignoreErrors")
    page.close()


def test_a_large_model_is_measured_only_when_that_is_asked_and_of_one_checkpoint_there_is_nothing_to_compare(
    browser, address, text
):
    """To measure it takes minutes in which the model answers nothing else as fast."""

    def enlarged(route):
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"n_parameters": 1e9})

    def last_alone(route):
        answer = route.fetch()
        [run] = answer.json()["runs"]
        route.fulfill(response=answer, json={"runs": [run | {"checkpoints": run["checkpoints"][-1:]}]})

    with watched(browser, "", "about:blank") as page:
        page.clock.install()
        asked = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        page.route("**/api/model?*", enlarged)
        page.route("**/api/run*", last_alone)
        page.goto(f"{address}#{urlencode({'text': text})}")
        expect(page.locator("#measure")).to_be_visible()
        page.clock.fast_forward(5000)
        settled(page)
        assert "knock_out" not in asked
        expect(page.locator("#part-compare .empty")).to_contain_text("Serve a second run beside it")
        expect(page.locator("#other")).to_be_hidden()


def test_of_a_model_without_heads_the_page_leaves_out_what_there_is_not_and_shows_the_rest(
    browser, fables_run, lstm_run, text
):
    run = load(lstm_run)
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode(text)]
    log_q_TV = run.model.eval()(torch.tensor([ids]))[0].detach().log_softmax(-1)
    view = urlencode({"text": text, "off": "1.0", "inside": "true", "other": "fables@4"})
    with served(make_app([fables_run, lstm_run])) as (_, port), watched(browser, "", "about:blank") as page:
        page.clock.install()
        page.goto(f"http://127.0.0.1:{port}/#{view}")
        page.wait_for_selector("[data-part]", state="attached")  # a moment later part 7 asks
        page.evaluate("microscope.store.set({ checkpoint: 'lstm@1' })")
        page.clock.fast_forward(5000)  # and is refused nothing, though this model has no parts
        settled(page)
        shown = ["Your model", "1 The run", "2 The text", "5 The next token", "8 Compare"]
        for headings in ("main h2", ".parts button"):
            assert page.locator(f"{headings}:visible").all_inner_texts() == shown
        why = "this kind of model (lstm) has no attention heads and no residual stream"
        expect(page.locator("#left-out")).to_contain_text(f"7 Knock out, because {why}.")
        close(values(page, "#part-text .token")[1:], -log_q_TV[range(len(ids) - 1), ids[1:]])
        assert_expects(page, log_q_TV[-1].exp())
        expect(page.locator(".map[data-side=A]")).to_have_count(0)
        expect(page.locator(".map[data-side=B]")).to_have_count(1)
        close(values(page, ".cell-B[data-side]")[1:].mean(), value(page, "mean_B"))
        close(values(page, ".cell-floor")[1:].mean(), value(page, "compare_floor"))
        page.keyboard.press(".")
        expect(page.locator("#problem")).to_be_hidden()

        page.evaluate("microscope.store.set({ off: '', other: '' })")
        page.select_option("#run-choice", "fables")
        settled(page)
        expect(page.locator("main > section:visible")).to_have_count(9)
        expect(page.locator("#left-out")).to_be_hidden()
        expect(page.locator("#other")).to_have_value("lstm@1")  # another run that cuts text into the same tokens
        expect(page.locator("#part-compare .pair-token")).to_have_count(len(values(page, "#part-text .token")))
        expect(page.locator("#part-compare .maps")).to_contain_text("B has no attention heads.")
        page.select_option("#other", "none")
        expect(page.locator("#part-compare .pair-token")).to_have_count(0)

        page.wait_for_selector("[data-row]", state="attached")


def test_of_a_conversation_only_the_answer_is_coloured_and_counted_and_what_is_written_stays_in_its_turn(
    browser, chat_run
):
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
        assert_expects(page, log_q_TV[len(given) - 1].exp())
        expect(page.locator("#held-out")).to_have_text("a held-out conversation")
        expect(page.locator("#measure")).to_be_hidden()
        expect(page.locator("#part-knock [role=status]")).to_contain_text("only in a language that names its skills")

        page.evaluate("microscope.store.set({ top_k: 1 })")
        settled(page).click("#sample")
        page.wait_for_function("n => microscope.trace.ids.length > n", arg=len(given))
        assert page.evaluate("microscope.trace.ids") == [*given, likeliest(run, given)]
        assert page.input_value("#text").startswith(f"<|user|>{question}<|end|><|assistant|>")

        page.fill("#text", f"<|user|>{question}<|end|><|assistant|>Long ago")
        expect(settled(page).locator(".token")).to_have_count(len(ids))
        close(values(page, ".token")[len(given) :], surprise)
        close(value(page, "surprise"), surprise.mean())
        assert value(page, "answered") == len(surprise)
        page.wait_for_function("() => document.querySelector('[data-name=floor]').dataset.value")
        close(value(page, "floor"), values(page, ".token", "data-floor")[len(given) :].mean())
