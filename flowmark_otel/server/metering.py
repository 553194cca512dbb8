"""Requests by transport, kind and outcome: counted around both transports, in no handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import grpc
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flowmark_otel.listen.grpc import ACCEPTANCE, LOGS, TRACES
from flowmark_otel.wire.outcome import ANSWERS, UNPARSABLE, UNSUPPORTED

Count: TypeAlias = Callable[[str, str, str], None]
"""Transport, kind of request, outcome."""

HTTP: Final = "http"
GRPC: Final = "grpc"
OTHER: Final = "other"
DISCONNECTED: Final = "disconnected"
FAILED: Final = "failed"
NOT_FOUND: Final = "not_found"

_EXACT: Final = {
    "/v1/traces": "traces",
    "/v1/logs": "logs",
    "/v1/flowmark/capabilities": "capabilities",
    "/v1/flowmark/status": "status",
    "/healthz": "health",
    "/readyz": "health",
}
_BEGINS: Final = {"/api/": "api", "/runs": "pages", "/trace/": "pages", "/static/": "pages"}
_METHODS: Final = {
    f"/{TRACES}/Export": "traces",
    f"/{LOGS}/Export": "logs",
    f"/{ACCEPTANCE}/Capabilities": "capabilities",
    f"/{ACCEPTANCE}/Status": "status",
}
# Where a status stands for several outcomes, the first of the table: "refused" for bad input.
_PLAIN: Final = {
    name: answer for name, answer in ANSWERS.items() if name not in {UNPARSABLE, UNSUPPORTED}
}
_BY_STATUS: Final = {answer.http: name for name, answer in _PLAIN.items()} | {
    ANSWERS[UNSUPPORTED].http: UNSUPPORTED,
    HTTPStatus.NOT_FOUND.value: NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED.value: NOT_FOUND,
}
_BY_CODE: Final = {answer.grpc: name for name, answer in _PLAIN.items()} | {
    grpc.StatusCode.CANCELLED.value[0]: DISCONNECTED,
    grpc.StatusCode.UNIMPLEMENTED.value[0]: NOT_FOUND,
}


class HttpMeter:
    """Counts what an ASGI application answers."""

    def __init__(self, app: ASGIApp, count: Count) -> None:
        self._app = app
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; the status is seen on its way out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        outcome = DISCONNECTED

        async def seen(message: Message) -> None:
            nonlocal outcome
            if message["type"] == "http.response.start":
                outcome = _of_status(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, seen)
        except Exception:
            outcome = FAILED
            raise
        finally:
            self._count(HTTP, _kind(scope["path"]), outcome)


class GrpcMeter(grpc.aio.ServerInterceptor):
    """Counts how calls end; the health service's are not counted."""

    def __init__(self, count: Count) -> None:
        self._count = count

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler, with the count around it."""
        handler = await continuation(handler_call_details)
        kind = _METHODS.get(handler_call_details.method)
        if kind is None or handler is None or handler.stream_unary is None:
            return handler
        answering: Callable[[Any, Any], Awaitable[Any]] = handler.stream_unary

        async def counted(requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> object:
            outcome = DISCONNECTED
            try:
                answer = await answering(requests, context)
                outcome = _of_code(context.code())
            except grpc.aio.AbortError:
                outcome = _of_code(context.code())
                raise
            except Exception:
                outcome = FAILED
                raise
            finally:
                self._count(GRPC, kind, outcome)
            return answer

        return grpc.stream_unary_rpc_method_handler(counted)


def _kind(path: str) -> str:
    found = _EXACT.get(path)
    if found is not None:
        return found
    return next((kind for begin, kind in _BEGINS.items() if path.startswith(begin)), OTHER)


def _of_status(status: int) -> str:
    if status < HTTPStatus.BAD_REQUEST:
        return _BY_STATUS[HTTPStatus.OK]
    return _BY_STATUS.get(status, FAILED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else OTHER)


def _of_code(code: object) -> str:
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _BY_CODE.get(number or 0, OTHER) if isinstance(number, (int, type(None))) else OTHER
