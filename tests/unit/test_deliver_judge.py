"""Judging an answer: the state of every single event, closed where it fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from flowmark_otel import names
from flowmark_otel.deliver.judge import CONTENT_TYPES, Judgement, judge, resolve
from flowmark_otel.deliver.transport import Answer, EventStatus
from flowmark_otel.fold.digest import digest
from flowmark_otel.model import Envelope, Receipt, Rejection
from flowmark_otel.wire import receipt
from flowmark_otel.wire.receipt import dumps
from flowmark_otel.wire.status import encode_status
from tests.support.envelopes import completed, run_event, started

TRIES = [started(1, ("g", 1)), completed(1, ("g", 1)), started(2, ("g", 2))]
ORDINARY = [started(7), completed(7)]
RETRY = [run_event(names.RUN_STARTED, 9, retry_workflow="crm.sync", retry_run="run-0")]
ENCODINGS = ("protobuf", "json")


def answered(made: Receipt, encoding: str = "protobuf", status: int = 200) -> Answer:
    """An HTTP answer with this receipt, as the backend writes it."""
    headers = {"content-type": CONTENT_TYPES[encoding]}
    if status == 200:
        return Answer(status, receipt.encode(made, encoding, "logs"), headers)
    return Answer(status, encode_status(6, "conflict", encoding, made), headers)


def both(made: Receipt, events: list[Envelope], status: int = 200) -> Judgement:
    """The judgement of a receipt, which is the same in both encodings and over gRPC."""
    found = [judge(answered(made, each, status), each, events) for each in ENCODINGS]
    body = answered(made, "protobuf", status).body
    found.append(judge(Answer(0 if status == 200 else 6, body, grpc=True), "protobuf", events))
    assert found[0] == found[1] == found[2]
    return found[0]


def states(judgement: Judgement) -> dict[tuple[str, str], int]:
    """Events by state and reason."""
    found: Counter[tuple[str, str]] = Counter({(s, ""): n for s, n in judgement.states.items()})
    found.update((each.state, each.reason) for each in judgement.failures)
    return dict(found)


def lost(number: int, reason: str) -> dict[tuple[str, str], int]:
    """All unacknowledged."""
    return {(names.UNACKNOWLEDGED, reason): number}


def test_a_receipt_that_adds_up_is_accepted() -> None:
    """A22: with the capability and a sum that holds, events count as the receipt says."""
    made = Receipt(stored=1, duplicate=1, custody=1, received=3)
    assert states(both(made, TRIES)) == {
        ("stored", ""): 1,
        ("duplicate", ""): 1,
        ("custody", ""): 1,
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"capabilities": ()}, "unacknowledged"),
        ({"capabilities": ("attempts-v2",)}, "unacknowledged"),
        ({"received": 2, "stored": 2}, "count_mismatch"),
        ({"received": 4, "stored": 4}, "count_mismatch"),
        ({"stored": 2}, "count_mismatch"),
        ({"stored": 4, "rejected": -1}, "count_mismatch"),
        ({"received": 0, "stored": 0}, "count_mismatch"),
        ({"rejections": (Rejection("x", "conflict", ""),)}, "malformed_receipt"),
    ],
)
def test_a_receipt_that_does_not_is_no_acknowledgement(changes: Any, reason: str) -> None:
    """A22: without the capability, or with counts that do not add up, nothing is acknowledged."""
    made = replace(Receipt(stored=3, received=3), **changes)
    assert states(both(made, TRIES)) == lost(3, reason)


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"<html>welcome</html>", "text/html", "malformed_receipt"),
        (b"<html>welcome</html>", "application/x-protobuf", "malformed_receipt"),
        (b"", "", "malformed_receipt"),
        (b"{}", "application/json", "malformed_receipt"),
        (b"", "application/x-protobuf", "unacknowledged"),
        (b"\xca\xf3\x18", "application/x-protobuf", "malformed_receipt"),
        # Field 51001 as a varint instead of a string.
        (b"\xc8\xf3\x18\x01", "application/x-protobuf", "unacknowledged"),
    ],
)
def test_what_is_no_receipt_acknowledges_nothing(
    body: bytes, content_type: str, reason: str
) -> None:
    """A22: the answer must have the request's type, parse, and name the capability."""
    answer = Answer(200, body, {"content-type": content_type})
    assert states(judge(answer, "protobuf", TRIES)) == lost(3, reason)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"capabilities": "attempts-v1"}, "unacknowledged"),
        ({"capabilities": ["attempts-v1", 1]}, "unacknowledged"),
        ({"capabilities": {"attempts-v1": True}}, "unacknowledged"),
        ({"stored": "three"}, "count_mismatch"),
        ({"stored": True, "received": True}, "count_mismatch"),
        ({"custody": "0&"}, "count_mismatch"),
        ({"received": 3.0}, "count_mismatch"),
        ({"received": None}, "count_mismatch"),
    ],
)
def test_json_of_a_wrong_type_counts_as_missing(document: Any, reason: str) -> None:
    """A22: capabilities must be a list of strings, and counts integers."""
    whole = {"capabilities": ["attempts-v1"], "stored": 3, "received": "3"}
    headers = {"content-type": "application/json; charset=utf-8"}
    assert states(judge(Answer(200, dumps(whole), headers), "json", TRIES)) == {("stored", ""): 3}
    broken = judge(Answer(200, dumps(whole | document), headers), "json", TRIES)
    assert states(broken) == lost(3, reason)


def test_a_stock_success_is_enough_for_ordinary_events() -> None:
    """A21: in a mixed batch without receipt only what has attempt or retry metadata failed."""
    mixed = [*TRIES, *ORDINARY, *RETRY]
    for encoding, body in (("protobuf", b""), ("json", b"{}")):
        answer = Answer(200, body, {"content-type": CONTENT_TYPES[encoding]})
        found = judge(answer, encoding, mixed)
        assert states(found) == {("accepted", ""): 2, **lost(4, "unacknowledged")}
        assert [each.position for each in found.failures] == [0, 1, 2, 5]
        assert states(judge(answer, encoding, ORDINARY)) == {("accepted", ""): 2}


def test_a_page_is_no_success_even_for_ordinary_events() -> None:
    """A21: what a middlebox answers with 200 is no OTLP success, so nothing was accepted."""
    answer = Answer(200, b"<html>", {"content-type": "text/html"})
    assert states(judge(answer, "protobuf", ORDINARY)) == lost(2, "malformed_receipt")


def test_a_partial_success_that_does_not_say_which_accepts_nothing() -> None:
    """A22: a stock server that rejected some of a batch leaves every event in doubt."""
    made = Receipt(capabilities=(), rejected_items=1, error_message="one is bad")
    assert states(both(made, ORDINARY)) == lost(2, "rejected")


def test_rejections_go_by_event_id() -> None:
    """A23: of one batch some events are accepted and others rejected, each by name."""
    rejections = (
        Rejection(TRIES[1].event_id, "conflict", "not the same"),
        Rejection("", "limit", "too many", 2),
    )
    made = Receipt(stored=1, rejected=2, received=3, rejections=rejections, rejected_items=2)
    found = both(made, TRIES)
    assert states(found) == {
        ("stored", ""): 1,
        ("conflict", "rejected"): 1,
        ("limit", "rejected"): 1,
    }
    assert [(each.position, each.message) for each in found.failures] == [
        (1, "not the same"),
        (2, "too many"),
    ]


def test_a_refusal_of_all_is_judged_by_its_receipt() -> None:
    """A23: 409 and 400 carry a receipt, and its sum has to hold as well."""
    rejections = tuple(Rejection(each.event_id, "conflict", "") for each in TRIES)
    made = Receipt(rejected=3, received=3, rejections=rejections)
    assert states(both(made, TRIES, 409)) == {("conflict", "rejected"): 3}
    short = replace(made, rejected=2, received=2, rejections=rejections[:2])
    assert states(both(short, TRIES, 409)) == lost(3, "count_mismatch")


def test_an_unknown_code_is_not_believed() -> None:
    """A22: a rejection with a code that nobody knows leaves its event unacknowledged."""
    rejection = Rejection(TRIES[0].event_id, "sunspots", "")
    made = Receipt(stored=2, rejected=1, received=3, rejections=(rejection,))
    assert states(both(made, TRIES)) == {("stored", ""): 2, **lost(1, "rejected")}


@pytest.mark.parametrize("which", [0, 1])
def test_which_of_two_events_with_one_id_was_rejected_is_asked(which: int) -> None:
    """A6, row 13: a receipt names ids alone, so the digest that is stored says which it means."""
    twice = [TRIES[1], TRIES[1]._replace(time_unix_nano=5), TRIES[0]]
    rejection = Rejection(TRIES[1].event_id, "conflict", "not the same")
    made = Receipt(stored=1, duplicate=1, rejected=1, received=3, rejections=(rejection,))
    judgement = both(made, twice)
    assert not judgement.failures
    assert {0, 1} <= set(judgement.unnamed)
    told = [
        EventStatus(event.event_id, "stored", digest(event).hex())
        for event in (twice[1 - which], twice[2])
    ]
    found = resolve(judgement, twice, told)
    assert [(each.position, each.state, each.message) for each in found.failures] == [
        (which, "conflict", "not the same")
    ]
    assert found.states == {"stored": 1, "duplicate": 1}


def test_two_events_with_one_id_that_are_both_named_need_no_question() -> None:
    """A6: as many rejections of an id as there are events of it mean all of them."""
    twice = [TRIES[1], TRIES[1]._replace(time_unix_nano=5)]
    rejection = Rejection(TRIES[1].event_id, "conflict", "")
    made = Receipt(rejected=2, received=2, rejections=(rejection, rejection))
    found = both(made, twice)
    assert [each.position for each in found.failures] == [0, 1]
    assert not found.unnamed


def cut(events: list[Envelope]) -> Judgement:
    """A judgement of a receipt that names one of three rejected."""
    named = Rejection(events[0].event_id, "conflict", "")
    made = Receipt(stored=2, duplicate=1, rejected=3, received=len(events), rejections=(named,))
    return both(made, events)


def test_what_the_list_had_no_room_for_is_asked() -> None:
    """A23: own digest is stored, another a conflict, else the code given; unknown is neither."""
    events = [started(number, ("g", number)) for number in range(1, 7)]
    judgement = cut(events)
    assert judgement.unnamed == (1, 2, 3, 4, 5)
    assert not judgement.states
    ids = [each.event_id for each in events]
    told = [EventStatus(each.event_id, "stored", digest(each).hex()) for each in events[:4]]
    told += [EventStatus(ids[4], "stored", "00" * 32), EventStatus(ids[5], "rejected", "", "limit")]
    found = resolve(judgement, events, told)
    assert states(found) == {
        ("stored", ""): 2,
        ("duplicate", ""): 1,
        ("conflict", "rejected"): 2,
        ("limit", "rejected"): 1,
    }
    assert [each.position for each in found.failures] == [0, 4, 5]


def test_a_status_that_is_not_to_be_had_acknowledges_nothing() -> None:
    """A22: without an answer, without a digest, or unknown there, an event is unacknowledged."""
    events = [started(number, ("g", number)) for number in range(1, 7)]
    doubtful = [
        EventStatus(events[1].event_id, "unknown"),
        EventStatus(events[2].event_id, "stored", ""),
        EventStatus(events[3].event_id, "nonsense", digest(events[3]).hex()),
    ]
    for statuses in ([], doubtful):
        found = resolve(cut(events), events, statuses)
        assert states(found) == {("conflict", "rejected"): 1, **lost(5, "unacknowledged")}


def test_custody_is_told_by_the_status_too() -> None:
    """A24: an event in an intermediary's spool is in custody, if it is this one."""
    events = [started(number, ("g", number)) for number in range(1, 7)]
    told = [EventStatus(each.event_id, "custody", digest(each).hex()) for each in events]
    found = resolve(cut(events), events, told)
    assert states(found) == {("conflict", "rejected"): 1, ("custody", ""): 5}


@given(
    st.builds(
        Receipt,
        capabilities=st.sampled_from([(), ("attempts-v1",), ("x", "attempts-v1")]),
        stored=st.integers(-1, 4),
        duplicate=st.integers(-1, 4),
        custody=st.integers(-1, 4),
        received=st.integers(-1, 6),
        rejected=st.integers(-1, 4),
        rejected_items=st.integers(0, 2),
        rejections=st.lists(
            st.builds(
                Rejection,
                st.sampled_from(["", "x", *(each.event_id for each in [*TRIES, *ORDINARY])]),
                st.sampled_from(["conflict", "invalid", "limit", "dead_lettered", "dropped", "?"]),
                st.just(""),
                st.integers(-1, 6),
            ),
            max_size=4,
        ).map(tuple),
    ),
    st.sampled_from([200, 400, 409]),
    st.sampled_from(ENCODINGS),
)
def test_every_event_has_exactly_one_state(made: Receipt, status: int, encoding: str) -> None:
    """A22: whatever is answered, each event is counted once, and attempts need the capability."""
    events = [*TRIES, *ORDINARY]
    found = judge(answered(made, encoding, status), encoding, events)
    placed = [each.position for each in found.failures] + list(found.unnamed)
    assert len(placed) == len(set(placed))
    assert found.states.total() + len(placed) == len(events)
    assert all(number > 0 for number in found.states.values())
    settled = resolve(found, events, []) if found.unnamed else found
    assert settled.states.total() + len(settled.failures) == len(events)
    if "attempts-v1" not in made.capabilities:
        assert set(settled.states) <= {"accepted"}
        assert settled.states.total() <= len(ORDINARY)


@given(st.binary(max_size=200), st.sampled_from(ENCODINGS), st.sampled_from([200, 400, 409]))
def test_no_body_is_ever_a_crash(body: bytes, encoding: str, status: int) -> None:
    """A22: bytes of any kind are judged; what is no receipt acknowledges no attempt."""
    answer = Answer(status, body, {"content-type": CONTENT_TYPES[encoding]})
    found = judge(answer, encoding, TRIES)
    assert len(found.failures) == len(TRIES)
