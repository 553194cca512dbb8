"""Tries that an outside system made on its own, reported from inside an attempt (B8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import flowmark_otel as flowmark
from flowmark_otel import Attempt, ObservedAttempt, names
from tests.support.recorders import SECOND, START, Recorder, recorder

TOLD = ("operation.started", "attempt.observed", "operation.completed")


@pytest.fixture(params=["captured", "none"])
def made(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """A client with our processor, and one without any SDK."""
    with recorder(request.param) as found:
        yield found


def report(handle: flowmark.AttemptHandle, **changes: object) -> None:
    """A report that is right but for the changes."""
    given: Any = {
        "number": 2,
        "outcome": "failed",
        "started_at": START,
        "ended_at": START + SECOND,
        **changes,
    }
    handle.report(**given)


def test_a_reported_try(made: Recorder) -> None:
    """B8: it becomes an observed record beside the attempt, with the type of its error alone."""
    error = ConnectionError("Bearer abcdefghijklmnop was refused")
    with flowmark.workflow("w", run_id="r").operation("o", attempt=Attempt("g", 1)):
        report(flowmark.current_attempt(), series="s", system="crm", error=error)
    assert tuple(made.sink.told()[1:]) == TOLD
    observed = made.sink.envelopes[2]
    assert observed.time_unix_nano == START + SECOND
    said = {key: value for key, value in observed.attributes.items() if "observed" in key}
    assert said == {
        names.OBSERVED_NUMBER: 2,
        names.OBSERVED_OUTCOME: "failed",
        names.OBSERVED_DURATION_NS: SECOND,
        names.OBSERVED_SERIES: "s",
        names.OBSERVED_SYSTEM: "crm",
    }
    assert observed.attributes[names.ERROR_TYPE] == "ConnectionError"
    assert "refused" not in str(observed)
    assert made.reported == [
        ObservedAttempt(
            "w",
            "r",
            "o",
            2,
            "failed",
            START,
            START + SECOND,
            "s",
            "crm",
            "ConnectionError",
            f"{names.REDACTED} was refused",
        )
    ]


def test_a_late_report(made: Recorder) -> None:
    """B8: a report after the end is dropped, named, and no hook hears of it."""
    with flowmark.workflow("w").operation("o") as operation:
        handle = operation.attempt
    report(handle)
    assert "attempt.observed" not in made.sink.told()
    assert made.sink.codes() == [names.DIAGNOSTIC_LATE_REPORT]
    assert made.reported == []


def test_a_report_outside_of_an_operation(made: Recorder) -> None:
    """B1: the default handle is not recorded, and a report to it says so."""
    report(flowmark.current_attempt())
    assert made.sink.codes() == [names.DIAGNOSTIC_NOT_RECORDED]
    assert made.sink.envelopes == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", 0),
        ("number", "2"),
        ("outcome", "ok"),
        ("started_at", -1),
        ("started_at", None),
        ("ended_at", 1.5),
        ("ended_at", START - 1),
        ("series", ""),
        ("system", 7),
        ("error", "ConnectionError"),
    ],
)
def test_a_malformed_report(made: Recorder, field: str, value: object) -> None:
    """B8: a malformed report raises TypeError naming the field, and nothing is recorded of it."""
    with (
        flowmark.workflow("w").operation("o", attempt=Attempt("g", 1)) as operation,
        pytest.raises(TypeError, match=f"^{field} "),
    ):
        report(operation.attempt, **{field: value})
    assert "attempt.observed" not in made.sink.told()
    assert made.reported == []


def test_a_hook_that_raises(made: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """B8: the hook never changes control flow; what it raises is reported."""

    def raising(_: ObservedAttempt) -> None:
        raise LookupError

    monkeypatch.setattr(Recorder, "on_attempt", property(lambda _: raising))
    with flowmark.workflow("w").operation("o"):
        report(flowmark.current_attempt())
    assert "attempt.observed" in made.sink.told()
    assert made.sink.codes() == [names.DIAGNOSTIC_CALLBACK_FAILED]
