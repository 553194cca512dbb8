"""One table: what became of a request, as HTTP and as gRPC status (contract, section 4)."""

from __future__ import annotations

from typing import Final, NamedTuple

from flowmark_otel import errors


class Answer(NamedTuple):
    """How an outcome is answered."""

    http: int
    grpc: int


OK: Final = "ok"
CONFLICT: Final = "conflict"
REFUSED: Final = "refused"
UNPARSABLE: Final = "unparsable"
TOO_LARGE: Final = "too_large"
UNAVAILABLE: Final = "unavailable"
UNAUTHENTICATED: Final = "unauthenticated"
FORBIDDEN: Final = "forbidden"
UNSUPPORTED: Final = "unsupported"
NOT_SERVED: Final = "not_served"

ANSWERS: Final[dict[str, Answer]] = {
    OK: Answer(200, 0),
    CONFLICT: Answer(409, 6),  # ALREADY_EXISTS
    REFUSED: Answer(400, 3),  # INVALID_ARGUMENT
    UNPARSABLE: Answer(400, 3),  # INVALID_ARGUMENT
    TOO_LARGE: Answer(413, 8),  # RESOURCE_EXHAUSTED, without RetryInfo
    UNAVAILABLE: Answer(503, 14),  # UNAVAILABLE, with RetryInfo
    UNAUTHENTICATED: Answer(401, 16),
    FORBIDDEN: Answer(403, 7),  # PERMISSION_DENIED
    UNSUPPORTED: Answer(415, 3),
    NOT_SERVED: Answer(404, 12),  # UNIMPLEMENTED
}


def outcome_of(error: errors.RequestError) -> str:
    """The row of the table for a request that was refused as a whole."""
    for kind, outcome in _BY_ERROR:
        if isinstance(error, kind):
            return outcome
    return UNPARSABLE


_BY_ERROR: Final = (
    (errors.Unavailable, UNAVAILABLE),
    (errors.TooLarge, TOO_LARGE),
    (errors.UnsupportedMedia, UNSUPPORTED),
    (errors.NotServed, NOT_SERVED),
    (errors.NotTaken, REFUSED),
    (errors.Unauthenticated, UNAUTHENTICATED),
    (errors.Forbidden, FORBIDDEN),
    (errors.Unparsable, UNPARSABLE),
)
