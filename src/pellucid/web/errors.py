"""Errors in the shape that OpenAI's clients know: {"error": {"message", "type", "param", "code"}}."""

import re
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from pellucid.errors import CheckpointError, ConfigError, DataError, InputOutputError, PellucidError, explained

TRIED = re.compile(r"(constrained-)?str$|list\[|\[key\]")  # what pydantic adds to the path of a field of several types
SHORTEST_WAIT = "1"  # second, before a rejected client should try again


class ApiError(Exception):
    """An error to answer a request with. `param` is the field at fault; `code` a name for programs."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The response for an error; 429 and 503 also say when to try again."""
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
    retry = {"Retry-After": SHORTEST_WAIT} if status in (429, 503) else {}
    error = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": error}, status, {**retry, **(headers or {})})


def install_errors(app: FastAPI) -> None:
    """Make all errors in routes of this app responses of one shape: 4xx if the request is to blame."""

    @app.exception_handler(ApiError)
    async def of_api(_: Request, error: ApiError) -> JSONResponse:
        return error_response(error.status, error.message, param=error.param, code=error.code)

    @app.exception_handler(PellucidError)
    async def of_pellucid(_: Request, error: PellucidError) -> JSONResponse:
        if isinstance(error, (ConfigError, DataError)):
            return error_response(400, str(error), param=error.where)
        return error_response(503 if isinstance(error, (CheckpointError, InputOutputError)) else 500, str(error))

    @app.exception_handler(OSError)
    async def of_files(_: Request, error: OSError) -> JSONResponse:
        return error_response(503, str(explained(error)))

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}"
        code = HTTPStatus(error.status_code).name.lower()
        return error_response(error.status_code, message, code=code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def of_validation(_: Request, error: RequestValidationError) -> JSONResponse:
        param, what, code = fault_of(error)
        return error_response(400, f"{param or 'body'}: {what}", param=param, code=code)

    @app.exception_handler(Exception)
    async def of_ours(_: Request, error: Exception) -> JSONResponse:
        return error_response(500, f"the server failed ({type(error).__name__}); its log says where")


def fault_of(error: RequestValidationError) -> tuple[str | None, str, str]:
    """The field at fault, what is wrong with it, and pydantic's name for that.

    For a field that may be text or a list, pydantic tries both: this picks the error of the intended type.
    """
    faults = error.errors()
    fault = next((fault for fault in faults if not fault["type"].endswith("_type")), faults[0])
    where, code = fault["loc"][1:], str(fault["type"])
    if code == "json_invalid":
        return None, f"no JSON at character {where[0]}; check quotes, commas and braces", code
    if not where:
        return None, "no JSON object; send one, with the header Content-Type: application/json", code
    fields = [part for part in where if not (isinstance(part, str) and TRIED.match(part))]
    param = " ".join(".".join(map(str, fields)).split())  # a name from the client may have several lines
    return param, "unknown field; leave it out" if code == "extra_forbidden" else fault["msg"], code
