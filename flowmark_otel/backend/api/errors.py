"""The one place where an error of the API gets its body: ``{"error": {"code", "message"}}``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import orjson
from starlette.responses import Response

from flowmark_otel.backend.read import BadParameter, NotFound
from flowmark_otel.backend.views import jsonable
from flowmark_otel.errors import FlowmarkError, Forbidden, Unauthenticated, Unavailable

JSON: Final = "application/json"
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_RETRY_AFTER: Final = 1.0


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """``code`` is for programs, ``message`` for people: what is wrong and the mend."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The body of every answer that is not 200."""

    error: ErrorDetail


_ANSWERS: Final[tuple[tuple[type[FlowmarkError], HTTPStatus, str], ...]] = (
    (BadParameter, HTTPStatus.BAD_REQUEST, "bad_parameter"),
    (NotFound, HTTPStatus.NOT_FOUND, "not_found"),
    (Unauthenticated, HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    (Forbidden, HTTPStatus.FORBIDDEN, "forbidden"),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
)


class NoSuchPath(NotFound):
    """A path that this API does not have."""


class WrongMethod(FlowmarkError):
    """A method that the path does not take; ``allowed`` are those it does."""

    def __init__(self, found: str, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)
        taken = "this is read with GET"
        if "DELETE" in self.allowed:
            taken = "this is read with GET and deleted with DELETE"
        super().__init__(f"found {found}; {taken}")


def error_response(error: FlowmarkError) -> Response:
    """The answer to a request that ended in ``error``."""
    if isinstance(error, WrongMethod):
        allow = {"allow": ", ".join(error.allowed)}
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, "wrong_method", str(error), allow)
    for kind, status, code in _ANSWERS:
        if isinstance(error, kind):
            return _response(status, code, str(error), _headers(error))
    raise error


def _headers(error: FlowmarkError) -> dict[str, str]:
    if isinstance(error, Unauthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, Unavailable):
        return {"retry-after": str(math.ceil(error.retry_after or _RETRY_AFTER))}
    return {}


def _response(status: HTTPStatus, code: str, message: str, headers: dict[str, str]) -> Response:
    body = orjson.dumps(jsonable(ErrorAnswer(ErrorDetail(code, message))))
    return Response(body, status, {**HEADERS, **headers}, JSON)
