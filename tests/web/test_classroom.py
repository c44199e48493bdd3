"""A class guesses the next token: one answer for each browser, the chart, and what other machines can reach."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from playwright.sync_api import Browser, expect

from pellucid.web.app import make_app
from pellucid.web.classroom import BOARD, PUPILS, SOMETHING_ELSE, choices_after, first_checkpoint
from pellucid.web.microscope import Microscope
from serving import served

BEGINNING = "Once upon a time"
HOST = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def app(fables_run: Path):
    return make_app([fables_run], host="0.0.0.0", class_link="http://192.0.2.7:8000/class")


class Client:
    """A browser at an address of the network. It keeps its cookies."""

    def __init__(self, app, address: str) -> None:
        self._app, self._address, self.cookies = app, address, httpx.Cookies()

    def ask(self, method: str, path: str, **form: str) -> httpx.Response:
        async def once() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, client=(self._address, 5000), raise_app_exceptions=False)
            options = {"transport": transport, "base_url": f"http://{HOST}", "cookies": self.cookies}
            async with httpx.AsyncClient(follow_redirects=True, **options) as client:
                answer = await client.request(method, path, data=form or None)
                self.cookies = client.cookies
                return answer

        with ThreadPoolExecutor(1) as thread:  # an open browser keeps this one from running an event loop
            return thread.submit(asyncio.run, once()).result()

    def choose(self, i: int) -> httpx.Response:
        """Press a button of the page, which must be there."""
        page = self.ask("GET", PUPILS).text
        return self.ask("POST", PUPILS, round=re.search(r"name='round' value='(\w+)'", page)[1], choice=str(i))


@pytest.fixture
def teacher(app, fables_run: Path) -> Client:
    """Who has just asked a question."""
    client = Client(app, "127.0.0.1")
    checkpoint = first_checkpoint(Microscope([fables_run]).runs)
    assert client.ask("POST", BOARD, checkpoint=checkpoint, text=BEGINNING).status_code == 200
    return client


def shares(page: str) -> list[list[int]]:
    """The per cents of a chart, row by row."""
    return [[int(n) for n in re.findall(r"(\d+) %", row)] for row in re.findall(r"<tr>(.*?)</tr>", page)]


@pytest.mark.parametrize("text", [BEGINNING, "no fable begins like this"])
def test_choices_have_the_probabilities_of_model_and_truth(fables_run: Path, text: str):
    microscope = Microscope([fables_run])
    checkpoint = first_checkpoint(microscope.runs)
    choices = choices_after(microscope, checkpoint, text)
    opened, traced = microscope.traced(checkpoint, text)
    p = opened.model(torch.tensor([traced.ids]))[0, -1].softmax(-1)
    texts = microscope.model(checkpoint)["texts"]
    for choice in choices[:-1]:
        assert choice.model == pytest.approx(p[texts.index(choice.text)].item(), rel=1e-4)
    assert choices[-1].text == SOMETHING_ELSE
    assert sum(choice.model for choice in choices) == pytest.approx(1)
    if text == BEGINNING:
        assert sum(choice.truth for choice in choices) == pytest.approx(1)
        assert max(choice.truth for choice in choices[:-1]) > 0.1
    else:
        assert {choice.truth for choice in choices} == {None}


def test_each_browser_has_one_answer_until_the_board_shows_them(app, teacher: Client):
    pupils = [Client(app, f"192.0.2.{n}") for n in range(4)]
    for pupil, choice in zip(pupils, (0, 0, 1, 2), strict=True):
        assert "Wait for the others" in pupil.choose(choice).text
    first = pupils[0].ask("GET", PUPILS)
    assert "<button" not in first.text  # it has answered
    assert "<b>4</b> answers" in teacher.ask("GET", BOARD).text
    assert shares(teacher.ask("GET", BOARD).text) == []  # nobody sees a chart before it is time
    shown = teacher.ask("POST", BOARD, show="1").text
    assert [row[0] for row in shares(shown)][:3] == [50, 25, 25]
    assert {len(row) for row in shares(shown)} == {3}  # class, model and truth
    late = Client(app, "192.0.2.9")
    late.ask("GET", PUPILS)
    assert shares(pupils[3].ask("GET", PUPILS).text) == shares(late.ask("POST", PUPILS, round="x", choice="0").text)
    assert "You did not answer this one" in late.ask("GET", PUPILS).text


def test_a_board_that_has_asked_nothing_has_nothing_to_show(fables_run: Path):
    alone = make_app([fables_run], host="0.0.0.0", class_link="http://192.0.2.7:8000/class")
    assert "Ask the class" in Client(alone, "127.0.0.1").ask("POST", BOARD, show="1").text
    assert "about to come" in Client(alone, "192.0.2.3").ask("GET", PUPILS).text


def test_an_answer_to_an_earlier_question_does_not_count(app, teacher: Client):
    pupil = Client(app, "192.0.2.3")
    page = pupil.ask("GET", PUPILS).text
    earlier = re.search(r"name='round' value='(\w+)'", page)[1]
    teacher.ask(
        "POST", BOARD, checkpoint=re.search(r"[\w.-]+@\d+", teacher.ask("GET", BOARD + "?text=x").text)[0], text="A"
    )
    assert "<button" in pupil.ask("POST", PUPILS, round=earlier, choice="0").text
    assert "<b>0</b> answers" in teacher.ask("GET", BOARD).text


@pytest.mark.parametrize("choice", ["-1", "99", "fox", ""])
def test_a_choice_that_is_not_on_the_page_is_refused(app, teacher: Client, choice: str):
    pupil = Client(app, "192.0.2.3")
    page = pupil.ask("GET", PUPILS).text
    name = re.search(r"name='round' value='(\w+)'", page)[1]
    refused = pupil.ask("POST", PUPILS, round=name, choice=choice)
    assert refused.status_code == 400
    assert "press one of its buttons" in refused.text


@pytest.mark.parametrize("address", ["192.0.2.3", "::ffff:192.0.2.3", "2001:db8::3"])
def test_other_machines_reach_the_pupils_page_alone(app, teacher: Client, address: str):
    pupil = Client(app, address)
    for path in (PUPILS, "/static/style.css", "/static/class.css"):
        assert pupil.ask("GET", path).status_code == 200
    for method, path in (("GET", "/"), ("GET", BOARD), ("POST", BOARD), ("GET", "/api/run"), ("GET", "/v1/models")):
        refused = pupil.ask(method, path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "only_the_class")
    assert teacher.ask("GET", "/").status_code == 200
    assert Client(app, "::ffff:127.0.0.1").ask("GET", "/api/run").status_code == 200


def test_a_text_is_text_and_not_markup(app, teacher: Client):
    teacher.ask("POST", BOARD, checkpoint="fables@4", text="<script>'\"&")
    for client, path in ((teacher, BOARD), (Client(app, "192.0.2.3"), PUPILS), (teacher, BOARD + "?text=<script>")):
        page = client.ask("GET", path).text
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_a_text_that_leaves_no_room_is_refused_in_one_line(app, teacher: Client):
    refused = teacher.ask("POST", BOARD, checkpoint="fables@4", text="a fox " * 300)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].endswith("shorten it")


def test_a_phone_without_scripts_answers_and_the_board_shows_it(browser: Browser, app):
    with served(app) as (_, port):
        board = browser.new_page()
        board.goto(f"http://127.0.0.1:{port}{BOARD}?text={BEGINNING}")
        board.get_by_role("button", name="Ask the class").click()
        expect(board.locator(".count")).to_have_text("0 answers")
        phone = browser.new_context(java_script_enabled=False, viewport={"width": 360, "height": 640}).new_page()
        phone.goto(f"http://127.0.0.1:{port}{PUPILS}")
        wide = phone.locator("html").evaluate("page => page.scrollWidth")
        assert wide <= 360
        phone.locator(".choices button").first.click()
        expect(phone.locator("main")).to_contain_text("Wait for the others")
        expect(board.locator(".count")).to_have_text("1 answer")  # it asks again by itself
        board.get_by_role("button", name="Show").click()
        expect(board.locator("svg.vote.truth").first).to_be_visible()
        expect(board.get_by_role("rowheader").first).to_be_visible()
        expect(phone.locator("table.votes")).to_be_visible()
        board.close()


def test_the_first_screen_hands_the_text_up_to_its_token_to_the_board(browser: Browser, app):
    with served(app) as (_, port):
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/#checkpoint=fables%402&text=Once+upon+a+time+there&at=2")
        page.wait_for_function("() => microscope.trace && microscope.model && !microscope.isTyping")
        before = page.evaluate(
            "() => microscope.trace.ids.slice(1, 3).map((id) => microscope.model.texts[id]).join('')"
        )
        with page.expect_popup() as opened:
            page.get_by_role("button", name="Ask the class").click()
        expect(opened.value.locator("textarea")).to_have_value(before)
        opened.value.get_by_role("button", name="Ask the class").click()
        expect(opened.value.locator(".told")).to_have_text(before)
        page.context.close()
