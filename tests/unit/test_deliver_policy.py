"""The policy of delivery: what is tried again, after how long, and what never is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st

from flowmark_otel import names
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.policy import (
    Decision,
    GiveUp,
    Halve,
    Judge,
    Try,
    Wait,
    backoff,
    begin,
    decide,
    retry_after,
)
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.model import Receipt
from flowmark_otel.wire.status import encode_status, retry_info

NOW = 1_796_000_000_000_000_000
LIMITS = Limits()
FIRST = Try(number=1, elapsed=0.1, events=8, jitter=0.0)
LONE = FIRST._replace(events=1)
PROTOBUF = {"content-type": "application/x-protobuf"}


def http(status: int, tried: Try = FIRST, body: bytes = b"", **headers: str) -> Decision:
    """What is done after an HTTP answer; header names with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return decide(Answer(status, body, PROTOBUF | named), tried, LIMITS, NOW)


def grpc(
    code: int, tried: Try = FIRST, body: bytes = b"", trailers: dict[str, str | bytes] | None = None
) -> Decision:
    """What is done after a gRPC answer."""
    return decide(Answer(code, body, trailers or {}, grpc=True), tried, LIMITS, NOW)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_http_statuses_that_pass_are_tried_again(status: int) -> None:
    """A22: the statuses that OTLP calls retryable are waited for."""
    assert http(status) == Wait(0.2, names.REASON_UNAVAILABLE, f"HTTP {status}")


@pytest.mark.parametrize("status", [402, 408, 418, 600])
def test_other_http_statuses_are_not(status: int) -> None:
    """A22: no other failure that is the request's own is sent again, 408 among them."""
    assert isinstance(http(status), GiveUp)


@pytest.mark.parametrize("code", [1, 4, 10, 11, 14, 15])
def test_grpc_codes_that_pass_are_tried_again(code: int) -> None:
    """A22: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS pass."""
    reason = names.REASON_TIMEOUT if code == 4 else names.REASON_UNAVAILABLE
    assert grpc(code) == Wait(0.2, reason, f"gRPC code {code}")


@pytest.mark.parametrize("code", [9, 17])
def test_other_grpc_codes_are_not(code: int) -> None:
    """A22: FAILED_PRECONDITION, and what is no code at all, are not sent again."""
    assert isinstance(grpc(code), GiveUp)


def test_exhausted_passes_only_with_retry_info() -> None:
    """A22: RESOURCE_EXHAUSTED is tried again with RetryInfo, else the batch is too large."""
    trailers: dict[str, str | bytes] = {"google.rpc.retryinfo-bin": retry_info(1.5)}
    passing = grpc(8, trailers=trailers)
    assert passing == Wait(1.5, names.REASON_UNAVAILABLE, "gRPC code 8", told=True)
    assert grpc(8) == Halve("gRPC code 8")
    assert grpc(8, LONE) == GiveUp(names.REASON_TOO_LARGE, "gRPC code 8")


@pytest.mark.parametrize("reason", [names.REASON_UNAVAILABLE, names.REASON_TIMEOUT])
def test_no_answer_is_tried_again(reason: str) -> None:
    """A22: a connection that fails or takes too long is tried again."""
    found = decide(NoAnswer("refused", reason), FIRST, LIMITS, NOW)
    assert found == Wait(0.2, reason, "refused")


def test_retry_after_in_seconds_and_as_a_date() -> None:
    """A22: ``Retry-After`` is obeyed in both of its forms; nonsense counts as absent."""
    now = datetime.fromtimestamp(NOW / 1e9, timezone.utc)
    later = format_datetime(now + timedelta(seconds=7), usegmt=True)
    earlier = format_datetime(now - timedelta(days=1), usegmt=True)
    found = {
        value: retry_after(Answer(503, headers={"retry-after": value}), NOW)
        for value in ("7", " 0 ", later, earlier, "soon", "-1", "", "9" * 400)
    }
    assert found["7"] == 7
    assert found[" 0 "] == 0
    assert found[later] == pytest.approx(7, abs=1)
    assert found[earlier] == 0
    assert (found["soon"], found["-1"], found[""]) == (None, None, None)
    assert found["9" * 400] == 999_999_999
    for_ever = http(503, retry_after="999999999")
    assert isinstance(for_ever, Wait)
    assert for_ever.seconds == LIMITS.longest_told
    waited = http(503, retry_after="7")
    assert waited == Wait(7, names.REASON_UNAVAILABLE, "HTTP 503", told=True)


def test_retry_info_in_both_forms() -> None:
    """A22: RetryInfo counts in the status details and in the trailer of stock servers."""
    status = encode_status(14, "busy", "protobuf", None, 2.5)
    told = Wait(2.5, names.REASON_UNAVAILABLE, "gRPC code 14: busy", told=True)
    assert grpc(14, body=status) == told
    only_trailer = grpc(14, trailers={"google.rpc.retryinfo-bin": retry_info(2.5)})
    assert only_trailer == told._replace(detail="gRPC code 14")
    assert grpc(14, trailers={"google.rpc.retryinfo-bin": b"\xff"}) == Wait(
        0.2, names.REASON_UNAVAILABLE, "gRPC code 14"
    )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(401), names.REASON_UNAUTHORIZED),
        (Answer(403), names.REASON_UNAUTHORIZED),
        (Answer(404), names.REASON_UNAVAILABLE),
        (Answer(302), names.REASON_UNAVAILABLE),
        (Answer(16, grpc=True), names.REASON_UNAUTHORIZED),
        (Answer(7, grpc=True), names.REASON_UNAUTHORIZED),
        (Answer(12, grpc=True), names.REASON_UNAVAILABLE),
    ],
)
def test_a_fault_of_set_up_pauses(answer: Answer, reason: str) -> None:
    """A22: a wrong key or address is no reason to lose data, however long it lasts."""
    for elapsed in (0.1, 1e9):
        paused = decide(answer, FIRST._replace(elapsed=elapsed), LIMITS, NOW)
        assert isinstance(paused, Wait)
        assert (paused.reason, paused.seconds, paused.paused) == (reason, LIMITS.pause, True)


@pytest.mark.parametrize(
    "answer", [Answer(500), Answer(505), Answer(2, grpc=True), Answer(13, grpc=True)]
)
def test_a_fault_of_the_server_pauses_for_a_time(answer: Answer) -> None:
    """A22: a server that fails may be mended; what makes it fail does not block for ever."""
    endless = LIMITS._replace(budget=None)
    for limits in (LIMITS, endless):
        paused = decide(answer, FIRST._replace(elapsed=299.0), limits, NOW)
        assert isinstance(paused, Wait)
        assert (paused.seconds, paused.paused) == (LIMITS.pause, True)
        ended = decide(answer, FIRST._replace(elapsed=300.0), limits, NOW)
        assert isinstance(ended, GiveUp)
        assert ended.reason == names.REASON_UNAVAILABLE


@pytest.mark.parametrize("answer", [Answer(400), Answer(413), Answer(3, grpc=True)])
def test_what_spoils_a_batch_is_isolated(answer: Answer) -> None:
    """A23: without a receipt a refused batch is halved until the poison event is alone."""
    assert isinstance(decide(answer, FIRST, LIMITS, NOW), Halve)
    alone = decide(answer, LONE, LIMITS, NOW)
    assert isinstance(alone, GiveUp)
    expected = names.REASON_TOO_LARGE if answer.status == 413 else names.REASON_REJECTED
    assert alone.reason == expected


def test_an_error_with_a_receipt_is_judged() -> None:
    """A23: 400 and 409 with a receipt say what became of each event."""
    body = encode_status(6, "conflict", "protobuf", Receipt(received=8, rejected=8))
    for answer in (Answer(409, body, PROTOBUF), Answer(400, body, PROTOBUF)):
        assert decide(answer, FIRST, LIMITS, NOW) == Judge(answer)
    answer = Answer(6, body, grpc=True)
    assert decide(answer, FIRST, LIMITS, NOW) == Judge(answer)


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xff"])
def test_a_success_is_judged_and_never_sent_again(body: bytes) -> None:
    """A22: a missing or malformed receipt alone is never a reason to send again."""
    for answer in (Answer(200, body, PROTOBUF), Answer(200, body), Answer(0, body, grpc=True)):
        assert decide(answer, FIRST, LIMITS, NOW) == Judge(answer)
    assert isinstance(http(204), GiveUp)


def test_the_budget_ends_trying() -> None:
    """A22: once the budget is spent a batch is given up; without one never."""
    late = FIRST._replace(elapsed=300.0)
    assert http(503, late) == GiveUp(names.REASON_UNAVAILABLE, "HTTP 503")
    assert isinstance(http(503, FIRST._replace(elapsed=299.9)), Wait)
    endless = LIMITS._replace(budget=None)
    assert isinstance(decide(Answer(503), late._replace(elapsed=1e9), endless, NOW), Wait)
    assert begin(0, LIMITS).timeout == LIMITS.timeout
    assert begin(295, LIMITS).timeout == 5
    assert begin(1e9, endless).timeout == LIMITS.timeout


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_back_off_is_bounded(number: int, jitter: float) -> None:
    """A22: waits grow to the longest and no further; the jitter takes at most half."""
    full = backoff(number, 0.0, LIMITS)
    assert LIMITS.first_wait <= full <= LIMITS.longest_wait
    assert full / 2 <= backoff(number, jitter, LIMITS) <= full
    assert backoff(number + 1, 0.0, LIMITS) >= full
