"""OTLP over HTTP, and the capability and status questions (contract, section 4).

Every answer of an export is in the request's content type; errors are ``google.rpc.Status``, in
JSON where the request's type is none of ours. Never 408, never 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from flowmark_otel.errors import Unparsable, UnsupportedMedia
from flowmark_otel.listen.admission import Ticket
from flowmark_otel.listen.cors import PagesMaySend
from flowmark_otel.listen.intake import MAX_STATUS_BYTES, Intake, Refusal, refusal
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.wire.outcome import ANSWERS, UNAVAILABLE, Answer
from flowmark_otel.wire.receipt import dumps, load_object
from flowmark_otel.wire.status import encode_status, printable

_ENCODINGS: Final = {each.value: each for each in Encoding}
_GRPC_NOT_FOUND: Final = 5
_GRPC_UNIMPLEMENTED: Final = 12
_GRPC_INVALID: Final = 3
_UNAUTHORIZED: Final = 401
_METHOD_NOT_ALLOWED: Final = 405
_NOT_FOUND: Final = 404
_DISCARD_SECONDS: Final = 10.0

_Endpoint = Callable[[Request], Awaitable[Response]]


def routes(intake: Intake, pages: Callable[[], Collection[str]] | None = None) -> list[BaseRoute]:
    """What a Starlette application mounts to take OTLP under ``/v1``.

    ``pages``: the origins whose pages may send; without it no page of another origin may.
    """
    doors = _Doors(intake)
    app = Starlette(
        routes=[
            Route("/traces", doors.traces, methods=["POST"]),
            Route("/logs", doors.logs, methods=["POST"]),
            Route("/flowmark/capabilities", doors.capabilities, methods=["GET"]),
            Route("/flowmark/status", doors.status, methods=["POST"]),
        ],
        exception_handlers={HTTPException: no_such_route},
    )
    app.router.redirect_slashes = False
    return [Mount("/v1", app=app if pages is None else PagesMaySend(app, pages))]


async def no_such_route(request: Request, error: Exception) -> Response:
    """The answer to a path or method that does not exist: 404, or 405 with ``Allow``."""
    status = error.status_code if isinstance(error, HTTPException) else _NOT_FOUND
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if status == _METHOD_NOT_ALLOWED:
        answer = Answer(status, _GRPC_UNIMPLEMENTED)
        text = f"{request.method} is not allowed here"
    elif status == _NOT_FOUND:
        answer = Answer(status, _GRPC_NOT_FOUND)
        text = "there is nothing at this path"
    else:
        answer = Answer(status, _GRPC_INVALID)
        text = str(getattr(error, "detail", "refused"))
    await _discard(request)
    return _refuse(request, Refusal(answer, text), headers)


class _Doors:
    """The endpoints; they share the intake and keep no state."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def traces(self, request: Request) -> Response:
        return await self._guarded(request, lambda each: self._export(each, Signal.TRACES))

    async def logs(self, request: Request) -> Response:
        return await self._guarded(request, lambda each: self._export(each, Signal.LOGS))

    async def capabilities(self, request: Request) -> Response:
        return await self._guarded(request, self._capabilities)

    async def status(self, request: Request) -> Response:
        return await self._guarded(request, self._status)

    async def _guarded(self, request: Request, endpoint: _Endpoint) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            # Nobody is left to read it; uvicorn drops this response.
            return Response(status_code=400)
        except Exception as error:  # noqa: BLE001 - the edge: whatever happens is answered
            refused = refusal(error, f"{request.method} {request.url.path}")
            await _discard(request)
            return _refuse(request, refused, {})

    async def _export(self, request: Request, signal: Signal) -> Response:
        principal = self._intake.authenticate_export(
            request.headers.getlist("authorization"), request.headers.getlist("origin")
        )
        encoding = _encoding_of(request)
        if encoding is None:
            msg = "the content type must be application/x-protobuf or application/json"
            raise UnsupportedMedia(msg)
        limit = self._intake.max_request_bytes
        with self._intake.admission.enter(self._announced(request, limit)) as ticket:
            body = await self._body(request, limit, ticket)
            user_agent = request.headers.get("user-agent")
            reply = await self._intake.accept(signal, encoding, body, principal, user_agent, ticket)
        return _reply(reply, encoding)

    async def _capabilities(self, request: Request) -> Response:
        self._intake.authenticate_query(request.headers.getlist("authorization"))
        capabilities, backend_id = self._intake.accepting.capabilities()
        return _json({"capabilities": list(capabilities), "backendId": backend_id})

    async def _status(self, request: Request) -> Response:
        principal = self._intake.authenticate_query(request.headers.getlist("authorization"))
        if _encoding_of(request) is not Encoding.JSON:
            msg = "the content type must be application/json"
            raise UnsupportedMedia(msg)
        limit = MAX_STATUS_BYTES
        with self._intake.admission.enter(self._announced(request, limit)) as ticket:
            event_ids = _event_ids(await self._body(request, limit, ticket))
            found = await self._intake.status(event_ids, principal)
        rows = [
            {"eventId": event_id, "state": state, "digest": digest, "code": code}
            for event_id, state, digest, code in found
        ]
        return _json({"events": rows})

    def _announced(self, request: Request, limit: int) -> int:
        """The body's length as its head says it, 0 where it does not; refused over the limit."""
        length = request.headers.get("content-length", "")
        announced = int(length) if length.isdecimal() else 0
        if announced > limit:
            raise self._intake.too_large(limit)
        return announced

    async def _body(self, request: Request, limit: int, ticket: Ticket) -> bytes:
        """The body, decompressed; neither form of it passes ``limit`` bytes."""
        coding = request.headers.get("content-encoding", "").strip().lower()
        if coding not in {"", "identity", "gzip"}:
            msg = "the content encoding must be gzip or identity"
            raise UnsupportedMedia(msg)
        body = await self._intake.read(self._collect(request, limit, ticket))
        return await self._intake.inflate(body, ticket, limit) if coding == "gzip" else body

    async def _collect(self, request: Request, limit: int, ticket: Ticket) -> bytes:
        parts: list[bytes] = []
        room = limit
        async for part in request.stream():
            room -= len(part)
            if room < 0:
                raise self._intake.too_large(limit)
            ticket.grow(len(part))
            parts.append(part)
        return b"".join(parts)


async def _discard(request: Request) -> None:
    """Read away what a closing connection still sends, else its sender may never see the answer.

    uvicorn does so by itself where the connection stays open. A sender that waits for ``100
    Continue`` sends nothing.
    """
    closing = request.headers.get("connection", "").lower() == "close"
    closing = closing or request.scope.get("http_version") == "1.0"
    if not closing or "expect" in request.headers:
        return
    with contextlib.suppress(ClientDisconnect, RuntimeError, asyncio.TimeoutError):
        await asyncio.wait_for(_read_away(request), _DISCARD_SECONDS)


async def _read_away(request: Request) -> None:
    async for _ in request.stream():
        pass


def _encoding_of(request: Request) -> Encoding | None:
    kind, _, _ = request.headers.get("content-type", "").partition(";")
    return _ENCODINGS.get(kind.strip().lower())


def _event_ids(body: bytes) -> list[str]:
    found = load_object(body).get("eventIds")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        msg = "eventIds must be a list of strings"
        raise Unparsable(msg)
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:
        msg = "eventIds must be valid Unicode"
        raise Unparsable(msg) from error
    return found


def _reply(reply: Reply, encoding: Encoding) -> Response:
    headers = {"retry-after": "1"} if reply.outcome == UNAVAILABLE else {}
    status = ANSWERS[reply.outcome].http
    return Response(reply.body, status, headers, media_type=encoding.value)


def _refuse(request: Request, refused: Refusal, headers: dict[str, str]) -> Response:
    encoding = _encoding_of(request) or Encoding.JSON
    body = encode_status(
        refused.answer.grpc, printable(refused.message), encoding.wire, None, refused.retry_after
    )
    if refused.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(refused.retry_after)))
    if refused.answer.http == _UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    return Response(body, refused.answer.http, headers, media_type=encoding.value)


def _json(found: dict[str, object]) -> Response:
    return Response(dumps(found), media_type=Encoding.JSON.value)
