"""Requests → answers: who asks, what is asked, and the blocking part in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from flowmark_otel import names
from flowmark_otel.backend.api import parameters
from flowmark_otel.backend.api.deletions import DELETIONS, Deletion
from flowmark_otel.backend.api.endpoints import ENDPOINTS, PREFIX, Endpoint
from flowmark_otel.backend.api.errors import (
    HEADERS,
    JSON,
    NoSuchPath,
    WrongMethod,
    error_response,
)
from flowmark_otel.backend.api.openapi import document
from flowmark_otel.backend.deletion import Deleter
from flowmark_otel.backend.keys import READING_KINDS
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.views import jsonable
from flowmark_otel.errors import FlowmarkError, Forbidden, Unauthenticated
from flowmark_otel.model import Principal

Authenticate = Callable[[str | None], Principal]
_READING: Final = ("GET", "HEAD")
_DELETING: Final = "DELETE"


class Asked(NamedTuple):
    """What a method of a path takes, and how it is answered; ``ask`` blocks."""

    takes: tuple[parameters.Parameter, ...]
    ask: Callable[[Principal, Mapping[str, Any]], bytes]


def routes(
    reader: Reader, authenticate: Authenticate, deleter: Deleter | None = None
) -> list[Route]:
    """The routes under ``/api/v1``, and an answer for every other path there.

    ``authenticate`` says whom the value of the ``authorization`` header stands for, or raises
    Unauthenticated; it may block. Reading takes a key of kind read or admin, deleting one of kind
    admin; without a ``deleter`` nothing can be deleted.
    """
    deletions = {} if deleter is None else {one.path: _deleting(one, deleter) for one in DELETIONS}
    found = [
        Route(
            f"{PREFIX}{one.path}",
            _Answer(authenticate, _asking(one, reader), deletions.get(one.path)),
        )
        for one in ENDPOINTS
    ]
    return [
        *found,
        Route(f"{PREFIX}/openapi.json", _Answer(authenticate, Asked((), _describing))),
        Route(f"{PREFIX}/{{path:path}}", _Answer(authenticate, None)),
    ]


def _asking(endpoint: Endpoint, reader: Reader) -> Asked:
    def ask(principal: Principal, given: Mapping[str, Any]) -> bytes:
        return orjson.dumps(jsonable(endpoint.answer(reader, principal.project_id, given)))

    return Asked(endpoint.parameters, ask)


def _deleting(deletion: Deletion, deleter: Deleter) -> Asked:
    def ask(principal: Principal, given: Mapping[str, Any]) -> bytes:
        return orjson.dumps(jsonable(deletion.answer(deleter, principal, given)))

    return Asked(deletion.parameters, ask)


def _describing(principal: Principal, given: Mapping[str, Any]) -> bytes:
    del principal, given  # the document is the same for everybody
    return _document()


@cache
def _document() -> bytes:
    return orjson.dumps(document())


class _Answer:
    """One route as an ASGI application, so that a wrong method is answered in our form as well.

    ``reading`` None: a path that does not exist; it is told only to those who may read.
    """

    def __init__(
        self, authenticate: Authenticate, reading: Asked | None, deleting: Asked | None = None
    ) -> None:
        self._authenticate = authenticate
        self._reading = reading
        self._deleting = deleting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = await run_in_threadpool(self._blocking, request)
            response = Response(body, headers=HEADERS, media_type=JSON)
        except FlowmarkError as error:
            response = error_response(error)
        await response(scope, receive, send)

    def _blocking(self, request: Request) -> bytes:
        principal = self._reader_of(request)
        asked = self._asked(request, principal)
        given = parameters.read_query(asked.takes, request.query_params.multi_items())
        for one in asked.takes:
            if one.in_path:
                given[one.name] = parameters.read_one(one, request.path_params[one.name])
        return asked.ask(principal, given)

    def _reader_of(self, request: Request) -> Principal:
        sent = request.headers.getlist("authorization")
        if len(sent) > 1:
            msg = "authorization is given twice; send one"
            raise Unauthenticated(msg)
        principal = self._authenticate(sent[0] if sent else None)
        if principal.kind not in READING_KINDS:
            msg = f"a key of kind {principal.kind} may not read; use one of kind read"
            raise Forbidden(msg)
        return principal

    def _asked(self, request: Request, principal: Principal) -> Asked:
        if self._reading is None:
            msg = f"no such path; {PREFIX}/openapi.json names those there are"
            raise NoSuchPath(msg)
        if request.method in _READING:
            return self._reading
        if request.method != _DELETING or self._deleting is None:
            allowed = (*_READING, _DELETING) if self._deleting else _READING
            raise WrongMethod(request.method, allowed)
        if principal.kind != names.KEY_ADMIN:
            msg = f"a key of kind {principal.kind} may not delete; use one of kind admin"
            raise Forbidden(msg)
        return self._deleting
