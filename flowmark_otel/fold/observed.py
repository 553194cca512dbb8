"""Tries that an outside system made on its own, reported as span events (B8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowmark_otel import names
from flowmark_otel.fold.redact import redact_text
from flowmark_otel.model import MAX_CODE, Envelope, Refused, Span, SpanEvent, Value
from flowmark_otel.validate import OBSERVED_RULES, BrokenRule, clean_default

_REQUIRED = (names.OBSERVED_NUMBER, names.OBSERVED_OUTCOME)


def fold_observed(
    span: Span, base: dict[str, Value], identity_faults: str
) -> Iterator[Envelope | Refused]:
    """One envelope for each reported try; ``base`` is the identity of the operation.

    They carry no group and no occurrence of their own.
    """
    for event in span.events:
        if event.name != names.ATTEMPT_OBSERVED:
            continue
        if identity_faults:
            yield Refused(names.INVALID, identity_faults)
            continue
        yield _fold_one(span, event, base)


def _fold_one(span: Span, event: SpanEvent, base: dict[str, Value]) -> Envelope | Refused:
    own, faults = observed_values(event.attributes)
    if faults:
        return Refused(names.INVALID, faults)
    attributes = {**base, **own}
    return Envelope(
        names.ATTEMPT_OBSERVED,
        span.trace_id,
        span.span_id,
        observed_part(event.time_unix_nano, attributes),
        event.time_unix_nano,
        attributes,
        span.dropped_attributes_count,
    )


def observed_values(given: Mapping[str, object]) -> tuple[dict[str, Value], str]:
    """What an observed try carries of its own, and the faults of it, joined."""
    values: dict[str, Value] = {}
    faults: list[str] = []
    for key, check in OBSERVED_RULES.items():
        value = given.get(key)
        if value is None:
            if key in _REQUIRED:
                faults.append(f"{key} is missing; set it")
            continue
        try:
            values[key] = check(value)
        except BrokenRule as fault:
            faults.append(f"{key} {fault}")
    error_type = given.get(names.ERROR_TYPE)
    if isinstance(error_type, str) and error_type and not error_type.isspace():
        values[names.ERROR_TYPE] = clean_default(redact_text(error_type), MAX_CODE)[0]
    return values, "; ".join(faults)


def observed_part(time_unix_nano: int, attributes: dict[str, Value]) -> str:
    """The part of an observed try's event id: its time, series (else system) and number."""
    series = attributes.get(names.OBSERVED_SERIES) or attributes.get(names.OBSERVED_SYSTEM)
    number = attributes[names.OBSERVED_NUMBER]
    return f"{names.PART_OBSERVED_PREFIX}{time_unix_nano}-{series or 'observed'}-{number}"
