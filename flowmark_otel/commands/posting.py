"""One captured request to a backend, and what its answer is worth."""

from __future__ import annotations

from typing import Final

from flowmark_otel import names
from flowmark_otel.commands.files import Captured
from flowmark_otel.commands.receipts import (
    Answer,
    Expected,
    Judgement,
    expected_of,
    failed,
    judge,
)
from flowmark_otel.commands.remote import Backend
from flowmark_otel.errors import TooLarge, Unavailable, Unparsable

STOPS: Final = frozenset({names.REASON_UNAVAILABLE, names.REASON_UNAUTHORIZED})
"""Reasons after which no other request could do better."""

_CONTENT_TYPES: Final = {"json": "application/json", "protobuf": "application/x-protobuf"}


def post(request: Captured, backend: Backend) -> Judgement:
    """Send a request as it is and judge the receipt; what is none of ours is not sent."""
    if not request.signal:
        if not request.fault:
            return Judgement()
        return Judgement(reason=names.REASON_NOT_SENT, detail=request.fault)
    try:
        expected = expected_of(request.decode())
    except (TooLarge, Unparsable):
        expected = Expected(0, opts_in=False)  # the backend says what is wrong
    try:
        answer = backend.post(
            f"/v1/{request.signal}", request.body, _CONTENT_TYPES[request.encoding]
        )
    except Unavailable as error:
        return failed(names.REASON_UNAVAILABLE, expected, str(error))
    return judge(
        Answer(
            answer.status_code,
            answer.headers.get("content-type", ""),
            answer.content,
            request.encoding,
        ),
        expected,
    )
