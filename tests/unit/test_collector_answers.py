"""What a plain endpoint's answer means (OTLP specification; section 9, C2)."""

from __future__ import annotations

import grpc
import pytest

from flowmark_otel import names
from flowmark_otel.collector.exporters.answers import Partial, fault_of, partial_of
from flowmark_otel.deliver.policy import RETRY_TRAILER
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt
from flowmark_otel.wire.status import encode_status, retry_info

PROTOBUF = "application/x-protobuf"


def http(status: int, content_type: str = PROTOBUF, **headers: str) -> Answer:
    """An answer over HTTP."""
    return Answer(status, b"", {"content-type": content_type, **headers})


def code(found: grpc.StatusCode, trailer: bytes | None = None) -> Answer:
    """An answer over gRPC."""
    headers = {} if trailer is None else {RETRY_TRAILER: trailer}
    return Answer(found.value[0], headers=headers, grpc=True)


@pytest.mark.parametrize(
    "answer",
    [http(200), http(200, ""), http(202), http(204), Answer(0, grpc=True)],
    ids=["200", "untyped", "202", "204", "grpc"],
)
def test_successes(answer: Answer) -> None:
    """Section 9: a plain endpoint owes no receipt; any 2xx is a success, as for stock exporters."""
    assert fault_of(answer, 0) is None


@pytest.mark.parametrize(
    ("answer", "name", "permanent", "paused", "wait"),
    [
        (http(429), "Unavailable", False, False, None),
        (http(502), "Unavailable", False, False, None),
        (http(503, **{"retry-after": "7"}), "Unavailable", False, False, 7.0),
        (http(401), "Unauthorized", False, True, None),
        (http(403), "Unauthorized", False, True, None),
        (http(404), "Unavailable", False, True, None),
        (http(302), "Unavailable", False, True, None),
        (http(200, "text/html; charset=utf-8"), "Unavailable", False, True, None),
        (http(400), "Rejected", True, False, None),
        (http(409), "Rejected", True, False, None),
        (http(413), "TooLarge", True, False, None),
        (http(408), "Unavailable", True, False, None),
        (http(500), "Unavailable", True, False, None),
        (code(grpc.StatusCode.UNAVAILABLE), "Unavailable", False, False, None),
        (code(grpc.StatusCode.UNAVAILABLE, retry_info(3)), "Unavailable", False, False, 3.0),
        (code(grpc.StatusCode.DEADLINE_EXCEEDED), "Timeout", False, False, None),
        (code(grpc.StatusCode.RESOURCE_EXHAUSTED), "TooLarge", True, False, None),
        (code(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info(2)), "Unavailable", False, False, 2.0),
        (code(grpc.StatusCode.UNAUTHENTICATED), "Unauthorized", False, True, None),
        (code(grpc.StatusCode.UNIMPLEMENTED), "Unavailable", False, True, None),
        (code(grpc.StatusCode.INVALID_ARGUMENT), "Rejected", True, False, None),
        (code(grpc.StatusCode.INTERNAL), "Unavailable", True, False, None),
        (NoAnswer("gone"), "Unavailable", False, False, None),
        (NoAnswer("late", names.REASON_TIMEOUT), "Timeout", False, False, None),
    ],
    ids=repr,
)
def test_faults(
    *, answer: Answer | NoAnswer, name: str, permanent: bool, paused: bool, wait: float | None
) -> None:
    """C2: only what OTLP calls worth a retry may be tried again; what is asked for is passed on."""
    fault = fault_of(answer, 0)
    assert fault is not None
    assert (fault.name, fault.permanent, fault.paused, fault.retry_after) == (
        *(name, permanent, paused, wait),
    )


def test_what_the_other_side_says_is_redacted() -> None:
    """Reliability, secrets: an error text that quotes a key does not carry it on."""
    body = encode_status(3, "no project for fmk_ab12_secretsecret", "protobuf")
    fault = fault_of(Answer(400, body, {"content-type": PROTOBUF}), 0)
    assert fault is not None
    assert "secretsecret" not in str(fault)
    assert "no project for" in str(fault)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_partial_successes_are_read(encoding: str) -> None:
    """Section 9: a partial success says how many spans were not taken, and why."""
    content_type = "application/json" if encoding == "json" else PROTOBUF
    body = receipt.encode(
        Receipt((), rejected_items=2, error_message="too old"), encoding, "traces"
    )
    answer = Answer(200, body, {"content-type": content_type})
    assert partial_of(answer) == Partial(2, "too old")
    whole = Answer(200, receipt.encode(Receipt(()), encoding, "traces"), answer.headers)
    assert partial_of(whole) is None
    assert partial_of(Answer(200, b"<html>", answer.headers)) is None
