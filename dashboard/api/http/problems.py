"""Errors as RFC 9457 tells them, with the words that the command line has for them."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from dashboard.api.http.pagination import BadCursorError
from dashboard.api.http.rate_limits import KeyTakenError, TooManyRequestsError
from data.base.errors import (
    AlreadySubmittedError,
    ApplyError,
    BadRangeError,
    CollectorError,
    NotAllowedError,
    NoTextError,
    NotKnownError,
    NotSignedInError,
    PlanningError,
    SettingsError,
    StalePlanError,
    StoreError,
    TrimtabError,
)

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


class RepeatedParameterError(TrimtabError):
    """A parameter is given twice, and only one would count."""


class PreconditionError(StalePlanError):
    """What If-Match names is not what is there."""


_STATUS: tuple[tuple[type[TrimtabError], int], ...] = (
    (BadCursorError, 400),
    (RepeatedParameterError, 422),
    (NotSignedInError, 401),
    (NotKnownError, 404),
    (NotAllowedError, 403),
    (PreconditionError, 412),
    (StalePlanError, 409),
    (AlreadySubmittedError, 409),
    (NoTextError, 422),
    (ApplyError, 422),
    (StoreError, 503),
    (BadRangeError, 422),
    (KeyTakenError, 422),
    (PlanningError, 422),
    (TooManyRequestsError, 429),
    (CollectorError, 503),
    (SettingsError, 500),
)


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457); `hint` says what to do next.",
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "type": "object",
                    "required": ["title", "status", "detail"],
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                        "hint": {"type": "string"},
                        "error": {"type": "string"},
                    },
                }
            }
        },
    }
}


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    hint: str = "",
    error: str = "",
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the answer to a request that failed."""
    fields = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    more = {name: text for name, text in (("hint", hint), ("error", error)) if text}
    return JSONResponse(fields | more, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def problem_of(failure: TrimtabError) -> JSONResponse:
    """Return a failure of ours as an answer."""
    status = next((code for kind, code in _STATUS if isinstance(failure, kind)), 500)
    name = type(failure).__name__
    headers = {}
    if isinstance(failure, TooManyRequestsError):
        headers["Retry-After"] = str(failure.retry_after_seconds)
    return problem(
        status, _title(name), failure.message, hint=failure.hint, error=name, headers=headers
    )


def _title(name: str) -> str:
    """Return the name of a class as words: StalePlanError is `stale plan`."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return words.strip().removesuffix(" error")


def add_problem_handlers(api: FastAPI) -> None:
    """Have the application answer every failure as a problem."""

    @api.exception_handler(TrimtabError)
    async def ours(_request: Request, failure: TrimtabError) -> JSONResponse:
        return problem_of(failure)

    @api.exception_handler(RequestValidationError)
    async def invalid(_request: Request, failure: RequestValidationError) -> JSONResponse:
        first = failure.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return problem(422, "invalid request", f"{where}: {first['msg']}"[:500])

    @api.exception_handler(HTTPException)
    async def plain(request: Request, failure: HTTPException) -> JSONResponse:
        title = str(failure.detail).lower()
        detail = f"{request.method} {request.url.path[:200]}: {title}"
        hint = "The addresses are in /api/v1/openapi.json."
        return problem(failure.status_code, title, detail, hint=hint, headers=failure.headers)

    @api.exception_handler(Exception)
    async def unexpected(_request: Request, failure: Exception) -> JSONResponse:
        logger.error("unexpected error in the API", exc_info=failure)
        return problem(500, "unexpected error", "unexpected error; the log of the server has it")
