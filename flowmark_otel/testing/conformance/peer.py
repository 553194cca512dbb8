"""Who answers a transport under test: what a check ordered, through a server that carries it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.deliver.transport import Answer, EventStatus
from flowmark_otel.model import Receipt
from flowmark_otel.wire import outcome, receipt
from flowmark_otel.wire.status import encode_status, retry_info

HELD_SECONDS: Final = 3.0
"""How long a held request waits for its answer, unless the check releases it sooner."""

_TYPES: Final = {"application/json": "json", "application/x-protobuf": "protobuf"}
_DETAILS: Final = "grpc-status-details-bin"
_RETRY_INFO: Final = "google.rpc.retryinfo-bin"


class Export(NamedTuple):
    """A logs export as the server received it, not compressed."""

    body: bytes
    content_type: str

    @property
    def encoding(self) -> str:
        """``protobuf`` or ``json``."""
        return _TYPES.get(self.content_type, "protobuf")


Ordered = Callable[[Export], Answer | None]


class Peer:
    """The party behind a server; the server calls it from any thread.

    ``grpc``: set by a server that speaks gRPC, which then gets answers in that form. ``exports``:
    what arrived, redirected requests included.
    """

    def __init__(self) -> None:
        self.grpc = False
        self.exports: list[Export] = []
        self.released = threading.Event()
        self._ordered: Ordered = self.stored

    def order(self, answer: Ordered) -> None:
        """Answer every export so from now on."""
        self.exports = []
        self._ordered = answer

    # -- for the server -------------------------------------------------------------------------
    def answer(self, body: bytes, content_type: str) -> Answer | None:
        """The answer to a logs export.

        None: end the connection without a whole answer, in the midst of it if that is possible.
        ``headers`` are those to send, on gRPC the trailers; ``body`` of a gRPC error is no message
        but stands in its trailers already.
        """
        export = Export(body, content_type)
        self.exports.append(export)
        return self._ordered(export)

    def statuses(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What became of events, in the order asked: by the first letter of their ids."""
        return [_status(each) for each in event_ids]

    # -- orders ---------------------------------------------------------------------------------
    def stored(self, export: Export) -> Answer:
        """A success whose receipt says that one event was stored."""
        found = Receipt(backend_id="peer", stored=1, received=1)
        body = receipt.encode(found, export.encoding, "logs")
        if self.grpc:
            return Answer(0, body, grpc=True)
        return Answer(200, body, {"content-type": export.content_type})

    def failed(self, row: str, *, retry_after: int | None = None) -> Ordered:
        """An error of the contract's table, with a receipt where events were judged."""

        def answer(export: Export) -> Answer:
            judged = row in (outcome.CONFLICT, outcome.REFUSED)
            found = Receipt(backend_id="peer", received=1, rejected=1) if judged else None
            http, grpc = outcome.ANSWERS[row]
            message = f"ordered: {row}"
            body = encode_status(grpc, message, export.encoding, found, retry_after)
            headers: dict[str, str | bytes] = {}
            if self.grpc:
                headers[_DETAILS] = body
                if retry_after is not None:
                    headers[_RETRY_INFO] = retry_info(retry_after)
                return Answer(grpc, body, headers, grpc=True, message=message)
            headers["content-type"] = export.content_type
            if retry_after is not None:
                headers["retry-after"] = str(retry_after)
            return Answer(http, body, headers)

        return answer

    def redirected(self, _: Export) -> Answer:
        """HTTP alone: found elsewhere, where a request would be counted too."""
        return Answer(302, b"moved", {"content-type": "text/html", "location": "/elsewhere"})

    def broken(self, _: Export) -> None:
        """No whole answer."""
        return

    def held(self, export: Export) -> Answer:
        """A success that comes when the check has released it."""
        self.released.wait(HELD_SECONDS)
        return self.stored(export)


def _status(event_id: str) -> EventStatus:
    if event_id.startswith("s"):
        return EventStatus(event_id, names.STORED, "ab" * 32)
    if event_id.startswith("r"):
        return EventStatus(event_id, names.STATE_REJECTED, "", names.CONFLICT)
    return EventStatus(event_id, names.STATE_UNKNOWN)
