"""Delivery over gRPC: receipts come through raw bytes, and every status is understood."""

from __future__ import annotations

import grpc
import pytest

from flowmark_otel import names
from flowmark_otel.model import Receipt, Rejection
from flowmark_otel.wire.status import encode_status, retry_info
from tests.support.answers import (
    Failure,
    GrpcAnswer,
    free_port,
    grpc_acknowledging,
    grpc_answering,
    grpc_stock,
)
from tests.support.delivering import attempts, delivering, ids, named, ordinary, reasons

Code = grpc.StatusCode


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_is_acknowledged_is_counted(compression: str) -> None:
    """A22: over gRPC a receipt is read from the raw response, key and headers are metadata."""
    with (
        grpc_answering(grpc_acknowledging) as server,
        delivering(
            server.endpoint,
            protocol="grpc",
            compression=compression,
            api_key="fmk_k_s",
            headers=(("X-Tenant", "a b"),),
        ) as delivery,
    ):
        delivery.record(*attempts(1, 3))
        delivery.flush(10)
        assert delivery.counts() == {(names.STORED, ""): 6}
        [metadata] = server.metadata
        assert metadata["authorization"] == "Bearer fmk_k_s"
        assert metadata["x-tenant"] == "a b"
        assert str(metadata["user-agent"]).startswith("flowmark-otel/")


@pytest.mark.parametrize(
    "trailers",
    [
        (("grpc-status-details-bin", encode_status(14, "busy", "protobuf", None, 7.0)),),
        (("google.rpc.retryinfo-bin", retry_info(7.0)),),
    ],
)
@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED])
def test_retry_info_is_obeyed(code: Code, trailers: tuple[tuple[str, bytes], ...]) -> None:
    """A22: a server that asks for time by RetryInfo, in either form, gets it."""
    busy = Failure(code, "busy", trailers)
    with (
        grpc_answering(busy, grpc_acknowledging) as server,
        delivering(server.endpoint, protocol="grpc") as delivery,
    ):
        delivery.record(*attempts(1, 1))
        delivery.flush(10)
        assert delivery.waits.asked.count(7.0) == 1
        assert delivery.counts() == {(names.STORED, ""): 2}
        assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Failure(Code.UNAUTHENTICATED), names.REASON_UNAUTHORIZED),
        (Failure(Code.PERMISSION_DENIED), names.REASON_UNAUTHORIZED),
        (Failure(Code.UNIMPLEMENTED), names.REASON_UNAVAILABLE),
        (Failure(Code.INTERNAL), names.REASON_UNAVAILABLE),
        (Failure(Code.UNKNOWN), names.REASON_UNAVAILABLE),
    ],
)
def test_what_a_broken_backend_refuses_stays_queued(answer: GrpcAnswer, reason: str) -> None:
    """A22: a wrong key or server is no reason to lose data: flushes say so, healing delivers."""
    with (
        grpc_answering(answer) as server,
        delivering(server.endpoint, protocol="grpc") as delivery,
    ):
        delivery.record(*attempts(1, 2))
        for _ in range(2):
            assert delivery.lost(timeout=600).counts == {(names.QUEUED, reason): 4}
        server.script[:] = [grpc_acknowledging]
        delivery.flush(20)
        assert delivery.counts() == {(names.STORED, ""): 4}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: b"", names.REASON_UNACKNOWLEDGED),
        (lambda _: b"<html>", names.REASON_MALFORMED_RECEIPT),
        (lambda body: grpc_acknowledging(body * 2), names.REASON_COUNT_MISMATCH),
    ],
)
def test_an_answer_that_acknowledges_nothing(answer: GrpcAnswer, reason: str) -> None:
    """A22: without a well-formed receipt the flush fails, and nothing is sent again."""
    with (
        grpc_answering(answer) as server,
        delivering(server.endpoint, protocol="grpc") as delivery,
    ):
        delivery.record(*attempts(1, 2))
        error = delivery.lost()
        assert reasons(error) == {(names.UNACKNOWLEDGED, reason)}
        assert delivery.counts() == {(names.UNACKNOWLEDGED, reason): 4}
        assert len(server.bodies) <= 2  # one more where a flush asked again after a pause


def test_a_stock_server_takes_the_ordinary() -> None:
    """A21: with a stock LogsService ordinary events are accepted, attempts unacknowledged."""
    with (
        grpc_answering(grpc_stock) as server,
        delivering(server.endpoint, protocol="grpc") as delivery,
    ):
        delivery.record(*attempts(5, 5), *ordinary(6, 6))
        error = delivery.lost()
        assert {each.event_id for each in named(error)} == set(ids(attempts(5, 5)))
        assert delivery.counts() == {
            (names.ACCEPTED, ""): 2,
            (names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED): 2,
        }


def test_a_conflict_of_all_is_judged() -> None:
    """A23: ALREADY_EXISTS carries its receipt in the status details."""
    events = attempts(1, 1)
    rejections = tuple(Rejection(each, "conflict", "another payload") for each in ids(events))
    made = Receipt(rejected=2, received=2, rejections=rejections)
    details = encode_status(6, "conflict", "protobuf", made)
    refused = Failure(Code.ALREADY_EXISTS, "conflict", (("grpc-status-details-bin", details),))
    with (
        grpc_answering(refused) as server,
        delivering(server.endpoint, protocol="grpc") as delivery,
    ):
        delivery.record(*events)
        assert delivery.lost().counts == {(names.CONFLICT, names.REASON_REJECTED): 2}


def test_only_the_poison_event_is_lost() -> None:
    """A23: INVALID_ARGUMENT without a receipt is halved until one event is alone."""
    events = attempts(1, 4)
    refused = Failure(Code.INVALID_ARGUMENT, "bad")
    # All eight, the first four, its first half, its second half, and that one's first event.
    script: list[GrpcAnswer] = [refused, refused, grpc_acknowledging, refused, refused]
    with (
        grpc_answering(*script, grpc_acknowledging) as server,
        delivering(server.endpoint, protocol="grpc") as delivery,
    ):
        delivery.record(*events)
        error = delivery.lost()
        assert error.counts == {(names.UNACKNOWLEDGED, names.REASON_REJECTED): 1}
        assert [each.event_id for each in named(error)] == [events[2].event_id]
        assert delivery.counts()[names.STORED, ""] == 7


def test_a_port_that_opens_later_gets_everything() -> None:
    """A22: a channel that found nobody is connected again as soon as somebody is there."""
    port = free_port()
    with delivering(f"http://127.0.0.1:{port}", protocol="grpc") as delivery:
        delivery.record(*attempts(1, 2))
        assert reasons(delivery.lost(0.5)) == {(names.QUEUED, names.REASON_UNAVAILABLE)}
        with grpc_answering(grpc_acknowledging, port=port):
            delivery.flush(15)
        assert delivery.counts() == {(names.STORED, ""): 4}
        assert delivery.codes == [names.REASON_UNAVAILABLE, names.DIAGNOSTIC_RESUMED]
