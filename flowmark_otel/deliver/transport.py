"""How requests reach a backend: a protocol that applications can implement (A25).

A transport moves bytes and interprets nothing: retrying, judging and counting are done for it. It
is itself responsible for the compatibility of its server: events with attempt or retry metadata
count as delivered only if the answer holds a receipt that acknowledges ``attempts-v1``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from flowmark_otel import names
from flowmark_otel.errors import FlowmarkError


class Answer(NamedTuple):
    """What came back for one request, whatever carried it.

    ``status`` is an HTTP status, or a gRPC code where ``grpc`` is set. ``body`` is the response
    message of a success and the encoded ``google.rpc.Status`` of an error, both in the encoding of
    the request, not compressed. ``headers`` have lower-case names (on gRPC: the trailers; values of
    names in ``-bin`` are bytes) and hold ``content-type`` on HTTP, ``retry-after`` where given.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str | bytes] = {}
    grpc: bool = False
    message: str = ""

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty if there is none."""
        found = self.headers.get("content-type", "")
        return found.partition(";")[0].strip().lower() if isinstance(found, str) else ""


class NoAnswer(FlowmarkError):
    """The request got no whole answer: ``reason`` is ``unavailable`` or ``timeout``.

    Whether it arrived is not known. It is sent again with the same event ids, which is harmless.
    """

    permanent = False

    def __init__(self, message: str, reason: str = names.REASON_UNAVAILABLE) -> None:
        super().__init__(message)
        self.reason = reason


class EventStatus(NamedTuple):
    """What a backend says of one event id (contract, section 4).

    ``state``: ``stored``, ``custody``, ``rejected`` or ``unknown``; ``digest``: SHA-256 in
    lower-case hex, or empty; ``code``: of a rejected event, else empty.
    """

    event_id: str
    state: str
    digest: str = ""
    code: str = ""


class Transport(Protocol):
    """Carries requests to one backend; called by one thread at a time.

    ``close`` may come from another thread while a call is under way, and need not end it. After
    ``after_fork`` in a child nothing may be shared with the parent.
    """

    @property
    def encoding(self) -> str:
        """How bodies are to be written: ``protobuf`` or ``json``."""
        ...

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """The answer to one OTLP logs export, any status; it takes at most ``timeout`` seconds.

        ``body`` is an ExportLogsServiceRequest of type ``content_type``
        (``application/x-protobuf`` or ``application/json``). Follows no redirects and tries once.
        Raises NoAnswer if no whole answer came.
        """
        ...

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """What became of at most 1,000 events, in the order asked.

        Raises NoAnswer if that cannot be learnt; a transport without such a question raises it
        always.
        """
        ...

    def after_fork(self) -> None:
        """In a child: forget the parent's connections without using them."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
