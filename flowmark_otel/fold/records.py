"""A LogRecord that arrived → its envelope (contract, sections 2 and 4).

The receiver never trusts the sender's fold: every rule is checked again, redaction is applied
again, the event id is computed from the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.fold.observed import observed_part, observed_values
from flowmark_otel.fold.redact import clean_error_type, redacted
from flowmark_otel.model import Envelope, LogRecord, Refused, Value, event_id
from flowmark_otel.validate import (
    ATTEMPT_PAIR,
    CARRIED_BY,
    DURATION_CHECK,
    RETRY_OF_PAIR,
    SELF_REFERENCE,
    BrokenRule,
    Scope,
    check_value,
    half_pair,
    ids_fault,
    rule_of,
    self_reference,
    shown_key,
    too_many_results,
)


class _Kind(NamedTuple):
    """What the events of one name carry."""

    scopes: frozenset[Scope]
    required: tuple[str, ...]
    is_end: bool


_OF_RUN: Final = names.IDENTITY_KEYS
_OF_OP: Final = (*names.IDENTITY_KEYS, names.OPERATION_NAME, names.OPERATION_ID)

_ENDS: Final = (names.PART_RUN_END, names.PART_OPERATION_END)
_RUNS: Final = (names.PART_RUN_START, names.PART_RUN_END)

_KINDS: Final[dict[str, _Kind]] = {
    event: _Kind(CARRIED_BY[part], _OF_RUN if part in _RUNS else _OF_OP, is_end=part in _ENDS)
    for event, part in names.PART_OF_EVENT.items()
}
_KINDS[names.ATTEMPT_OBSERVED] = _KINDS[names.OPERATION_STARTED]

_CAN_BE_DEFAULTED: Final = frozenset((*_OF_OP, names.ERROR_CODE))


def fold_log(record: LogRecord) -> Envelope | Refused | None:
    """The envelope that a log record is; None if it is none of ours."""
    attributes = record.attributes
    name = record.event_name
    repeated = attributes.get(names.EVENT_NAME)
    event = name if name in _KINDS else repeated
    if not isinstance(event, str) or event not in _KINDS:
        return None
    fault = ids_fault(record.trace_id, record.span_id)
    if fault:
        return Refused(names.INVALID, fault)
    values, faults = _values(event, attributes)
    if name and repeated is not None and name != repeated:
        faults.insert(0, f"{names.EVENT_NAME} differs from the record's event name; set both alike")
    if event == names.ATTEMPT_OBSERVED:
        own = observed_values(attributes)
        values.update(own.values)
        replaced = own.replaced
        if own.faults:
            return Refused(names.INVALID, "; ".join([*faults, own.faults]))
        part = observed_part(record.time_unix_nano, values)
    else:
        part = names.PART_OF_EVENT[event]
        carried = values.get(names.ERROR_TYPE) is not None
        replaced = carried and clean_error_type(attributes.get(names.ERROR_TYPE))[1]
    own_id = event_id(record.trace_id, record.span_id, part)
    given_id = attributes.get(names.EVENT_ID)
    if given_id is not None and given_id != own_id:
        faults.append(f"{names.EVENT_ID} does not fit the record; it would be {own_id}")
    if faults:
        return Refused(names.INVALID, "; ".join(faults), own_id)
    return Envelope(
        event,
        record.trace_id,
        record.span_id,
        part,
        record.time_unix_nano,
        values,
        record.dropped_attributes_count,
        replaced,
    )


def _values(event: str, given: Mapping[str, object]) -> tuple[dict[str, Value], list[str]]:
    """The values an event of this name carries, and the broken rules, by key."""
    kind = _KINDS[event]
    values: dict[str, Value] = {}
    broken: dict[str, str] = {}
    for key, value in given.items():
        if value is None or not key.startswith(names.PREFIX):
            continue
        rule = rule_of(key)
        if rule is None or rule.scope not in kind.scopes:
            continue
        if event == names.ATTEMPT_OBSERVED and key.startswith(names.ATTEMPT_PREFIX):
            continue
        try:
            values[key] = check_value(key, rule, value)
        except BrokenRule as fault:
            broken[key] = str(fault)
    for key in kind.required:
        if key not in values and key not in broken:
            broken[key] = "is missing; an envelope always carries it"
    _check_pairs(values, broken)
    if self_reference(values):
        broken[names.RETRY_OF_RUN_ID] = SELF_REFERENCE
    if Scope.RUN_END in kind.scopes:
        broken.update(too_many_results(given.keys()))
    if kind.is_end:
        _end_values(given, values, broken)
    _defaulted(given, values, broken)
    _redact(values)
    return values, [f"{shown_key(key)} {broken[key]}" for key in sorted(broken)]


def _check_pairs(values: dict[str, Value], broken: dict[str, str]) -> None:
    carried = values.keys() | broken.keys()
    for pair in (ATTEMPT_PAIR, RETRY_OF_PAIR):
        for key, fault in half_pair(pair, carried).items():
            broken.setdefault(key, fault)


def _end_values(
    given: Mapping[str, object], values: dict[str, Value], broken: dict[str, str]
) -> None:
    """What only ends carry beside the keys of section 1."""
    duration = given.get(names.DURATION_NS)
    if duration is not None:
        try:
            values[names.DURATION_NS] = DURATION_CHECK(duration)
        except BrokenRule as fault:
            broken[names.DURATION_NS] = str(fault)
    error_type, _ = clean_error_type(given.get(names.ERROR_TYPE))
    if error_type:
        values[names.ERROR_TYPE] = error_type


def _defaulted(
    given: Mapping[str, object], values: dict[str, Value], broken: dict[str, str]
) -> None:
    """Only what can come from a default may claim to: it is left out of the digest."""
    defaulted = given.get(names.DEFAULTED)
    if defaulted is None or defaulted == "":
        return
    if not isinstance(defaulted, str):
        broken[names.DEFAULTED] = "is no string; set keys joined by commas"
        return
    keys = sorted(set(defaulted.split(",")))
    wrong = [key for key in keys if key not in _CAN_BE_DEFAULTED]
    if wrong:
        broken[names.DEFAULTED] = f"names {wrong[0][:40]!r}, which has no default"
        return
    keys = [key for key in keys if key in values]
    if keys:
        values[names.DEFAULTED] = ",".join(keys)


def _redact(values: dict[str, Value]) -> None:
    """Redaction on arrival: idempotent, so a sender that redacted sees its digest again."""
    for key, value in values.items():
        values[key] = redacted(key, value)
