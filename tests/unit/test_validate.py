"""Section 1 of the contract: which attributes are taken, and what a refusal says."""

from __future__ import annotations

import pytest

from flowmark_otel import names
from flowmark_otel.model import MAX_NUMBER, Misshapen, Span
from flowmark_otel.validate import Evidence, clean_default, evidence_of, unknown_keys

GROUP, NUMBER = names.ATTEMPT_GROUP_ID, names.ATTEMPT_NUMBER


def read(attributes: dict[str, object], **fields: object) -> Evidence | None:
    """The evidence of a span with these attributes."""
    span = Span(b"\1" * 16, b"\2" * 8, "op", 1, 2, failed=False, attributes=attributes)
    return evidence_of(span._replace(**fields))  # type: ignore[arg-type]


def evidence(attributes: dict[str, object]) -> Evidence:
    """As ``read``, of a span that is annotated."""
    found = read(attributes)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("2", "is the string '2'; set an integer"),
        (True, "is the bool true; set an integer"),
        (2.5, "is the double 2.5; set an integer"),
        (float("nan"), "is the double nan; set an integer"),
        (float("inf"), "is the double inf; set an integer"),
        (0, "is the integer 0; set an integer from 1"),
        (-1, "is the integer -1; set an integer from 1"),
        (2**53, f"is the integer {2**53}; set an integer from 1 to 2^53-1"),
        (float(2**53), "set an integer from 1 to 2^53-1"),
        (2**63, "is the integer"),
        (10**30, "is an integer beyond 64 bits"),
        (b"2", "is bytes"),
        ([2], "is a list"),
        ({"a": 2}, "is a map"),
        (Misshapen("intValue"), "is a intValue of a wrong shape"),
    ],
)
def test_number_refused(value: object, says: str) -> None:
    """A5: a number that is no integer from 1 to 2^53-1 is refused, naming what was found."""
    assert says in evidence({GROUP: "g", NUMBER: value}).broken[NUMBER]


@pytest.mark.parametrize("value", [1, 2.0, MAX_NUMBER, float(MAX_NUMBER)])
def test_number_taken(value: float) -> None:
    """A5: integers and integral doubles are taken, as integers."""
    number = evidence({GROUP: "g", NUMBER: value}).values[NUMBER]
    assert number == int(value)
    assert type(number) is int


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "is blank"),
        (" \t\u2003", "is blank"),
        ("g" * 129, "has 129 characters; set at most 128"),
        (5, "is the integer 5; set a string"),
        ("a\0b", "has a NUL character"),
        ("a\ud800", "has a lone surrogate"),
        ("a\udcff", "invalid UTF-8"),
    ],
)
def test_group_id_refused(value: object, says: str) -> None:
    """A5: a blank, long or misencoded group id is refused with its rule."""
    assert says in evidence({GROUP: value, NUMBER: 1}).broken[GROUP]


@pytest.mark.parametrize("value", [" g ", "g" * 128, "\U0001f501" * 128])
def test_group_id_kept_as_given(value: str) -> None:
    """A5: lengths count code points, and nothing is trimmed."""
    assert evidence({GROUP: value, NUMBER: 1}).values[GROUP] == value


@pytest.mark.parametrize(
    ("attributes", "key"),
    [
        ({GROUP: "g"}, GROUP),
        ({NUMBER: 1}, NUMBER),
        ({names.RETRY_OF_RUN_ID: "r"}, names.RETRY_OF_RUN_ID),
        ({names.RETRY_OF_WORKFLOW_NAME: "w"}, names.RETRY_OF_WORKFLOW_NAME),
        ({GROUP: "g", NUMBER: None}, GROUP),
    ],
)
def test_half_a_pair_is_not_silent(attributes: dict[str, object], key: str) -> None:
    """A5, A12: half a pair makes the record and breaks its key; an empty value counts as absent."""
    assert "set both" in evidence(attributes).broken[key]


@pytest.mark.parametrize(
    ("attributes", "kinds"),
    [
        ({}, None),
        ({names.WORKFLOW_NAME: "w", names.RUN_ID: "r"}, None),
        ({names.PARENT_RUN_ID: "p", names.CORRELATION_ID: "c"}, None),
        ({names.ERROR_CODE: "E", names.ERROR_RETRYABLE: True}, None),
        ({"flowmark.attempt.mood": "good", "flowmark.x": 1}, None),
        ({GROUP: None, names.RUN_OUTCOME: None}, None),
        ({GROUP: "g", NUMBER: 1}, (False, True, False)),
        ({names.OPERATION_NAME: "o"}, (False, True, False)),
        ({names.ATTEMPT_TIME_READ: True}, (False, True, False)),
        (
            {names.RETRY_OF_RUN_ID: "r", names.RETRY_OF_WORKFLOW_NAME: "w"},
            (True, False, False),
        ),
        ({names.RUN_OUTCOME: "complete"}, (True, False, True)),
        ({names.RUN_RESULT_PREFIX + "n": 1}, (True, False, True)),
        ({names.RUN_OUTCOME: "x", NUMBER: 1, GROUP: "g"}, (True, True, True)),
        ({names.RECORD_TYPE: "run"}, (True, False, True)),
        ({names.RECORD_TYPE: "operation"}, (False, True, False)),
        ({names.RECORD_TYPE: "run", GROUP: 5}, (True, False, True)),
        ({names.RECORD_TYPE: "operation", names.RUN_OUTCOME: "x"}, (False, True, False)),
    ],
)
def test_what_a_span_is(
    attributes: dict[str, object], kinds: tuple[bool, bool, bool] | None
) -> None:
    """D4: the keys alone settle whether a span is a run, an operation, both or nothing."""
    found = read(attributes)
    assert (found and found[:3]) == kinds


@pytest.mark.parametrize(
    ("attributes", "fields", "says"),
    [
        ({names.RECORD_TYPE: "job"}, {}, "flowmark.record.type is the string 'job'"),
        ({NUMBER: 1}, {"trace_id": bytes(16)}, "trace id is all zero"),
        ({NUMBER: 1}, {"span_id": bytes(8)}, "span id is all zero"),
        ({NUMBER: 1}, {"trace_id": b"\1" * 15}, "trace id has 15 bytes; set 16"),
    ],
)
def test_a_span_that_names_no_event(
    attributes: dict[str, object], fields: dict[str, object], says: str
) -> None:
    """Contract, section 1: bad ids or a bad record type make the span one refused event."""
    found = read(attributes, **fields)
    assert found is not None
    assert says in found.unusable


@pytest.mark.parametrize(
    ("key", "value", "broken"),
    [
        ("n", 1, False),
        ("a.b_c9", True, False),
        ("a" * 64, 1.5, False),
        ("a" * 65, 1, True),
        ("Upper", 1, True),
        ("9n", 1, True),
        ("n.", 1, True),
        ("", 1, True),
        ("n", "x" * 1024, False),
        ("n", "x" * 1025, True),
        ("n", "", False),
        ("n", float("nan"), True),
        ("n", float("-inf"), True),
        ("n", 2**63, True),
        ("n", [1], True),
    ],
)
def test_results(key: str, value: object, broken: bool) -> None:  # noqa: FBT001  a table's column
    """Contract, section 1: the rule of result keys and values."""
    found = evidence({names.RUN_RESULT_PREFIX + key: value})
    assert bool(found.broken) is broken


def test_sixty_five_results() -> None:
    """Contract, section 1: a run reports at most 64 results."""
    results: dict[str, object] = {f"{names.RUN_RESULT_PREFIX}k{n}": n for n in range(64)}
    assert not evidence(results).broken
    results[names.RUN_RESULT_PREFIX + "one_more"] = 1
    assert "are 65; set at most 64" in str(evidence(results).broken)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("svc", ("svc", False)),
        ("", ("unknown", False)),
        ("  ", ("unknown", False)),
        ("x" * 201, ("x" * 200, False)),
        ("a\0b\ud800", ("a\ufffdb\ufffd", True)),
    ],
)
def test_defaults_never_refuse(value: str, kept: tuple[str, bool]) -> None:
    """Contract, section 1: a default is cut, replaced or named unknown, never refused."""
    assert clean_default(value) == kept


def test_unknown_keys_are_named() -> None:
    """E5: a key that no table has is named, also one letter off."""
    given: dict[str, object] = {"flowmark.attempt.groupid": 1, GROUP: "g", "http.url": ""}
    assert unknown_keys(given) == ["flowmark.attempt.groupid"]
