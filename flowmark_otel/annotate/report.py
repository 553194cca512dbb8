"""Tries that an outside system made on its own, reported from inside an attempt (B8)."""

from __future__ import annotations

from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.annotate.options import plain, type_name
from flowmark_otel.model import ObservedAttempt, Value
from flowmark_otel.validate import OBSERVED_RULES, BrokenRule
from flowmark_otel.validate.rules import found, nanoseconds
from flowmark_otel.validate.secrets import redact_text

_MAX_MESSAGE: Final = 1024


class Place(NamedTuple):
    """The operation that a try is reported in."""

    workflow: str
    run_id: str
    operation: str


class Reported(NamedTuple):
    """A report as it is recorded: the span event's time and attributes, and what hooks are told."""

    time_unix_nano: int
    attributes: dict[str, Value]
    observed: ObservedAttempt


def read_report(  # noqa: PLR0913 - the fields of the contract, each by name
    place: Place,
    *,
    number: object,
    outcome: object,
    started_at: object,
    ended_at: object,
    series: object,
    system: object,
    error: object,
) -> Reported:
    """Check a report; raises TypeError naming the first field that is wrong."""
    started, ended = _time("started_at", started_at), _time("ended_at", ended_at)
    if ended < started:
        msg = f"ended_at is before started_at, by {started - ended} ns"
        raise TypeError(msg)
    if error is not None and not isinstance(error, BaseException):
        msg = f"error {found(error)}; set an exception or None"
        raise TypeError(msg)
    attributes: dict[str, Value] = {names.OBSERVED_DURATION_NS: ended - started}
    for field, key, value in (
        ("number", names.OBSERVED_NUMBER, number),
        ("outcome", names.OBSERVED_OUTCOME, outcome),
        ("series", names.OBSERVED_SERIES, series),
        ("system", names.OBSERVED_SYSTEM, system),
    ):
        if value is None and field in {"series", "system"}:
            continue
        try:
            attributes[key] = OBSERVED_RULES[key](plain(value))
        except BrokenRule as fault:
            msg = f"{field} {fault}"
            raise TypeError(msg) from None
    if error is not None:
        attributes[names.ERROR_TYPE] = type_name(type(error))
    observed = ObservedAttempt(
        *place,
        number=int(attributes[names.OBSERVED_NUMBER]),
        outcome=str(attributes[names.OBSERVED_OUTCOME]),
        started_at=started,
        ended_at=ended,
        series=None if series is None else str(attributes[names.OBSERVED_SERIES]),
        system=None if system is None else str(attributes[names.OBSERVED_SYSTEM]),
        error_type=None if error is None else type_name(type(error)),
        error_message=None if error is None else _message(error),
    )
    return Reported(ended, attributes, observed)


def _time(field: str, value: object) -> int:
    try:
        return int(nanoseconds(plain(value)))
    except BrokenRule as fault:
        msg = f"{field} {fault}, epoch nanoseconds"
        raise TypeError(msg) from None


def _message(error: BaseException) -> str:
    try:
        return redact_text(str(error))[:_MAX_MESSAGE]
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is
        return ""
