"""Delivery over HTTP against servers that fail in every way: what was acknowledged, what not."""

from __future__ import annotations

import threading

import pytest

from flowmark_otel import names
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.errors import DeliveryError
from flowmark_otel.model import Receipt, Refused, Rejection
from flowmark_otel.wire.status import encode_status
from tests.support.answers import (
    JSON,
    PROTOBUF,
    Answer,
    Received,
    Reply,
    acknowledging,
    answering,
    free_port,
    stock,
)
from tests.support.delivering import (
    LIMITS,
    attempts,
    delivering,
    ids,
    named,
    ordinary,
    reasons,
)
from tests.support.envelopes import started

FAILED_STATE = names.UNACKNOWLEDGED


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_is_acknowledged_is_counted(protocol: str, compression: str) -> None:
    """A22: with a well-formed receipt a flush returns, and all events are stored."""
    events = attempts(1, 3)
    with (
        answering(acknowledging()) as server,
        delivering(
            server.endpoint,
            protocol=protocol,
            compression=compression,
            api_key="fmk_k_s",
            headers=(("x-tenant", "a b"),),
        ) as delivery,
    ):
        delivery.record(*events)
        delivery.flush(10)
        assert delivery.counts() == {(names.STORED, ""): 6}
        [request] = server.exports
        assert request.event_ids == ids(events)
        assert request.headers["authorization"] == "Bearer fmk_k_s"
        assert request.headers["x-tenant"] == "a b"
        assert request.headers["user-agent"].startswith("flowmark-otel/")
        assert request.headers["content-type"] == (JSON if "json" in protocol else PROTOBUF)
        assert request.headers.get("content-encoding", "none") == compression


def test_a_start_goes_out_by_itself() -> None:
    """E1: without a spool and without a flush, an early start is handed to the transport."""
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.start()
        delivery.record(started(1, ("g", 1)))
        assert server.arrived.wait(10)
        delivery.flush(10)
        assert server.exports[0].event_ids == ids([started(1, ("g", 1))])
        # Nothing waited longer than the batch that gathers: a fraction of the 200 ms.
        assert max(delivery.waits.asked) <= 0.05


def test_a_closed_port_acknowledges_nothing() -> None:
    """A22: without anybody there the events still wait, and a flush says so."""
    with delivering(f"http://127.0.0.1:{free_port()}") as delivery:
        delivery.record(*attempts(1, 2))
        error = delivery.lost(0.3)
        assert reasons(error) == {(names.QUEUED, names.REASON_UNAVAILABLE)}
        assert error.counts == {(names.QUEUED, names.REASON_UNAVAILABLE): 4}
        assert str(error).startswith("4 of 4 events were not acknowledged: 4 queued, unavailable")
        assert delivery.counts() == {(names.QUEUED, ""): 4}
        assert delivery.codes == [names.REASON_UNAVAILABLE]
        with pytest.raises(DeliveryError, match="4 unacknowledged, unavailable"):
            delivery.shutdown(0.1)
        assert delivery.counts() == {(FAILED_STATE, names.REASON_UNAVAILABLE): 4}


def test_a_port_that_opens_later_gets_everything() -> None:
    """A22: what could not be delivered is, once somebody is there; told once each."""
    port = free_port()
    with delivering(f"http://127.0.0.1:{port}") as delivery:
        delivery.record(*attempts(1, 2))
        assert not delivery.try_flush(0.2)
        with answering(acknowledging(), port=port) as server:
            delivery.flush(10)
            assert server.exports[-1].event_ids == ids(attempts(1, 2))
        assert delivery.counts() == {(names.STORED, ""): 4}
        assert delivery.codes == [names.REASON_UNAVAILABLE, names.DIAGNOSTIC_RESUMED]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(418), names.REASON_UNAVAILABLE),
        (Reply(204), names.REASON_UNACKNOWLEDGED),
        (Reply(200, b"<html>welcome", "text/html"), names.REASON_MALFORMED_RECEIPT),
        (Reply(200, b"<html>welcome"), names.REASON_MALFORMED_RECEIPT),
        (Reply(200), names.REASON_UNACKNOWLEDGED),
        (Reply(200, b"\xc8\xf3\x18\x01"), names.REASON_UNACKNOWLEDGED),
        (acknowledging(stored=3), names.REASON_COUNT_MISMATCH),
        (acknowledging(stored=5, received=5), names.REASON_COUNT_MISMATCH),
    ],
)
def test_an_answer_that_acknowledges_nothing(reply: Answer, reason: str) -> None:
    """A22: without a well-formed receipt the flush fails, and nothing is sent again."""
    with answering(reply) as server, delivering(server.endpoint) as delivery:
        delivery.record(*attempts(1, 2))
        error = delivery.lost()
        assert reasons(error) == {(FAILED_STATE, reason)}
        assert delivery.counts() == {(FAILED_STATE, reason): 4}
        assert {each.path for each in server.received} == {"/v1/logs"}
        assert len(server.received) == 1
        assert reason in delivery.codes
        delivery.flush(5)  # it was said once


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(302, headers={"location": "/elsewhere"}), names.REASON_UNAVAILABLE),
        (Reply(404, b"<html>", "text/html"), names.REASON_UNAVAILABLE),
        (Reply(401), names.REASON_UNAUTHORIZED),
        (Reply(403), names.REASON_UNAUTHORIZED),
        (Reply(500), names.REASON_UNAVAILABLE),
    ],
)
def test_what_a_broken_backend_refuses_stays_queued(reply: Reply, reason: str) -> None:
    """A22: a wrong key or server is no reason to lose data: flushes say so, healing delivers."""
    with answering(reply) as server, delivering(server.endpoint) as delivery:
        delivery.record(*attempts(1, 2))
        for recorded in (4, 6):  # each flush wants an answer of now, and none waits for healing
            error = delivery.lost(timeout=600)
            assert error.counts == {(names.QUEUED, reason): recorded}
            assert {each.path for each in server.received} == {"/v1/logs"}
            if recorded == 4:
                delivery.record(*attempts(3, 3))
        assert delivery.codes == [reason]
        server.script(acknowledging())
        delivery.flush(20)
        assert delivery.counts() == {(names.STORED, ""): 6}
        assert delivery.codes == [reason, names.DIAGNOSTIC_RESUMED]
    arrived = [each for request in server.exports for each in request.event_ids]
    assert set(arrived) == set(ids(attempts(1, 3)))


def test_a_queue_that_cannot_be_delivered_fills_and_ends_honestly() -> None:
    """A22: under a wrong key the queue keeps what it has room for; a shutdown gives it up."""
    pace = Pace(limits=LIMITS, queue=6, linger=0.0)
    with answering(Reply(401)) as server, delivering(server.endpoint, pace=pace) as delivery:
        for number in range(1, 6):
            delivery.record(*attempts(number, number))
        error = delivery.lost(timeout=600)
        full = (names.DROPPED, names.REASON_QUEUE_FULL)
        assert error.counts == {(names.QUEUED, names.REASON_UNAUTHORIZED): 6, full: 4}
        with pytest.raises(DeliveryError):
            delivery.shutdown(600)
        counts = delivery.counts()
        assert counts[full] == 4
        refused = counts[FAILED_STATE, names.REASON_UNAUTHORIZED]
        assert refused > 0
        assert refused + counts.get((names.DROPPED, names.REASON_SHUTDOWN), 0) == 6


@pytest.mark.parametrize("cut", [1, 12, 30, 60, 120, 200])
@pytest.mark.parametrize("reset", [False, True])
def test_an_answer_that_is_cut_is_asked_for_again(cut: int, reset: bool) -> None:  # noqa: FBT001
    """A22: an answer that breaks off anywhere is none; the same ids are sent again."""
    events = attempts(1, 2)
    filler = {"x-filler": "x" * 100}

    def broken(request: Received) -> Reply:
        whole = acknowledging()(request)
        return Reply(body=whole.body, headers=filler, cut=cut, reset=reset)

    with answering(broken, acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.record(*events)
        delivery.flush(10)
        assert delivery.counts() == {(names.STORED, ""): 4}
        assert [each.event_ids for each in server.exports] == [ids(events)] * 2


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_obeyed(status: int) -> None:
    """A22: a server that asks for time gets it, also while a flush waits."""
    busy = Reply(status, headers={"retry-after": "7"})
    with answering(busy, busy, acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.record(*attempts(1, 1))
        delivery.flush(10)
        assert delivery.waits.asked.count(7.0) == 2
        assert delivery.counts() == {(names.STORED, ""): 2}
        assert delivery.codes.count(names.REASON_UNAVAILABLE) == 1


def test_a_slow_server_is_a_timeout() -> None:
    """A22: each try is bounded, also where bytes keep dribbling in; late answers count once."""
    never = threading.Event()
    dripping = Reply(200, drip_seconds=0.02)
    with (
        answering(Reply(after=never), dripping, acknowledging(duplicate=2, stored=0)) as server,
        delivering(server.endpoint, timeout=200) as delivery,
    ):
        delivery.record(*attempts(1, 1))
        delivery.flush(20)
        never.set()
        assert delivery.counts() == {(names.DUPLICATE, ""): 2}
        assert len(server.exports) == 3
        assert delivery.codes == [names.REASON_TIMEOUT, names.DIAGNOSTIC_RESUMED]


def test_a_request_under_way_at_the_end_is_unacknowledged() -> None:
    """A22: a shutdown does not wait longer than told; what may have arrived is not called lost."""
    never = threading.Event()
    with answering(Reply(after=never)) as server, delivering(server.endpoint) as delivery:
        delivery.record(*attempts(1, 1))
        assert server.arrived.wait(10)
        delivery.record(*attempts(2, 2))
        with pytest.raises(DeliveryError) as raised:
            delivery.shutdown(0.1)
        expected = {
            (FAILED_STATE, names.REASON_TIMEOUT): 2,
            (names.DROPPED, names.REASON_SHUTDOWN): 2,
        }
        assert raised.value.counts == expected
        assert [each.event_id for each in named(raised.value)] == ids(attempts(1, 2))
        never.set()
        delivery.record(*attempts(3, 3))
        expected[names.DROPPED, names.REASON_SHUTDOWN] += 2
        assert delivery.counts() == expected
        assert sum(expected.values()) == delivery.recorded()


def test_a_stock_server_takes_the_ordinary() -> None:
    """A21: with a stock OTLP server ordinary events are accepted, attempts unacknowledged."""
    with answering(stock) as server, delivering(server.endpoint) as delivery:
        delivery.record(*ordinary(1, 2))
        delivery.flush(10)
        assert delivery.counts() == {(names.ACCEPTED, ""): 4}
        delivery.record(*attempts(5, 5), *ordinary(6, 6))
        error = delivery.lost()
        assert error.counts == {(FAILED_STATE, names.REASON_UNACKNOWLEDGED): 2}
        assert {each.event_id for each in named(error)} == set(ids(attempts(5, 5)))
        assert "does not acknowledge attempts-v1" in str(error)
        assert delivery.counts()[names.ACCEPTED, ""] == 6


def test_a_conflict_of_all_is_judged() -> None:
    """A23: 409 with a receipt is an answer for each event, not a fault of the transport."""
    events = attempts(1, 1)
    rejections = tuple(Rejection(each, "conflict", "another payload") for each in ids(events))
    made = Receipt(rejected=2, received=2, rejections=rejections)
    reply = Reply(409, encode_status(6, "conflict", "protobuf", made))
    with answering(reply) as server, delivering(server.endpoint) as delivery:
        delivery.record(*events)
        error = delivery.lost()
        assert error.counts == {(names.CONFLICT, names.REASON_REJECTED): 2}
        assert "2 conflict (op-" in str(error)
        assert "another payload" in str(error)
        assert [each.event_id for each in delivery.seen] == ids(events)
        assert len(server.exports) == 1


@pytest.mark.parametrize("status", [400, 413])
def test_only_the_poison_event_is_lost(status: int) -> None:
    """A23: a batch refused as a whole is halved until the one that spoils it is alone."""
    events = attempts(1, 16)
    poison = events[11].event_id

    def picky(request: Received) -> Reply:
        spoiled = poison in request.event_ids
        return Reply(status) if spoiled else acknowledging()(request)

    with answering(picky) as server, delivering(server.endpoint) as delivery:
        delivery.record(*events)
        error = delivery.lost()
        reason = names.REASON_TOO_LARGE if status == 413 else names.REASON_REJECTED
        assert error.counts == {(FAILED_STATE, reason): 1}
        assert [each.event_id for each in named(error)] == [poison]
        assert delivery.counts()[names.STORED, ""] == 31
        assert len(server.exports) == 11  # the whole, then two for each of five halvings


def test_refused_events_are_never_sent() -> None:
    """A22: what validation refused is counted invalid, said, and spoils nothing beside it."""
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.record(*attempts(1, 1), Refused(names.INVALID, "number is a string", "op-x"))
        error = delivery.lost()
        assert error.counts == {(names.INVALID, names.REASON_NOT_SENT): 1}
        assert "1 of 3 events were not acknowledged: 1 invalid" in str(error)
        assert delivery.seen[0].message == "number is a string"
        assert server.exports[0].event_ids == ids(attempts(1, 1))


def test_a_resource_that_cannot_be_encoded_costs_itself() -> None:
    """A22: an attribute of the resource that nothing can write is left out, events are not."""
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.put(attempts(1, 1), {"service.name": "crm", "bad": "\ud800", "big": 2**70})
        delivery.flush(10)
        assert delivery.counts() == {(names.STORED, ""): 2}
        assert delivery.codes == [names.DIAGNOSTIC_INVALID]
        assert b"crm" in server.exports[0].body
    bad = started(1, ("g", 1), code="\ud800")
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.record(*attempts(2, 2), bad)
        error = delivery.lost()
        assert error.counts == {(names.INVALID, names.REASON_NOT_SENT): 1}
        assert delivery.counts()[names.STORED, ""] == 2


def test_capability_lost_and_regained() -> None:
    """A22 (row 23): a lost capability is said once an epoch, nothing sent again; it resumes."""
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:
        for script in (stock, acknowledging(), stock):
            server.script(script)
            for number in range(3):
                delivery.record(*attempts(number + 1, number + 1))
                assert delivery.try_flush(10) is (script is not stock)
        assert delivery.codes == ["unacknowledged", "resumed", "unacknowledged"]
        assert delivery.counts() == {
            (names.STORED, ""): 6,
            (FAILED_STATE, names.REASON_UNACKNOWLEDGED): 12,
        }
        assert len(server.exports) == 9
