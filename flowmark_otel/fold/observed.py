"""Tries that an outside system made on its own, reported as span events (B8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flowmark_otel import names
from flowmark_otel.fold.redact import clean_error_type
from flowmark_otel.model import Envelope, Refused, Span, SpanEvent, Value
from flowmark_otel.validate import OBSERVED_RULES, BrokenRule

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
    own = observed_values(event.attributes)
    if own.faults:
        return Refused(names.INVALID, own.faults)
    attributes = {**base, **own.values}
    return Envelope(
        names.ATTEMPT_OBSERVED,
        span.trace_id,
        span.span_id,
        observed_part(event.time_unix_nano, attributes),
        event.time_unix_nano,
        attributes,
        span.dropped_attributes_count,
        own.replaced,
    )


class Observed(NamedTuple):
    """What an observed try carries of its own; its faults, joined; were characters replaced."""

    values: dict[str, Value]
    faults: str
    replaced: bool


def observed_values(given: Mapping[str, object]) -> Observed:
    """Read the attributes of an observed try."""
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
    error_type, replaced = clean_error_type(given.get(names.ERROR_TYPE))
    if error_type:
        values[names.ERROR_TYPE] = error_type
    return Observed(values, "; ".join(faults), replaced)


def observed_part(time_unix_nano: int, attributes: dict[str, Value]) -> str:
    """The part of an observed try's event id: its time, series (else system) and number."""
    series = attributes.get(names.OBSERVED_SERIES) or attributes.get(names.OBSERVED_SYSTEM)
    number = attributes[names.OBSERVED_NUMBER]
    return f"{names.PART_OBSERVED_PREFIX}{time_unix_nano}-{series or 'observed'}-{number}"
