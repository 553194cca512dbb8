"""How values of other conventions are read, and what a mapping is not applied to (section 8)."""

from __future__ import annotations

import pytest

from flowmark_otel import names
from flowmark_otel.config import ServeOptions, client_options, resolve
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.fold import fold_signals, fold_span
from flowmark_otel.model import Envelope, Span
from flowmark_otel.signals import (
    ANY,
    ATTEMPTS,
    NO_SIGNALS,
    OTHERS,
    SAFE,
    Attempt,
    NoAttempt,
    attempt_of,
    read,
    signals_of,
)

TASK = {
    "celery.action": "run",
    "celery.state": "RETRY",
    "celery.task_name": "t.fetch",
    "messaging.message.id": "task-1",
}


def span(attributes: dict[str, object], name: str = "run/t.fetch", *, failed: bool = False) -> Span:
    """A finished span."""
    return Span(b"t" * 16, b"s" * 8, name, 1, 2, failed, attributes, "tasks")


def celery(**changes: object) -> Span:
    """The span of a task; underlines stand for the first dot, None takes a key away."""
    given = {key.replace("_", ".", 1): value for key, value in changes.items()}
    return span({**TASK, **given})


@pytest.mark.parametrize("count", [1, 1.0, "1", ["1"], (1,), [1.0]])
def test_a_count_may_be_a_string_a_list_or_a_double(count: object) -> None:
    """Section 8: numbers come as strings, lists of one and integral doubles; all are read."""
    found = attempt_of(celery(celery_retries=count), ANY)
    assert found == Attempt("celery", "task-1", 2, None, "t.fetch", failed=True)


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (True, "is the bool true"),
        (1.5, "is the double 1.5"),
        (float("nan"), "is the double nan"),
        (-1, "is the integer -1"),
        ("", "is the string ''"),
        ("two", "is the string 'two'"),
        ("\u0661", "is the string"),
        ([1, 2], "is a list"),
        ([], "is a list"),
        ({}, "is a map"),
        (b"1", "is bytes"),
        (2**53, "is the integer 9007199254740993; set an integer from 1 to 2^53-1"),
    ],
    ids=repr,
)
def test_any_other_count_is_refused_with_its_reason(count: object, says: str) -> None:
    """A5: what is no count is never rounded, shifted or guessed: no attempt, and it says why."""
    subject = celery(celery_retries=count)
    assert attempt_of(subject, ANY) is None
    assert fold_signals(subject, ANY) == []
    found = read(subject, ATTEMPTS[0])
    assert isinstance(found, NoAttempt)
    assert "celery.retries" in found.says
    assert says in found.says


def test_an_empty_value_counts_as_absent() -> None:
    """Section 1: an attribute without a value is none: so it is the first try."""
    found = attempt_of(celery(celery_retries=None), ANY)
    assert found is not None
    assert found.number == 1


@pytest.mark.parametrize("group", [None, "", "  ", 7, "g" * 129, "a\0b", "\ud800", ["a", "b"]])
def test_without_a_group_there_is_no_attempt(group: object) -> None:
    """Section 8: a mapping never guesses a group id: absent, blank, too long, no text."""
    attributes = {**TASK, "messaging.message.id": group}
    assert fold_signals(span(attributes), ANY) == []
    assert isinstance(read(span(attributes), ATTEMPTS[0]), NoAttempt)


@pytest.mark.parametrize(("state", "ends"), [("RETRY", 1), ("SUCCESS", 1), ("REVOKED", 0), (7, 0)])
def test_what_does_not_say_how_it_ended_has_no_end(state: object, ends: int) -> None:
    """A11: an outcome that no attribute names stays unknown: the try reads as open."""
    events = fold_signals(celery(celery_state=state), ANY)
    assert [each.part for each in events if isinstance(each, Envelope)] == [
        names.PART_OPERATION_START,
        names.PART_OPERATION_END,
    ][: 1 + ends]


def test_status_error_has_failed_whatever_is_named() -> None:
    """Section 1: a span of status ERROR failed."""
    events = fold_signals(span({**TASK, "celery.state": "SUCCESS"}, failed=True), ANY)
    assert isinstance(events[-1], Envelope)
    assert events[-1].event == names.OPERATION_FAILED


@pytest.mark.parametrize(
    "own",
    [
        {names.OPERATION_NAME: "mine"},
        {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 7},
        {names.ATTEMPT_NUMBER: 7},
        {names.RUN_OUTCOME: "complete"},
        {names.RECORD_TYPE: names.RECORD_RUN},
        {names.RECORD_TYPE: "nonsense"},
    ],
    ids=lambda own: next(iter(own)),
)
def test_records_of_their_own_keys_are_left_alone(own: dict[str, object]) -> None:
    """Contract 1: what is a run or operation by its own keys, well or badly, is only that."""
    assert fold_span(span({**TASK, **own}))


def test_identity_and_error_keys_count_as_on_any_other_span() -> None:
    """Contract 1: identity stamped on the span is the attempt's; error keys go to its end."""
    own: dict[str, object] = {
        names.WORKFLOW_NAME: "w",
        names.RUN_ID: "r",
        names.ERROR_CODE: "LATE",
        "error.type": "TimeoutError",
    }
    subject = span({**TASK, **own})
    assert fold_span(subject) == []
    start, end = fold_signals(subject, ANY)
    assert isinstance(start, Envelope)
    assert isinstance(end, Envelope)
    assert start.attributes[names.WORKFLOW_NAME] == end.attributes[names.WORKFLOW_NAME] == "w"
    assert start.attributes[names.RUN_ID] == "r"
    assert end.attributes[names.ERROR_CODE] == "LATE"
    assert end.attributes["error.type"] == "TimeoutError"
    assert end.attributes[names.DEFAULTED] == names.OPERATION_ID


def test_ids_that_name_no_event_make_none() -> None:
    """Section 2: of a span without valid ids a mapping makes nothing; nobody asked for it."""
    assert fold_signals(celery()._replace(trace_id=bytes(16)), ANY) == []


@pytest.mark.parametrize(
    ("given", "read_by"),
    [
        ("safe", SAFE),
        ("none", ()),
        ("celery", ("celery",)),
        ("safe, azure_core", (*SAFE, "azure_core")),
    ],
)
def test_the_setting_names_conventions(given: str, read_by: tuple[str, ...]) -> None:
    """Section 8: FLOWMARK_SIGNALS is a comma list, none or safe, the default, for both halves."""
    environ = {"FLOWMARK_SIGNALS": given}
    client, faults = client_options({}, environ)
    assert not faults
    served = resolve(ServeOptions, {}, environ)
    assert client.signals == served.signals
    found = [row.name for row in signals_of(client.signals).conventions]
    assert sorted(found) == sorted(read_by)
    assert client_options({}, {})[0].signals == ServeOptions().signals == ("safe",)


@pytest.mark.parametrize("given", ["celary", "safe,none", "none,celery", "http_resend"])
def test_a_name_that_is_none_is_a_fault_that_says_which_there_are(given: str) -> None:
    """Section 6: a wrong name is named, with those that exist."""
    _, [fault] = client_options({}, {"FLOWMARK_SIGNALS": given})
    assert "FLOWMARK_SIGNALS: " in fault
    assert "azure_core" in fault
    with pytest.raises(ConfigurationError, match="FLOWMARK_SIGNALS: can be none alone"):
        resolve(ServeOptions, {}, {"FLOWMARK_SIGNALS": given})


def test_the_own_variable_of_serve_goes_before_the_shared_one() -> None:
    """Section 7: argument, then FLOWMARK_SERVE_SIGNALS, then FLOWMARK_SIGNALS."""
    environ = {"FLOWMARK_SIGNALS": "none", "FLOWMARK_SERVE_SIGNALS": "celery"}
    assert resolve(ServeOptions, {}, environ).signals == ("celery",)
    assert resolve(ServeOptions, {"signals": "safe"}, environ).signals == ("safe",)


def test_safe_is_what_has_no_doubt() -> None:
    """Section 8: safe is exactly the mappings whose group and number are facts."""
    assert SAFE == ("celery", "remoulade", "aws_headers")
    assert {row.name for row in ATTEMPTS if row.doubt} == set(names.SIGNAL_NAMES) - set(SAFE)
    assert all(row.group and row.outcome and not row.never for row in ATTEMPTS)
    assert all(row.never for row in OTHERS)
    assert tuple(sorted(names.SIGNAL_NAMES)) == tuple(sorted(row.name for row in ATTEMPTS))
    assert signals_of(()) is NO_SIGNALS
