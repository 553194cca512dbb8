"""What a listener needs from the party behind it: who is calling, and what becomes of a body.

A listener owns transport: authentication before the body is read, limits, decompression, and the
answer's form. It never parses telemetry.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from flowmark_otel.model import Principal


class Signal(Enum):
    """Which OTLP service was called."""

    TRACES = "traces"
    LOGS = "logs"


class Encoding(Enum):
    """How bodies of a request and of its answer are written."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"

    @property
    def wire(self) -> str:
        """The name ``wire`` knows it by: ``protobuf`` or ``json``."""
        return self.name.lower()


class Reply(NamedTuple):
    """A judged request.

    HTTP status and gRPC code come from ``wire.outcome``. ``body`` is the encoded receipt of a
    success, or the encoded ``google.rpc.Status`` of an error, both in the request's encoding.
    """

    outcome: str
    body: bytes


class Accepting(Protocol):
    """The party that takes telemetry: a backend, or a collector."""

    def authenticate(self, authorization: str | None) -> Principal:
        """Who is calling, by the value of the ``authorization`` header.

        Raises Unauthenticated, or Forbidden if the key's kind may not send.
        """
        ...

    async def accept(
        self,
        signal: Signal,
        encoding: Encoding,
        body: bytes,
        principal: Principal,
        user_agent: str | None,
    ) -> Reply:
        """Judge one request. Raises RequestError where it is refused as a whole."""
        ...

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """The capabilities and the stable id of this backend."""
        ...

    async def status(
        self, event_ids: list[str], principal: Principal
    ) -> list[tuple[str, str, str | None, str | None]]:
        """``(event id, state, digest in hex, code)`` of each id, in the order asked."""
        ...
