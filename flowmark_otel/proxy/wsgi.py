"""The proxy as WSGI middleware, or as an application of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import TimeoutError as NoAnswerInTime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import Unpack

from flowmark_otel.errors import RequestError, Unavailable, Unparsable
from flowmark_otel.proxy.answer import Answer, plain, refused
from flowmark_otel.proxy.decide import PATHS, Head, check_head, method_refused, too_large
from flowmark_otel.proxy.forward import Forwarder
from flowmark_otel.proxy.settings import ProxySettings, options_from

if TYPE_CHECKING:  # it exists for type checkers only
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_CHUNK: Final = 64 * 1024
_LENGTH_REQUIRED: Final = 411
_INVALID_ARGUMENT: Final = 3  # gRPC


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class WsgiProxy:
    """Forwards ``/v1/traces`` and ``/v1/logs`` of pages to the backend with the server's key.

    ``app`` answers every other path; without it they are 404. ``settings`` as in
    ``config.ProxyOptions``. A body that stalls is the server's to end (gunicorn's ``--timeout``):
    WSGI has no way to leave a read. Raises ConfigurationError with every fault of the settings.
    """

    def __init__(
        self, app: WSGIApplication | None = None, **settings: Unpack[ProxySettings]
    ) -> None:
        options = options_from(settings)
        self._app = app or _nothing
        self._limit = options.max_request_bytes
        self._paths = {options.prefix_path + path: path for path in PATHS}
        self._forwarder = Forwarder(options)

    def close(self) -> None:
        """Wait for what is being forwarded, then end threads and connections."""
        self._forwarder.close()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """One request of the server."""
        path = self._paths.get(environ.get("PATH_INFO", ""))
        if path is None:
            return self._app(environ, start_response)
        head = _head(environ)
        try:
            answer = method_refused(head) or self._answer(path, head, environ)
        except RequestError as error:
            answer = refused(error, head.kind)
        return _respond(answer, start_response)

    def _answer(self, path: str, head: Head, environ: WSGIEnvironment) -> Answer:
        """The answer. Raises RequestError."""
        check_head(head, self._limit)
        if head.length is None and not environ.get("wsgi.input_terminated"):
            # Nothing says where the body ends, and an empty one must not be acknowledged.
            message = "the request must say the length of its body"
            return plain(_LENGTH_REQUIRED, _INVALID_ARGUMENT, message, head.kind)
        body = self._body(environ["wsgi.input"], head.length)
        answering = self._forwarder.submit(path, head.kind, body, zipped=head.zipped)
        try:
            return answering.result(self._forwarder.seconds)
        except NoAnswerInTime:
            return self._forwarder.late(head.kind)

    def _body(self, source: _Readable, length: int | None) -> bytes:
        until = time.monotonic() + self._forwarder.seconds
        parts: list[bytes] = []
        left = self._limit + 1 if length is None else length
        while left > 0:
            if time.monotonic() > until:
                msg = f"the request did not arrive within {self._forwarder.seconds:g} seconds"
                raise Unavailable(msg)
            part = source.read(min(_CHUNK, left))
            if not part:
                break
            left -= len(part)
            parts.append(part)
        if length is None and left == 0:
            raise too_large(self._limit)
        if length is not None and left > 0:
            # What is cut between two fields would parse.
            msg = f"the body ends {left} bytes before its length"
            raise Unparsable(msg)
        return b"".join(parts)


def _head(environ: WSGIEnvironment) -> Head:
    length = environ.get("CONTENT_LENGTH", "")
    return Head(
        environ["REQUEST_METHOD"],
        environ.get("CONTENT_TYPE", ""),
        environ.get("HTTP_CONTENT_ENCODING", ""),
        int(length) if length.isdecimal() and length.isascii() else None,
        environ.get("HTTP_SEC_FETCH_SITE", ""),
    )


def _respond(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
    start_response(status, answer.all_headers())
    return [answer.body]


def _nothing(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return _respond(Answer(404, "text/plain", b"there is nothing at this path\n"), start_response)
