"""The judgement table of the contract, section 4, row by row on the real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flowmark_otel import names
from flowmark_otel.backend.store import Store, Verdict, open_store, schema
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope, Refused, Value
from tests.support.envelopes import (
    NOW,
    WAIT,
    batch,
    completed,
    failed,
    observed,
    put,
    rows,
    started,
)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store of each kind."""
    opened = open_store(store_url)
    yield opened
    opened.close()


def in_one_request(store: Store, *events: Envelope) -> list[str]:
    """Codes of all events, judged within one request."""
    verdict = put(store, *events)
    refused = {each.event_id: each.code for each in verdict.rejections}
    assert verdict.stored + verdict.duplicate + len(verdict.rejections) == len(events)
    fresh = iter([names.STORED] * verdict.stored + [names.DUPLICATE] * verdict.duplicate)
    return [refused[each.event_id] if each.event_id in refused else next(fresh) for each in events]


def in_one_transaction(store: Store, *events: Envelope) -> list[str]:
    """Codes of all events, each its own request, committed together where they meet."""
    futures = [store.submit(batch([each])) for each in events]
    return [_code(future.result(WAIT)) for future in futures]


def one_after_the_other(store: Store, *events: Envelope) -> list[str]:
    """Codes of all events, each judged after the one before was durable."""
    return [_code(put(store, each)) for each in events]


def _code(verdict: Verdict) -> str:
    if verdict.rejections:
        return verdict.rejections[0].code
    assert verdict.stored + verdict.duplicate == 1
    return names.STORED if verdict.stored else names.DUPLICATE


Delivery = Callable[..., list[str]]

deliveries = pytest.mark.parametrize(
    "deliver", [in_one_request, in_one_transaction, one_after_the_other]
)

FIELDS: dict[str, tuple[Value, Value]] = {
    "limit": (3, 4),
    "kind": ("reported", "observed"),
    "series": ("a", "b"),
    "system": ("crm", "erp"),
    "timeout_ms": (1000, 1001),
    "deadline_ms": (5, 6),
    "idempotency_key": ("sha256:0123456789abcdef", "sha256:0123456789abcdee"),
}


def test_invalid_is_refused_by_name_and_its_neighbours_are_stored(store: Store) -> None:
    """A5, A23: an event that broke a rule is rejected by name; the others of its batch stay."""
    bad = Refused(names.INVALID, "flowmark.attempt.number is the integer 0", "op-x-start")
    nameless = Refused(names.INVALID, "span id is all zero")
    verdict = put(store, started(1, ("g", 1)), bad, nameless, completed(1, ("g", 1)))
    assert verdict.stored == 2
    assert [(each.code, each.event_id, each.item) for each in verdict.rejections] == [
        (names.INVALID, "op-x-start", -1),
        (names.INVALID, "", 2),
    ]
    assert verdict.rejected_items == 2
    assert [each["event_id"] for each in rows(store, schema.rejections)] == ["op-x-start", ""]


@deliveries
def test_the_same_event_again_is_a_duplicate(store: Store, deliver: Delivery) -> None:
    """A8 (row 11): a second delivery with the same digest is acknowledged, changes nothing."""
    first = started(1, ("g", 1))
    assert deliver(store, first, first, first) == [
        names.STORED,
        names.DUPLICATE,
        names.DUPLICATE,
    ]
    assert len(rows(store, schema.events)) == 1


@deliveries
def test_what_the_digest_leaves_out_makes_no_conflict(store: Store, deliver: Delivery) -> None:
    """A8 (row 13): duration, defaulted keys and the order of attributes are no other payload."""
    first = completed(1, ("g", 1), duration=5, defaulted="flowmark.operation.name")
    again = completed(1, ("g", 1), duration=6, defaulted="flowmark.operation.name")
    again = again._replace(attributes=dict(reversed(again.attributes.items())))
    assert digest(first) == digest(again)
    assert deliver(store, first, again) == [names.STORED, names.DUPLICATE]
    assert rows(store, schema.occurrences)[0]["duration_ns"] == 5


@deliveries
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(failed(1, ("g", 1)), id="other outcome"),
        pytest.param(completed(1, ("g", 1), at=NOW + 1), id="other time"),
        pytest.param(completed(1, ("g", 2)), id="other number"),
        pytest.param(completed(1, ("g", 1), code="E"), id="other error code"),
        pytest.param(completed(1, ("g", 1), run="run-2"), id="other run"),
    ],
)
def test_a_known_id_with_another_digest_is_a_conflict(
    store: Store, deliver: Delivery, other: Envelope
) -> None:
    """A6, I3 (row 13): the first payload of an id stays; another is a conflict and kept."""
    first = completed(1, ("g", 1))
    assert deliver(store, first, other, first)[1] == names.CONFLICT
    [kept] = rows(store, schema.events)
    assert (kept["event"], kept["sent_at"]) == (first.event, first.time_unix_nano)
    [rejected] = rows(store, schema.rejections)
    assert rejected["digest"] == digest(other)
    assert (rejected["operation"], rejected["operation_id"]) == ("push-to-crm", "op-1")
    assert (rejected["group_id"], rejected["number"]) == (
        "g",
        other.attributes[names.ATTEMPT_NUMBER],
    )


def test_a_conflict_with_another_run_names_both(store: Store) -> None:
    """Fault row 12: a rejected payload that names another run marks the accepted one's too."""
    put(store, completed(1, ("g", 1)))
    put(store, completed(1, ("g", 1), run="run-2"))
    first, second = (each["id"] for each in rows(store, schema.runs))
    [rejected] = rows(store, schema.rejections)
    assert (rejected["run"], rejected["accepted_run"]) == (second, first)


@deliveries
@pytest.mark.parametrize("later", [completed, started])
def test_an_operation_id_with_another_name_is_a_conflict(
    store: Store, deliver: Delivery, later: Callable[..., Envelope]
) -> None:
    """A6: an operation id accepted under one name is refused under another."""
    other = later(2, ("g", 1), operation_id="op-1", operation="pull-from-crm")
    assert deliver(store, started(1, ("g", 1)), other) == [names.STORED, names.CONFLICT]
    assert rows(store, schema.occurrences)[0]["operation"] == "push-to-crm"


@deliveries
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("given", ["changed", "left out", "added"])
def test_an_operation_id_with_another_start_field_is_a_conflict(
    store: Store, deliver: Delivery, field: str, given: str
) -> None:
    """A6, A7: any other attempt start field for an accepted operation is a conflict."""
    one, other = FIELDS[field]
    first = {} if given == "added" else {field: one}
    second = {} if given == "left out" else {field: other}
    events = (started(1, ("g", 1), **first), completed(1, ("g", 1), **second))
    assert deliver(store, *events) == [names.STORED, names.CONFLICT]
    [found] = rows(store, schema.occurrences)
    assert (found["status"], found["end_event"]) == (names.STATUS_OPEN, None)


@deliveries
def test_an_operation_id_with_another_attempt_is_a_conflict(
    store: Store, deliver: Delivery
) -> None:
    """A6, A7: an end that names another attempt than its start, or none, is a conflict."""
    events = (started(1, ("g", 1)), completed(1, ("g", 2)))
    assert deliver(store, *events) == [names.STORED, names.CONFLICT]
    assert one_after_the_other(store, completed(1)) == [names.CONFLICT]
    [message] = {each["message"] for each in rows(store, schema.rejections)[:1]}
    assert "flowmark.attempt.number: 1, not 2" in message


@deliveries
def test_observed_tries_are_compared_by_operation_name_only(
    store: Store, deliver: Delivery
) -> None:
    """B8: an observed try carries no attempt fields, which is no conflict; another name is."""
    other = observed(2, 2, operation_id="op-1", operation="pull-from-crm")
    events = (started(1, ("g", 1)), observed(1, 1), completed(1, ("g", 1)), other)
    assert deliver(store, *events) == [*[names.STORED] * 3, names.CONFLICT]
    [found] = rows(store, schema.occurrences)
    assert (found["group_id"], found["number"], found["status"]) == ("g", 1, "completed")


@deliveries
def test_an_observed_try_first_claims_the_name_alone(store: Store, deliver: Delivery) -> None:
    """B8, A10: an observed try before its operation makes no occurrence and binds the name."""
    other = started(2, ("g", 1), operation_id="op-1", operation="pull-from-crm")
    assert deliver(store, observed(1, 1), other) == [names.STORED, names.CONFLICT]
    assert [each["fields"] for each in rows(store, schema.occurrences)] == [None]
    assert deliver(store, completed(1, ("g", 1))) == [names.STORED]
    [found] = rows(store, schema.occurrences)
    assert (found["group_id"], found["status"], found["start_event"]) == ("g", "completed", None)


@deliveries
def test_a_place_with_another_operation_id_is_a_conflict(store: Store, deliver: Delivery) -> None:
    """A6: a (group, number) of a run and operation name names one operation id."""
    events = (completed(1, ("g", 1)), started(2, ("g", 1)), completed(2, ("g", 1)))
    assert deliver(store, *events) == [names.STORED, names.CONFLICT, names.CONFLICT]
    assert [each["operation_id"] for each in rows(store, schema.occurrences)] == ["op-1"]


@deliveries
def test_a_claimed_name_gives_no_right_to_a_place(store: Store, deliver: Delivery) -> None:
    """A6: an operation known from observed tries alone cannot take the place of another."""
    events = (observed(2, 1), started(1, ("g", 1)), started(2, ("g", 1)))
    assert deliver(store, *events) == [names.STORED, names.STORED, names.CONFLICT]


@deliveries
@pytest.mark.parametrize(
    "elsewhere",
    [
        {"operation": "pull-from-crm"},
        {"run": "run-2"},
        {"workflow": "crm.other"},
    ],
)
def test_a_group_belongs_to_one_run_and_operation_name(
    store: Store, deliver: Delivery, elsewhere: dict[str, str]
) -> None:
    """A3: the same group id under another run or operation name is another group."""
    events = (started(1, ("g", 1)), started(2, ("g", 1), **elsewhere))
    assert deliver(store, *events) == [names.STORED, names.STORED]


@deliveries
@pytest.mark.parametrize("second", [completed, failed])
def test_an_end_from_another_span_is_a_conflict(
    store: Store, deliver: Delivery, second: Callable[..., Envelope]
) -> None:
    """A6: an operation ends once; the end from the first span stays."""
    events = (failed(1, ("g", 1), code="E", duration=7), second(2, ("g", 1), operation_id="op-1"))
    assert deliver(store, *events) == [names.STORED, names.CONFLICT]
    [found] = rows(store, schema.occurrences)
    assert (found["status"], found["error_code"], found["duration_ns"]) == ("failed", "E", 7)


@deliveries
def test_a_continuation_adds_no_occurrence(store: Store, deliver: Delivery) -> None:
    """A2, A9: a further start of an operation is stored and the first stays its start."""
    events = (
        started(1, ("g", 1), at=NOW + 5),
        started(2, ("g", 1), operation_id="op-1", at=NOW),
        completed(2, ("g", 1), operation_id="op-1", at=NOW + 9),
    )
    assert deliver(store, *events) == [names.STORED] * 3
    [found] = rows(store, schema.occurrences)
    first, _, end = (each["id"] for each in rows(store, schema.events))
    assert (found["start_event"], found["end_event"]) == (first, end)
    assert (found["started_at"], found["ended_at"]) == (NOW + 5, NOW + 9)


@deliveries
def test_an_end_before_its_start_is_stored(store: Store, deliver: Delivery) -> None:
    """A10: evidence may arrive in any order; the state is the same."""
    events = (completed(1, ("g", 1), at=NOW + 9, duration=9), started(1, ("g", 1)))
    assert deliver(store, *events) == [names.STORED] * 2
    [found] = rows(store, schema.occurrences)
    assert (found["status"], found["started_at"], found["duration_ns"]) == ("completed", NOW, 9)


@deliveries
def test_ordinary_occurrences_of_one_name_stay_separate(store: Store, deliver: Delivery) -> None:
    """A4: operations without an attempt never become attempts of one another."""
    assert deliver(store, started(1), started(2), completed(1)) == [names.STORED] * 3
    assert [each["group_id"] for each in rows(store, schema.occurrences)] == [None, None]


def test_the_first_row_that_applies_decides(store: Store) -> None:
    """A6: another payload of a known id is refused as that, whatever else is wrong with it."""
    put(store, completed(1, ("g", 1)), started(2, ("g", 2)))
    verdict = put(store, completed(1, ("g", 2), operation_id="op-2"))
    assert "event id" in verdict.rejections[0].message


def test_projects_and_origins_never_meet(store: Store) -> None:
    """I2, I5: the same event ids of another project or origin are other events."""
    event = started(1, ("g", 1))
    other = started(1, ("g", 2))
    assert put(store, event).stored == 1
    assert put(store, other, project_id=2).stored == 1
    assert store.submit(batch([other], 1, names.ORIGIN_BROWSER)).result(WAIT).stored == 1
    futures = [
        store.submit(batch([event], project, origin))
        for project, origin in ((1, "server"), (2, "server"), (1, "browser"))
    ]
    assert [_code(future.result(WAIT)) for future in futures] == [
        names.DUPLICATE,
        names.CONFLICT,
        names.CONFLICT,
    ]
    assert len({each["key"] for each in rows(store, schema.runs)}) == 3


@pytest.mark.parametrize("sent", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_times_are_stored_as_sent(store: Store, sent: int) -> None:
    """Fault row 14: any sent time is kept as it is, and the same event is still a duplicate."""
    event = completed(1, ("g", 1), at=sent)
    assert one_after_the_other(store, event, event) == [names.STORED, names.DUPLICATE]
    assert one_after_the_other(store, completed(1, ("g", 1), at=sent ^ 1)) == [names.CONFLICT]
    assert schema.unwrap_time(rows(store, schema.events)[0]["sent_at"]) == sent


def test_rejections_are_kept_once_and_bounded(store: Store) -> None:
    """A6: a rejected event is kept once per digest, at most 16 for one event id."""
    put(store, completed(1, ("g", 1)))
    for _ in range(2):
        for code in range(20):
            assert put(store, completed(1, ("g", 1), code=f"E{code}")).rejections
    assert len(rows(store, schema.rejections)) == 16
    nameless = [Refused(names.INVALID, f"fault {number}") for number in (1, 2, 1)]
    assert len(put(store, *nameless).rejections) == 3
    assert len(rows(store, schema.rejections)) == 18
