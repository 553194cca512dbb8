"""Requests → answers: who asks, what is asked, and the blocking part in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from flowmark_otel.backend.api import parameters
from flowmark_otel.backend.api.endpoints import ENDPOINTS, PREFIX, Endpoint
from flowmark_otel.backend.api.errors import (
    HEADERS,
    JSON,
    NoSuchPath,
    WrongMethod,
    error_response,
)
from flowmark_otel.backend.api.openapi import document
from flowmark_otel.backend.keys import READING_KINDS
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.views import jsonable
from flowmark_otel.errors import FlowmarkError, Forbidden, Unauthenticated
from flowmark_otel.model import Principal

Authenticate = Callable[[str | None], Principal]
_METHODS: Final = ("GET", "HEAD")


def routes(reader: Reader, authenticate: Authenticate) -> list[Route]:
    """The routes under ``/api/v1``, and an answer for every other path there.

    ``authenticate`` says whom the value of the ``authorization`` header stands for, or raises
    Unauthenticated; it may block. Reading takes a key of kind read or admin.
    """
    found = [
        Route(f"{PREFIX}{one.path}", _Answer(authenticate, one.parameters, _asking(one, reader)))
        for one in ENDPOINTS
    ]
    return [
        *found,
        Route(f"{PREFIX}/openapi.json", _Answer(authenticate, (), _describing)),
        Route(f"{PREFIX}/{{path:path}}", _Answer(authenticate, None, _describing)),
    ]


def _asking(endpoint: Endpoint, reader: Reader) -> Callable[[int, Mapping[str, Any]], bytes]:
    def ask(project_id: int, given: Mapping[str, Any]) -> bytes:
        return orjson.dumps(jsonable(endpoint.answer(reader, project_id, given)))

    return ask


def _describing(project_id: int, given: Mapping[str, Any]) -> bytes:
    del project_id, given  # the document is the same for everybody
    return _document()


@cache
def _document() -> bytes:
    return orjson.dumps(document())


class _Answer:
    """One route as an ASGI application, so that a wrong method is answered in our form as well.

    ``takes`` None: a path that does not exist; it is told only to those who may read.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        takes: tuple[parameters.Parameter, ...] | None,
        ask: Callable[[int, Mapping[str, Any]], bytes],
    ) -> None:
        self._authenticate = authenticate
        self._takes = takes
        self._ask = ask

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
        given = self._given(request)
        return self._ask(principal.project_id, given)

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

    def _given(self, request: Request) -> dict[str, object]:
        if self._takes is None:
            msg = f"no such path; {PREFIX}/openapi.json names those there are"
            raise NoSuchPath(msg)
        if request.method not in _METHODS:
            msg = f"found {request.method}; this API is read with GET"
            raise WrongMethod(msg)
        given = parameters.read_query(self._takes, request.query_params.multi_items())
        for one in self._takes:
            if one.in_path:
                given[one.name] = parameters.read_one(one, request.path_params[one.name])
        return given
