"""From evidence to state, in memory (contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from flowmark_otel import names
from flowmark_otel.fold import digest, fold_span
from flowmark_otel.fold.groups import Group, groups
from flowmark_otel.fold.rows import Accepted, Conflicting, Error, error_of, result_of
from flowmark_otel.fold.state import Occurrence, occurrences, run_state
from flowmark_otel.model import Envelope, RunRef, Span, SpanEvent, Value
from tests.support.history import SECOND, ZERO, attempt, operation_of, run_of, span


def envelopes(*spans: Span) -> list[Envelope]:
    """What spans fold to; none may be refused."""
    found = [event for one in spans for event in fold_span(one)]
    assert all(isinstance(event, Envelope) for event in found)
    return [event for event in found if isinstance(event, Envelope)]


def accepted(events: Iterable[Envelope]) -> list[Accepted]:
    """Events as rows, arrived in this order."""
    return [
        Accepted(
            order,
            event.event,
            event.trace_id,
            event.span_id,
            event.part,
            event.time_unix_nano,
            ZERO + order,
            event.attributes,
            event.dropped_attributes_count,
            event.characters_replaced,
        )
        for order, event in enumerate(events, 1)
    ]


def conflicting(events: Iterable[Envelope], *, here: bool = True) -> list[Conflicting]:
    """Events as rejected rows."""
    found = []
    for order, event in enumerate(events, 1):
        number = event.attributes.get(names.ATTEMPT_NUMBER)
        found.append(
            Conflicting(
                order,
                event.event,
                event.event_id,
                "rejected",
                event.time_unix_nano,
                ZERO + order,
                digest(event),
                event.attributes,
                _text(event.attributes.get(names.OPERATION_NAME)),
                _text(event.attributes.get(names.OPERATION_ID)),
                _text(event.attributes.get(names.ATTEMPT_GROUP_ID)),
                number if isinstance(number, int) else None,
                here,
            )
        )
    return found


def _text(value: Value | None) -> str | None:
    return value if isinstance(value, str) else None


def read(
    events: Iterable[Envelope], rejected: Iterable[Envelope] = ()
) -> tuple[tuple[Occurrence, ...], tuple[Group, ...]]:
    """Occurrences and groups of accepted and rejected events."""
    refused = conflicting(rejected)
    found = occurrences(accepted(events), refused)
    return found, groups(found, refused)


def test_a_failed_try_and_the_one_that_succeeded() -> None:
    """A9: both are there with number, duration and the evidence behind them."""
    first = span(1, attempt("batch-42", 1, error__code="CRM_UNAVAILABLE"), failed=True)
    second = span(2, attempt("batch-42", 2), start=ZERO + 3 * SECOND)
    (group,) = read(envelopes(second, first))[1]
    assert [(one.number, one.status) for one in group.attempts] == [
        (1, "failed"),
        (2, "completed"),
    ]
    assert group.verdict == "after_retry"
    assert (group.gaps, group.conflicts) == ((), ())
    end = group.attempts[0].end
    assert end is not None
    assert end.event_id.endswith("0000000000000001-end")
    assert error_of(end) == Error("CRM_UNAVAILABLE", None, None)


def test_an_end_without_a_start() -> None:
    """A10: terminal evidence alone is an occurrence; its start stays unknown."""
    end = envelopes(span(1, attempt("batch-42", 1)))[1]
    ((one,), (group,)) = read([end])
    assert (one.start, one.status, one.number) == (None, "completed", 1)
    assert group.verdict == "first_try"


def test_a_start_without_an_end_is_open() -> None:
    """A11: open means that no end was recorded, however long ago the start was."""
    start = envelopes(span(1, attempt("batch-42", 2), start=1))[0]
    ((one,), (group,)) = read([start])
    assert (one.status, group.verdict, group.gaps) == ("open", "open", ((1, 1),))


def test_ordinary_occurrences_stay_apart() -> None:
    """A4: two occurrences of one name without attempt are two, and no group."""
    given = operation_of()
    found, listed = read(envelopes(span(1, given), span(2, given, failed=True)))
    assert [(one.operation_id[-1], one.status) for one in found] == [
        ("1", "completed"),
        ("2", "failed"),
    ]
    assert listed == ()


def test_a_group_belongs_to_one_operation_name() -> None:
    """A3: the same group id under another operation name is another group."""
    spans = [
        span(1, attempt("batch-42", 1)),
        span(2, attempt("batch-42", 1, operation="pull-from-crm")),
    ]
    assert [group.operation for group in read(envelopes(*spans))[1]] == [
        "push-to-crm",
        "pull-from-crm",
    ]


def test_one_try_more_than_planned() -> None:
    """A5: a number beyond the limit is true evidence and flagged."""
    ((one,), _) = read(envelopes(span(1, attempt("batch-42", 3, attempt__limit=2))))
    assert one.flags == ("beyond_limit",)


def test_what_was_lost_on_the_way_is_flagged() -> None:
    """Contract, section 1: dropped attributes and replaced characters are said, not hidden."""
    events = envelopes(
        span(1, attempt("batch-42", 1))._replace(dropped_attributes_count=2, name="x\ud800")
    )
    events[1] = events[1]._replace(characters_replaced=True)
    ((one,), _) = read(events)
    assert one.flags == ("metadata_may_be_incomplete", "characters_replaced")


def test_defaulted_keys_are_listed() -> None:
    """Contract, section 5: an attempt lists the keys that were taken from a default."""
    given: dict[str, Value] = {names.ATTEMPT_GROUP_ID: "batch-42", names.ATTEMPT_NUMBER: 1}
    ((one,), _) = read(envelopes(span(1, given)))
    assert one.defaulted == (
        names.OPERATION_ID,
        names.OPERATION_NAME,
        names.RUN_ID,
        names.WORKFLOW_NAME,
    )


def test_observed_tries_count_nothing() -> None:
    """B8: a reported try is shown in its operation, in order of arrival; it is no attempt."""
    observed = SpanEvent(
        names.ATTEMPT_OBSERVED,
        ZERO + 5,
        {names.OBSERVED_NUMBER: 1, names.OBSERVED_OUTCOME: "failed"},
    )
    one = span(1, attempt("batch-42", 1))._replace(events=[observed])
    ((found,), (group,)) = read(envelopes(one))
    assert [event.sent_at for event in found.observed] == [ZERO + 5]
    assert len(group.attempts) == 1


def test_only_observed_tries_make_no_occurrence() -> None:
    """B8: an operation of which only observed tries are known is not listed."""
    observed = SpanEvent(
        names.ATTEMPT_OBSERVED,
        ZERO,
        {names.OBSERVED_NUMBER: 1, names.OBSERVED_OUTCOME: "failed"},
    )
    events = envelopes(span(1, operation_of())._replace(events=[observed]))
    assert read(events[1:2]) == ((), ())


# -- places in conflict -------------------------------------------------------------------------


def test_a_place_named_with_two_operation_ids() -> None:
    """A6: the first record stays; its place is in conflict and decides nothing."""
    events = envelopes(span(1, attempt("batch-42", 1)))
    rejected = envelopes(span(2, attempt("batch-42", 1), failed=True))
    ((one,), (group,)) = read(events, rejected)
    assert (one.status, one.conflict) == ("completed", True)
    assert (group.conflicts, group.verdict) == ((1,), "undetermined")
    assert [record.operation_id for record in group.rejected] == ["0000000000000002"] * 2


def test_an_operation_id_named_with_other_fields_marks_both_places() -> None:
    """A6: both the accepted place and the one that the rejected event named are in conflict."""
    same = {names.OPERATION_ID: "op-1"}
    events = envelopes(span(1, {**attempt("batch-42", 1), **same}))
    rejected = envelopes(span(2, {**attempt("batch-43", 1), **same}))
    found = {group.group_id: group for group in read(events, rejected)[1]}
    assert {key: group.verdict for key, group in found.items()} == {
        "batch-42": "undetermined",
        "batch-43": "undetermined",
    }
    assert found["batch-43"].attempts == ()
    assert found["batch-43"].conflicts == (1,)


def test_a_group_known_only_from_rejected_evidence_comes_last() -> None:
    """Contract, section 5: it is listed without attempts, undetermined."""
    same = {names.OPERATION_ID: "op-1"}
    events = envelopes(span(1, {**attempt("z", 1), **same}), span(3, attempt("y", 1)))
    rejected = envelopes(span(2, {**attempt("a", 2), **same}))
    assert [(group.group_id, len(group.attempts)) for group in read(events, rejected)[1]] == [
        ("z", 1),
        ("y", 1),
        ("a", 0),
    ]


def test_one_event_with_two_digests() -> None:
    """A8: a second payload under one event id puts the place in conflict."""
    events = envelopes(span(1, attempt("batch-42", 1)))
    rejected = envelopes(span(1, attempt("batch-42", 1), failed=True))[1:]
    ((one,), (group,)) = read(events, rejected)
    assert (one.conflict, group.verdict) == (True, "undetermined")


def test_a_second_digest_that_names_another_run() -> None:
    """A8: the place of the accepted event is in conflict, and no place of the other run here."""
    events = accepted(envelopes(span(1, attempt("batch-42", 1))))
    other = envelopes(span(1, attempt("elsewhere", 7, run_id="r2")))
    rejected = conflicting(other, here=False)
    found = groups(occurrences(events, rejected), rejected)
    assert [(group.group_id, group.conflicts) for group in found] == [("batch-42", (1,))]


def test_ends_from_two_spans() -> None:
    """A6: a second end of one operation puts its place in conflict; a second start does not."""
    same = {names.OPERATION_ID: "op-1"}
    first = envelopes(span(1, {**attempt("batch-42", 1), **same}))
    second = envelopes(span(2, {**attempt("batch-42", 1), **same}, failed=True))
    assert read([*first, second[0]])[1][0].verdict == "first_try"
    assert read([*first, second[0]], second[1:])[1][0].verdict == "undetermined"


def test_a_conflict_below_the_highest_number_decides_nothing() -> None:
    """Contract, section 5: the verdict is that of the highest known number."""
    events = envelopes(span(1, attempt("batch-42", 1)), span(2, attempt("batch-42", 2)))
    rejected = envelopes(span(3, attempt("batch-42", 1)))
    (group,) = read(events, rejected)[1]
    assert (group.conflicts, group.verdict) == ((1,), "after_retry")


def test_a_number_known_from_rejected_evidence_is_no_gap() -> None:
    """A10: a place in conflict is known: it is marked, and nothing is missing there."""
    same = {names.OPERATION_ID: "op-1"}
    events = envelopes(span(1, {**attempt("batch-42", 1), **same}), span(3, attempt("batch-42", 3)))
    rejected = envelopes(span(2, {**attempt("batch-42", 2), **same}))
    (group,) = read(events, rejected)[1]
    assert (group.gaps, group.conflicts) == ((), (1, 2))


# -- runs ---------------------------------------------------------------------------------------


def test_a_run_nobody_recorded() -> None:
    """A11: known only through its operations a run is neither open nor failed."""
    state = run_state(accepted(envelopes(span(1, attempt("batch-42", 1)))))
    assert (state.status, state.started_at, state.end) == ("unknown", None, None)


def test_a_run_with_its_end_alone() -> None:
    """A10: the start fields are the end's while there is no start; its start is unknown."""
    events = accepted(envelopes(span(1, run_of(retry_of=("crm.sync", "r0"))))[1:])
    state = run_state(events)
    assert (state.status, state.started_at) == ("completed", None)
    assert state.retry_of == RunRef("crm.sync", "r0")
    assert state.flags == ()


def test_a_continued_run_keeps_its_first_start() -> None:
    """A14: start fields are those of the first accepted start; what differs is flagged."""
    first = span(1, run_of(retry_of=("crm.sync", "r0")))
    second = span(2, run_of(outcome="partial"), start=ZERO + SECOND, failed=True)
    state = run_state(accepted(envelopes(first, second)))
    assert state.retry_of == RunRef("crm.sync", "r0")
    assert state.flags == ("metadata_differs",)
    assert state.started_at == ZERO
    assert state.status == "failed"
    assert len(state.ends) == 2


def test_the_first_start_wins_over_an_earlier_end() -> None:
    """A14: an end that came before any start lends its fields only until then."""
    ended = envelopes(span(1, run_of(retry_of=("crm.sync", "r0"))))[1]
    started = envelopes(span(2, run_of(correlation__id="c-1")))[0]
    state = run_state(accepted([ended, started]))
    assert (state.retry_of, state.correlation_id) == (None, "c-1")
    assert state.flags == ("metadata_differs",)


@pytest.mark.parametrize("earlier", [0, 1, ZERO])
def test_the_latest_end_by_sent_time_speaks(earlier: int) -> None:
    """A15: sent times decide as unsigned 64-bit numbers, arrival does not."""
    late = span(1, run_of(outcome="late"), start=1, end=2**63 + 5)
    early = span(2, run_of(outcome="early"), start=earlier, end=earlier)
    for order in ([late, early], [early, late]):
        end = run_state(accepted(envelopes(*order))).end
        assert end is not None
        assert end.attributes[names.RUN_OUTCOME] == "late"


def test_ends_of_one_time_are_told_apart_by_event_id() -> None:
    """A15: of two ends with one sent time the greater event id speaks."""
    spans = [span(2, run_of(outcome="two")), span(1, run_of(outcome="one"))]
    for order in (spans, spans[::-1]):
        end = run_state(accepted(envelopes(*order))).end
        assert end is not None
        assert end.attributes[names.RUN_OUTCOME] == "two"


def test_a_zero_time_is_unknown() -> None:
    """A10: a start at zero has no time, and no duration is made up."""
    state = run_state(accepted(envelopes(span(1, run_of(), start=0, end=ZERO))))
    assert state.started_at is None
    assert state.end is not None
    assert names.DURATION_NS not in state.end.attributes


def test_results_are_reported_items() -> None:
    """A16: the result is what the run reported, by key."""
    state = run_state(accepted(envelopes(span(1, run_of(run__result__imported=3)))))
    assert state.end is not None
    assert result_of(state.end) == {"imported": 3}


def test_legacy_references_are_kept() -> None:
    """A19: parent run id and correlation id are start fields of the run."""
    given = run_of(parent_run__id="p-1", correlation__id="c-1")
    state = run_state(accepted(envelopes(span(1, given))))
    assert (state.parent_run_id, state.correlation_id, state.retry_of) == ("p-1", "c-1", None)
