"""What the proxy answers, and its own refusals in the form that the backend would give them."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.errors import RequestError
from flowmark_otel.model import Receipt
from flowmark_otel.wire.outcome import ANSWERS, REFUSED, outcome_of
from flowmark_otel.wire.status import encode_status

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
FORMS: Final = {PROTOBUF: "protobuf", JSON: "json"}
"""The content types of OTLP, and what ``wire`` calls their encodings."""

_ALWAYS: Final = (("cache-control", "no-store"), ("x-content-type-options", "nosniff"))


class Answer(NamedTuple):
    """HTTP status, content type, body, and further headers with names in lower case."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def all_headers(self) -> list[tuple[str, str]]:
        """Every header of the answer."""
        own = [("content-type", self.content_type), ("content-length", str(len(self.body)))]
        return [*own, *_ALWAYS, *self.headers]


def refused(error: RequestError, content_type: str) -> Answer:
    """The answer to a request that is refused as a whole."""
    row = ANSWERS[outcome_of(error)]
    retry_after = None if error.permanent else error.retry_after
    headers = () if retry_after is None else (("retry-after", str(math.ceil(retry_after))),)
    return plain(row.http, row.grpc, str(error), content_type, headers, retry_after)


def plain(
    status: int,
    code: int,
    message: str,
    content_type: str,
    headers: tuple[tuple[str, str], ...] = (),
    retry_after: float | None = None,
) -> Answer:
    """An error without receipt; ``code`` is a gRPC status code, ``retry_after`` in seconds."""
    kind = content_type if content_type in FORMS else JSON
    body = encode_status(code, message, FORMS[kind], None, retry_after)
    return Answer(status, kind, body, headers)


def rejected(receipt: Receipt, content_type: str, otherwise: str) -> Answer:
    """The answer to a request of which every event was rejected here.

    ``otherwise``: what is said where the receipt counts none of them.
    """
    row = ANSWERS[REFUSED]
    message = otherwise
    if receipt.rejections:
        first = receipt.rejections[0]
        message = f"all {receipt.rejected} events rejected; first: {names.INVALID}: {first.message}"
    body = encode_status(row.grpc, message, FORMS[content_type], receipt)
    return Answer(row.http, content_type, body)
