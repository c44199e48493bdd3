"""Guess first, as a class: each pupil chooses the next token on a phone, and a chart compares the class with the truth.

Answers are anonymous and stay in memory: a random number in a cookie gives each browser one answer, and is forgotten
with the browser. The pages have no script, so that any phone shows them. Only they can be reached from outside.
"""

import secrets
from asyncio import to_thread
from collections.abc import Sequence
from html import escape
from ipaddress import ip_address
from typing import Annotated, NamedTuple
from urllib.parse import parse_qs

import segno
from fastapi import APIRouter, Cookie, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pellucid.config.gaps import require_next_tokens
from pellucid.errors import DataError
from pellucid.tokenizer.pieces import token_text, visible
from pellucid.web.errors import ApiError, error_response
from pellucid.web.microscope import Microscope
from pellucid.web.runs import Runs

BOARD, PUPILS = "/class/board", "/class"
OPEN_TO_ALL = (PUPILS, "/static/style.css", "/static/class.css")
N_CHOICES, SOMETHING_ELSE, END = 6, "something else", "⟨end⟩"
LEAST_SHOWN = 5e-4  # a choice that is less likely, by the model and in truth, is "something else"
MOST_PUPILS = 1000
MOST_CHARACTERS = 400  # of the text so far, on a phone


class Choice(NamedTuple):
    """An answer that a pupil can choose, and how probable it is by the model and, where that is known, in truth."""

    text: str
    model: float
    truth: float | None


class Round:
    """One question, and the answers to it: the number of a choice for each pupil."""

    def __init__(self, checkpoint: str, text: str, choices: Sequence[Choice]) -> None:
        self.name = secrets.token_hex(4)
        self.checkpoint, self.text, self.choices = checkpoint, text, choices
        self.answers: dict[str, int] = {}
        self.is_shown = False

    def share(self, choice: int) -> float:
        """The share of the class that chose this."""
        return list(self.answers.values()).count(choice) / max(1, len(self.answers))

    def going_on(self) -> str:
        """The text with the likeliest choice behind it, for the next question."""
        likeliest = max(self.choices[:-1], key=lambda choice: (choice.truth or 0, choice.model))
        return self.text + (likeliest.text if likeliest.text != END else "")


def choices_after(microscope: Microscope, checkpoint: str, text: str) -> list[Choice]:
    """The likeliest next tokens by the model and in truth, in the order of their letters, then "something else"."""
    require_next_tokens(microscope.runs.open(checkpoint).trained.config)
    opened, traced = microscope.traced(checkpoint, text)
    if len(traced.ids) == opened.model.context_length:
        raise DataError("the text so far", "it fills the model's context, and no token fits after it", "shorten it")
    model: list[float] = traced.unembed(traced.residuals[-1, -1]).float().softmax(-1).tolist()
    known = (microscope.truth(checkpoint, text).get("positions") or [None])[-1]
    truth: dict[int, float] | None = dict(zip(known["ids"], known["p"], strict=True)) if known else None

    def likely(id_: int) -> float:
        return max(model[id_], truth.get(id_, 0.0) if truth else 0.0)

    ids = sorted(range(len(model)), key=likely, reverse=True)[:N_CHOICES]
    ids = [id_ for id_ in ids if likely(id_) >= LEAST_SHOWN] or ids  # all are, where a model knows nothing
    choices = []
    for id_ in ids:
        name = END if id_ == opened.tokenizer.end_of_text else token_text(opened.tokenizer, id_)
        choices.append(Choice(name, model[id_], None if truth is None else truth.get(id_, 0.0)))
    choices.sort()
    rest = None if truth is None else max(0.0, 1 - sum(choice.truth or 0 for choice in choices))
    return [*choices, Choice(SOMETHING_ELSE, max(0.0, 1 - sum(choice.model for choice in choices)), rest)]


def class_routes(microscope: Microscope, link: str) -> APIRouter:
    """The pupils' page, its answers, and the board. link: the pupils' page, as other machines reach it."""
    routes = APIRouter(default_response_class=HTMLResponse)
    now: Round | None = None

    @routes.get(PUPILS)
    def pupils(pupil: Annotated[str, Cookie()] = "") -> HTMLResponse:
        answer = HTMLResponse(page_of_pupil(now, pupil))
        if not pupil:
            answer.set_cookie("pupil", secrets.token_hex(8), path=PUPILS, httponly=True, samesite="strict")
        return answer

    @routes.post(PUPILS)
    async def answer(request: Request, pupil: Annotated[str, Cookie()] = "") -> RedirectResponse:
        """Keep an answer. One to an earlier question, or once the board shows them, counts no more."""
        given = form(await request.body())
        choice = given.get("choice", "")
        if now and given.get("round") == now.name and not now.is_shown and pupil:
            if not choice.isdecimal() or len(choice) > 2 or int(choice) >= len(now.choices):
                raise ApiError(400, f"choice {choice!r} is none of those on the page; press one of its buttons")
            if pupil not in now.answers and len(now.answers) >= MOST_PUPILS:
                raise ApiError(503, f"{MOST_PUPILS:,} answers are the most to one question; wait for the next one")
            now.answers[pupil] = int(choice)
        return RedirectResponse(PUPILS, status_code=303)

    @routes.get(BOARD)
    def board(checkpoint: str = "", text: str = "") -> str:
        shown = None if text else now
        checkpoint = checkpoint or (shown.checkpoint if shown else first_checkpoint(microscope.runs))
        return page_of_board(shown, link, checkpoint, text)

    @routes.post(BOARD)
    async def act(request: Request) -> RedirectResponse:
        """Ask a question, or show the answers to the last one."""
        nonlocal now
        given = form(await request.body())
        if "show" not in given:
            checkpoint, text = given.get("checkpoint", ""), given.get("text", "").replace("\r\n", "\n")
            choices = await to_thread(choices_after, microscope, checkpoint, text)  # other answers need not wait for it
            now = Round(checkpoint, text, choices)
        elif now is not None:
            now.is_shown = True
        return RedirectResponse(BOARD, status_code=303)

    return routes


def form(body: bytes) -> dict[str, str]:
    """The fields of a form, each once."""
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10)
    return {name: values[-1] for name, values in fields.items()}


def first_checkpoint(runs: Runs) -> str:
    """The best checkpoint of the first run that has one."""
    described = runs.described()["runs"]
    return next((run["best"] or run["checkpoints"][-1]["id"] for run in described if run["checkpoints"]), "")


# The pages


def page_of_pupil(now: Round | None, pupil: str) -> str:
    if now is None:
        return whole_page("Guess first", "<p>The first question is about to come.</p>", refresh=3)
    chosen = now.answers.get(pupil)
    so_far = f"<p class='told'>{ending(now.text)}</p>"
    if chosen is None and not now.is_shown:
        buttons = [f"<button name='choice' value='{i}'>{named(each)}</button>" for i, each in enumerate(now.choices)]
        fields = f"<input type='hidden' name='round' value='{now.name}'>{''.join(buttons)}"
        ask = f"<form class='choices' method='post' action='{PUPILS}'>{fields}</form>"
        return whole_page("What comes next?", so_far + ask)
    mine = "You did not answer this one. " if chosen is None else f"You chose <b>{named(now.choices[chosen])}</b>. "
    if not now.is_shown:
        return whole_page("What comes next?", f"{so_far}<p>{mine}Wait for the others.</p>", refresh=3)
    return whole_page("What comes next?", f"{so_far}<p>{mine}</p>{chart(now)}", refresh=3)


def page_of_board(now: Round | None, link: str, checkpoint: str, text: str) -> str:
    code = segno.make(link, error="m").svg_inline(scale=6, light="white", border=3)
    join = f"<figure class='join'>{code}<figcaption>{escape(link)}</figcaption></figure>"
    so_far = f"<p class='told'>{ending(now.text)}</p>" if now else ""
    if now and not now.is_shown:
        n = len(now.answers)
        count = f"<p class='count'><b>{n}</b> answer{'' if n == 1 else 's'}</p>"
        show = f"<form method='post' action='{BOARD}'><button class='main' name='show' value='1'>Show</button></form>"
        return whole_page("What comes next?", f"{so_far}{count}{show}{join}", refresh=2)
    text = now.going_on() if now and not text else text
    ask = (
        f"<form class='ask' method='post' action='{BOARD}'>"
        f"<input type='hidden' name='checkpoint' value='{escape(checkpoint)}'>"
        f"<label>The text so far<textarea name='text' rows='4'>\n{escape(text)}</textarea></label>"
        "<button class='main'>Ask the class what comes next</button></form>"
    )
    return whole_page("Guess first", so_far + (chart(now) if now else "") + ask + join)


def chart(now: Round) -> str:
    """A row for each choice with three bars: the class, the model and, where it is known, the truth."""
    n = len(now.answers)
    who = {"rival": f"the class ({n} answer{'' if n == 1 else 's'})", "model": "the model", "truth": "the truth"}
    if now.choices[-1].truth is None:
        del who["truth"]
    key = "".join(f"<span>{bar(1, kind)} {name}</span>" for kind, name in who.items())
    rows = []
    for i, choice in enumerate(now.choices):
        shares = {"rival": now.share(i), "model": choice.model, "truth": choice.truth or 0.0}
        bars = "".join(f"<div>{bar(shares[kind], kind)} {100 * shares[kind]:.0f} %</div>" for kind in who)
        rows.append(f"<tr><th scope='row'>{named(choice)}</th><td>{bars}</td></tr>")
    unknown = "" if "truth" in who else "<p>For this text, the truth is not known.</p>"
    return f"<p class='key'>{key}</p><table class='votes'>{''.join(rows)}</table>{unknown}"


def bar(share: float, kind: str) -> str:
    return f"<svg class='vote {kind}' aria-hidden='true'><rect width='{100 * share:.1f}%' height='100%'/></svg>"


def named(choice: Choice) -> str:
    """A choice as it is shown: blanks and line ends of a token can be seen."""
    return escape(choice.text if choice.text in (SOMETHING_ELSE, END) else visible(choice.text))


def ending(text: str) -> str:
    return escape("… " + text[-MOST_CHARACTERS:] if len(text) > MOST_CHARACTERS else text or "(the beginning)")


def whole_page(title: str, body: str, refresh: int | None = None) -> str:
    again = f"<meta http-equiv='refresh' content='{refresh}'>" if refresh else ""
    return (
        f"<!doctype html><html lang='en' data-theme='auto'><head><meta charset='utf-8'>{again}"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><title>Pellucid: guess first</title>"
        "<link rel='stylesheet' href='/static/style.css'><link rel='stylesheet' href='/static/class.css'></head>"
        f"<body class='class'><main><h1>{title}</h1>{body}</main></body></html>"
    )


class OnlyTheClass:
    """Middleware: from other machines only the pupils' page can be reached, not the runs, the board or the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_TO_ALL and not is_this_machine(scope):
            what = f"only {PUPILS} can be reached from here; the page itself opens on the teacher's machine"
            await error_response(403, what, code="only_the_class")(scope, receive, send)
            return
        await self._app(scope, receive, send)


def is_this_machine(scope: Scope) -> bool:
    address = ip_address((scope.get("client") or ("0.0.0.0",))[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
