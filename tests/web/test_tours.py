"""A tour shows what it names, measures what it says, and asks before it shows: on the page and in an exported file."""

import re
from base64 import b64decode
from pathlib import Path

import check_tours
import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from browsing import LAPTOP, PHONE, box, serious_violations, settled
from pellucid import load
from pellucid.config.shipped import DEMO
from pellucid.config.tour import load_tour
from pellucid.errors import ConfigError
from pellucid.inspection.trace import trace_outside
from pellucid.web.app import make_app
from pellucid.web.export import export_page
from pellucid.web.microscope import Microscope
from pellucid.web.stops import N_DOCUMENTS, drawn
from pellucid.web.tours import TOURS, Tours
from serving import served

TEXT = "Once upon a time there was a fox"
TOUR = f"""\
title: Short
about: What it is about.
minutes: 1
runs:
  decoder: {{where: {{model.type: decoder}}, made_by: make demo}}
  lstm: {{where: {{model: {{type: lstm}}}}, made_by: nobody}}
stops:
  - title: One
    say: |
      It is sure of **{{guess}}**.

      Its loss is {{loss}}.
    show: {{text: {TEXT}, at: there, step: first, part: text, head: previous token}}
    question: What becomes of it?
    choices: [it stays, it goes]
    answer: it goes
    then: {{off: head, step: last, part: next}}
    because: From {{before}} to {{after}}, without `{{head}}`.
    measures:
      guess: {{of: likeliest, before: true}}
      before: {{of: probability, token: was, before: true, least: 0.9}}
      after: {{of: probability, token: was, most: 1}}
      loss: {{of: metric, name: val_loss}}
      head: {{of: head}}
  - title: Two
    say: The LSTM is at {{loss}}.
    show: {{run: lstm, off: "", compare: decoder@2, temperature: 0.5, part: compare}}
    question: Which token does it expect?
    choices: [none of them, any]
    answer: "{{token}}"
    because: Half as hot, {{p}}; B has {{b}}.
    measures:
      loss: {{of: metric, name: train_loss, step: 1}}
      token: {{of: likeliest}}
      p: {{of: probability}}
      b: {{of: surprise, side: B}}
  - title: Three
    say: That is all.
    show: {{run: decoder}}
    question: How sure is it?
    choices: {{very: {{least: 0.9}}, not very: {{most: 0.9}}}}
    answer: "{{p}}"
    because: It has {{p}}.
    measures:
      p: {{of: probability}}
"""


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tour") / "short.yaml"
    file.write_text(TOUR)
    return file


@pytest.fixture(scope="module")
def runs(fables_run: Path, lstm_run: Path) -> Microscope:
    return Microscope([fables_run, lstm_run])


@pytest.fixture(scope="module")
def stops(runs: Microscope, tour: Path) -> list[dict]:
    return Tours(runs, [tour]).played("short")["stops"]


def test_a_stop_shows_what_it_names_and_all_else_as_the_stop_before(stops, fables_run):
    one, two, three = stops
    place = load(fables_run, "latest").tokenizer.encode("Once upon a time there")
    assert one["show"] | {"head": ""} == {
        "checkpoint": "fables@2",
        "other": "none",
        "text": TEXT,
        "at": len(place),
        "head": "",
        "off": "",
        "instead": "",
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "inside": False,
    }
    changed = {key for key, value in one["then"].items() if value != one["show"][key]}
    assert changed == {"off", "checkpoint"}
    assert one["then"]["off"] == one["show"]["head"] != ""
    assert (two["show"]["checkpoint"], two["show"]["other"], two["show"]["head"]) == ("lstm@1", "fables@2", "")
    assert (two["show"]["at"], two["show"]["off"], two["then"]) == (one["show"]["at"], "", two["show"])
    assert (three["show"]["temperature"], three["show"]["other"]) == (0.5, "fables@2")
    assert [stop["part"] for stop in stops] == ["text", "compare", "compare"]


def test_figures_are_measured_in_the_runs_at_hand(stops, fables_run, lstm_run):
    [one, two, _] = stops
    run = load(fables_run, "2")
    [was] = run.tokenizer.encode(" was")
    before = run.trace(TEXT).logits[-1, one["show"]["at"]].softmax(-1)
    torch.testing.assert_close(one["measured"]["before"], float(before[was]))
    assert run.tokenizer.decode([int(before.argmax())]).strip() in one["say"]
    assert one["measured"]["loss"] == run.metrics[-1]["val_loss"]
    after = load(fables_run, "latest").trace(TEXT, knock_out=[("head", *map(int, one["then"]["off"].split(".")))])
    torch.testing.assert_close(one["measured"]["after"], float(after.logits[-1, one["show"]["at"]].softmax(-1)[was]))
    lstm = load(lstm_run, "latest")
    ids = [lstm.tokenizer.end_of_text, *lstm.tokenizer.encode(TEXT)]
    logits_V = trace_outside(lstm.model, ids).logits[-1, one["show"]["at"]]
    torch.testing.assert_close(two["measured"]["p"], float((2 * logits_V).softmax(-1).max()))
    assert two["answer"] == lstm.tokenizer.decode([int(logits_V.argmax())]).strip()


def test_a_measured_answer_is_one_of_the_choices_in_an_order_that_tells_nothing(stops):
    assert stops[1]["choices"] == sorted(["none of them", "any", stops[1]["answer"]])
    assert stops[0]["choices"] == ["it stays", "it goes"]


def test_where_a_run_differs_from_what_the_tour_claims_it_is_said(stops, runs, tour):
    [miss] = stops[0]["misses"]
    assert miss.startswith("probability of “was” is ")
    assert miss.endswith(", and the question needs at least 90%")
    assert Tours(runs, [tour]).differences("short") == [f"stop 1: {miss}"]


def test_a_figure_decides_which_of_the_choices_with_bounds_is_right(stops, runs, tmp_path):
    assert stops[2]["measured"]["p"] < 0.9
    assert (stops[2]["choices"], stops[2]["answer"]) == (["very", "not very"], "not very")
    file = tmp_path / "short.yaml"
    file.write_text(TOUR.replace("most: 0.9", "most: 0"))
    none = Tours(runs, [file]).played("short")["stops"][2]
    assert none["answer"] is None
    assert none["misses"] == [f"{none['because'][7:-1]} is within the bounds of no choice"]


def test_a_loss_names_the_first_checkpoint_that_has_come_down_to_it_and_what_follows_stays_at_its_step(runs, tmp_path):
    """A slow computer takes fewer steps in the same time, so the number of a step says little."""
    texts = runs.runs.held_out("fables@4", N_DOCUMENTS)
    assert len(texts) == N_DOCUMENTS
    each = [[surprises(runs.traced(f"fables@{step}", text)[1]) for text in texts] for step in (2, 4)]
    losses = [float(torch.cat(surprise).mean()) for surprise in each]
    assert losses[0] > losses[1]
    file = tmp_path / "short.yaml"
    for loss, shown in [(losses[0] + 0.01, 2), (losses[0] - 0.01, 4), (1e-9, 4)]:
        file.write_text(TOUR.replace("step: first", f"loss: {loss}").replace("step: last, ", ""))
        one, two, three = Tours(runs, [file]).played("short")["stops"]
        assert (
            one["show"]["checkpoint"] == one["then"]["checkpoint"] == three["show"]["checkpoint"] == f"fables@{shown}"
        )
        assert two["show"]["checkpoint"] == "lstm@1"


def surprises(traced) -> torch.Tensor:
    return -traced.logits[-1].log_softmax(-1)[range(len(traced.ids) - 1), traced.ids[1:]]


def test_between_two_checkpoints_the_nearer_one_by_ratio_is_shown(runs, tmp_path):
    """They lie closer together the earlier they are: 3 is as far from 2 as from 4, and nearer to 4 by ratio."""
    file = tmp_path / "short.yaml"
    file.write_text(TOUR.replace("step: first", "step: 3"))
    stops = Tours(runs, [file]).played("short")["stops"]
    assert stops[0]["show"]["checkpoint"] == "fables@4"


@pytest.fixture(scope="module")
def demo() -> Microscope:
    return Microscope([DEMO])


@pytest.fixture(scope="module")
def recall(demo: Microscope) -> list[dict]:
    return Tours(demo).played("recall")["stops"]


def test_a_share_of_attention_is_the_one_that_the_page_shows(demo, recall):
    stop = recall[5]
    checkpoint, text = stop["show"]["checkpoint"], stop["show"]["text"]
    sent = demo.trace(checkpoint, text)["attention"]
    shares = np.frombuffer(b64decode(sent["data"]), np.float16).reshape(sent["shape"]).astype(np.float32)
    layer, head = map(int, stop["show"]["head"].split("."))
    places = demo.deciding(checkpoint, text)["places"][-1]
    assert stop["measured"]["looks"] == shares[layer, head, -1, places].sum()


def test_a_script_lists_all_figures_and_where_they_are_out_of_bounds(fables_run, lstm_run, tour, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["check_tours.py", str(fables_run), str(lstm_run), "--tour", str(tour)])
    with pytest.raises(SystemExit) as ended:
        check_tours.main()
    told = capsys.readouterr().out
    assert re.search(r"^short 2  Two: loss [\d.]+, p [\d.]+, b [\d.]+$", told, flags=re.MULTILINE)
    assert told.endswith("\n1 out of bounds\n")
    assert ended.value.code == 1


def test_sliders_act_in_the_order_of_sampling():
    logits_V = torch.tensor([2.0, 1.0, 0.0, -1.0])
    p_V = drawn(logits_V, {"temperature": 0.5, "top_k": 3, "top_p": 0.9})
    kept_V = (2 * logits_V).softmax(-1)[:2]
    torch.testing.assert_close(p_V, torch.cat([kept_V / kept_V.sum(), torch.zeros(2)]))
    assert drawn(logits_V, {"temperature": 0, "top_k": 0, "top_p": 1})[0] == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at: there", "at: their", "tour short, stop 1: at: 'their' is not in the text"),
        (
            "head: previous token",
            "head: best",
            "stop 1: head: 'best' is neither a head nor a score; write 1.2, deciding,",
        ),
        ("at: there", "at: 99", "stop 1: at: the text that the model reads has no token 99; name one up to "),
        ("head: previous token", 'head: "2.0"', "stop 1: head: fables has no head 2.0; name one up to 1.1"),
        ("off: head", "off: f2", "stop 1: off: fables@4 has no part f2; name one that part 7 shows"),
        (", head: previous token", "", "stop 1: off: head, and no head is shown; add `head`"),
        ("{of: likeliest}", "{of: attention}", "stop 2: attention is measured, and no head is shown; add `head`"),
        ("name: val_loss", "name: skills.recall", "stop 1: fables has not measured 'skills.recall'; name a column"),
        ("token: was, most", "token: wasp, most", "stop 1: 'wasp' is no single token of this run"),
        ("name: train_loss", "name: loss", "stop 2: lstm has not measured 'loss'; name a column"),
        ("compare: decoder@2, ", "", "stop 2: side B is measured, and there is none; add `compare`"),
        (
            "{type: lstm}",
            "{type: gru}",
            "tour short: this tour shows a run that is not here: lstm; add one made by `nobody`",
        ),
    ],
)
def test_a_tour_that_asks_for_what_is_not_there_says_so_with_its_stop(runs, tmp_path, old, new, message):
    assert TOUR.count(old) == 1
    file = tmp_path / "short.yaml"
    file.write_text(TOUR.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        Tours(runs, [file]).played("short")
    assert message in str(raised.value)


def test_a_tour_may_show_an_empty_text(runs, tmp_path):
    file = tmp_path / "short.yaml"
    file.write_text(TOUR.replace('off: "", compare', 'text: "", off: "", compare'))
    [_, two, _] = Tours(runs, [file]).played("short")["stops"]
    assert (two["measured"]["b"], "B has –." in two["because"]) == (None, True)


def test_only_tours_whose_runs_are_here_are_offered(fables_run, lstm_run, tour):
    def offered(*runs: Path) -> list[str]:
        return [each["name"] for each in Tours(Microscope(runs), [tour]).listed()["tours"]]

    assert offered(fables_run) == ["first_look", "temperature", "recall"]
    assert offered(lstm_run) == []
    assert offered(lstm_run, fables_run) == ["first_look", "temperature", "attention", "recall", "short"]


def test_the_shipped_tours_claim_nothing_of_the_finished_demo_that_is_not_so(demo, recall):
    assert len(Tours(demo).played("first_look")["stops"]) == 6
    for stops in (recall, *(Tours(demo).played(name)["stops"] for name in ("temperature", "first_look"))):
        of_the_end = [stop for stop in stops if stop["title"] not in OF_THE_BEGINNING]
        assert len(of_the_end) >= 6
        assert [(stop["title"], stop["misses"]) for stop in of_the_end if stop["misses"]] == []


def test_the_control_is_a_head_of_the_same_layer(recall):
    """An earlier layer may be what makes the deciding head look, and then it is no control."""
    _, _, off, control, *_ = recall[3:]
    deciding, other = off["then"]["off"].split("."), control["then"]["off"].split(".")
    assert deciding[0] == other[0]
    assert deciding != other


@pytest.mark.parametrize("file", sorted(TOURS.glob("*.yaml")), ids=lambda file: file.stem)
def test_no_mark_of_a_shipped_tour_is_shown_as_it_is_written(file):
    """The page knows **bold** and `code`, and would show another asterisk."""
    for stop in load_tour(file).stops:
        texts = [stop.say, stop.question or "", stop.because or ""]
        assert not [text for text in texts if re.search("[*`]", re.sub(r"\*\*.+?\*\*|`.+?`", "", text))], stop.title


# These stops show checkpoints that the shipped demo does not have: scripts/check_tours.py holds them to a trained run.
OF_THE_BEGINNING = ("Before the first update", "A few updates later", "Pairs of words", "What comes late")


# On the page


@pytest.fixture(scope="module")
def address(fables_run: Path, lstm_run: Path, tour: Path):
    with served(make_app([fables_run, lstm_run], tours=[tour])) as (host, port):
        yield f"http://{host}:{port}/"


@pytest.fixture(params=["served", "exported"])
def page(request, browser: Browser, address: str, fables_run, lstm_run, tour, tmp_path):
    """The page at the first stop."""
    link = f"{address}#tour=short"
    if request.param == "exported":
        export_page([fables_run, lstm_run], tmp_path / "tour.html", tour=tour)
        link = (tmp_path / "tour.html").as_uri()
    page, wrong = browser.new_page(viewport=LAPTOP), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(link)
    expect(page.locator("#tour h2")).to_have_text("One")
    is_shown(page)
    yield page
    page.close()
    assert wrong == []


def is_shown(page: Page) -> None:
    """Waits for the trace of what the stop shows."""
    page.wait_for_function("""() => {
        const { state, trace } = microscope;
        return trace?.checkpoint === state.checkpoint && trace.text === state.text;
    }""")
    settled(page)


def state(page: Page) -> dict:
    return page.evaluate("microscope.state")


def test_the_page_asks_then_shows_and_counts_and_whoever_wanders_off_finds_the_way_back(page: Page, stops):
    tour = page.locator("#tour")
    expect(page.locator("#tour-back")).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    page.locator("#tour-back").click()
    is_shown(page)
    expect(page.locator("#tour-back")).to_be_hidden()
    expect(tour.locator("b").first).to_have_text(stops[0]["say"].split("**")[1])
    assert state(page).items() >= stops[0]["show"].items()
    expect(tour.locator(".because")).to_be_empty()
    page.get_by_role("button", name="it stays").click()
    expect(tour.locator(".because")).to_have_text(f"Not graded. In your run, {stops[0]['misses'][0]}.")
    expect(tour.locator(".wrong, .right")).to_have_count(0)  # where the run does not show it, nobody is wrong
    assert state(page).items() >= stops[0]["then"].items()
    page.locator("#tour-next").click()
    is_shown(page)
    assert state(page).items() >= stops[1]["show"].items()
    expect(page.locator("#part-compare h2")).to_be_in_viewport()
    page.locator(f"[data-choice='{stops[1]['answer']}']").click()
    expect(tour.locator(".because")).to_contain_text("Right.")
    page.locator("#tour-next").click()
    page.get_by_role("button", name="very", exact=True).click()
    expect(tour.locator(".because")).to_contain_text("Not this time: not very. It has ")
    expect(tour.locator(".score")).to_have_text("You predicted 1 of 2.")  # the first stop counts for nothing
    page.locator("#tour-previous").click()
    expect(tour.locator(".right")).to_have_text(stops[1]["answer"])  # as it was left
    page.go_back()  # the browser's own button is another way there
    expect(tour.locator(".score")).to_have_text("You predicted 1 of 2.")
    page.locator("#tour-again").click()
    expect(tour.locator("h2")).to_have_text("One")
    expect(tour.locator(".because")).to_be_empty()
    page.locator("#tour-end").click()
    expect(tour).to_be_hidden()
    assert state(page)["tour"] == ""
    page.go_back()
    expect(tour.locator("h2")).to_have_text("One")


def test_a_link_into_a_tour_opens_its_stop_as_it_was_left_and_leaves_the_page_usable(browser: Browser, address: str):
    page = browser.new_page(viewport=LAPTOP)
    page.goto(f"{address}#tour=short&stop=2&checkpoint=fables%402&text=Once")
    expect(page.locator("#tour h2")).to_have_text("Two")
    is_shown(page)
    assert (state(page)["text"], state(page)["checkpoint"]) == ("Once", "fables@2")
    page.locator("#tour-choice").select_option("")
    expect(page.locator("#tour")).to_be_hidden()
    page.locator("#tour-choice").select_option("short")
    expect(page.locator("#tour h2")).to_have_text("One")

    for size in (LAPTOP, PHONE):
        page.set_viewport_size(size)
        is_shown(page)
        boxes = [box(page, "#tour button", i) for i in range(page.locator("#tour button").count())]
        assert all(each["width"] > 0 and each["x"] >= 0 and each["right"] <= size["width"] for each in boxes)
        covered = box(page, "#tour")
        assert covered["width"] * covered["height"] <= 0.5 * size["width"] * size["height"]
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert serious_violations(page, where="#tour") == []  # at the rest of the page it has looked by then
    page.close()
