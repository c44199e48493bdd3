"""The Model Microscope as a web application: thin routes around `runs.py` and `microscope.py`, and the page's files.

The page loads nothing from other sites: the Content-Security-Policy forbids it.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pellucid.version import __version__
from pellucid.web.classroom import OnlyTheClass, class_routes
from pellucid.web.limits import install_limits
from pellucid.web.microscope import Microscope
from pellucid.web.news import news_routes
from pellucid.web.schemas import MOST_FABLES, InsideRequest, KnockOutRequest, TextRequest, TraceRequest
from pellucid.web.tours import Tours

STATIC = Path(__file__).parent / "static"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"


def make_app(
    paths: Sequence[Path],
    routers: Sequence[APIRouter] = (),
    *,
    host: str = "127.0.0.1",
    tours: Sequence[Path] = (),
    class_link: str | None = None,
    allow_origins: Sequence[str] = (),
) -> FastAPI:
    """An app with the page of the runs at these paths (run or step directories), and further routes.

    host: the address on which the server will listen. tours: files of further tours. class_link: the pupils' page as
    other machines reach it; then they reach nothing else. allow_origins: other sites whose pages may ask.
    """
    app = FastAPI(title="Pellucid", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    microscope = Microscope(paths)
    app.state.tours = Tours(microscope, tours)
    page = page_routes(microscope, app.state.tours, has_class=class_link is not None)
    for router in (page, news_routes(microscope.runs.folders), *routers):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(Policy)
    if class_link is not None:
        app.include_router(class_routes(microscope, class_link))
        app.add_middleware(OnlyTheClass)
    install_limits(app, host, allow_origins)
    return app


def page_routes(microscope: Microscope, tours: Tours, *, has_class: bool) -> APIRouter:
    """Routes for the page itself and for what it asks. `source_server.js` has a method for each of these."""
    routes, runs = APIRouter(), microscope.runs

    @routes.get("/")
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @routes.get("/lab")
    def lab() -> HTMLResponse:
        """The page that trains, which has a policy of its own."""
        page, policy = page_that_trains()
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    @routes.api_route("/health", methods=["GET", "HEAD"])  # as monitors ask
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @routes.get("/api/run")
    def run() -> JSONResponse:
        return JSONResponse({**runs.described(), "has_class": has_class})

    @routes.get("/api/examples")
    def examples(checkpoint: str) -> JSONResponse:
        return JSONResponse(runs.examples(checkpoint))

    @routes.get("/api/fable")
    def fable(checkpoint: str, number: Annotated[int, Query(ge=1, le=MOST_FABLES)]) -> JSONResponse:
        return JSONResponse(runs.fable(checkpoint, number))

    @routes.get("/api/model")
    def model(checkpoint: str) -> JSONResponse:
        return JSONResponse(microscope.model(checkpoint))

    @routes.get("/api/heads")
    def heads(checkpoint: str) -> JSONResponse:
        return JSONResponse(microscope.heads(checkpoint))

    @routes.post("/api/trace")
    def trace(body: TraceRequest) -> JSONResponse:
        return JSONResponse(microscope.trace(body.checkpoint, body.text, body.at, body.changes))

    @routes.post("/api/logits")
    def logits(body: TraceRequest) -> JSONResponse:
        return JSONResponse(microscope.logits(body.checkpoint, body.text, body.at, body.changes))

    @routes.post("/api/inside")
    def inside(body: InsideRequest) -> JSONResponse:
        return JSONResponse(microscope.inside(body.checkpoint, body.text, body.layer, body.changes))

    @routes.post("/api/truth")
    def truth(body: TextRequest) -> JSONResponse:
        return JSONResponse(microscope.truth(body.checkpoint, body.text))

    @routes.post("/api/deciding")
    def deciding(body: TextRequest) -> JSONResponse:
        return JSONResponse(microscope.deciding(body.checkpoint, body.text))

    @routes.post("/api/beliefs")
    def beliefs(body: TraceRequest) -> JSONResponse:
        return JSONResponse(microscope.beliefs(body.checkpoint, body.text, body.changes))

    @routes.post("/api/knock_out")
    def knock_out(body: KnockOutRequest) -> JSONResponse:
        return JSONResponse(microscope.knock_out(body.checkpoint, body.n))

    @routes.get("/api/tours")
    def listed() -> JSONResponse:
        return JSONResponse(tours.listed())

    @routes.get("/api/tour")
    def tour(name: str) -> JSONResponse:
        return JSONResponse(tours.played(name))

    return routes


@cache
def page_that_trains() -> tuple[str, str]:
    """The page and its Content-Security-Policy, made when it is first asked for: that takes some ten seconds."""
    from pellucid.web import lab

    return lab.page([lab.language_of(told) for told in lab.SHIPPED]), lab.POLICY


class Policy:
    """Middleware that adds security headers; it does not touch bodies, so that streams pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "same-origin"  # with none, a form would seem to come from another site
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self._app(scope, receive, send_with_policy)
