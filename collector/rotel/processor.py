"""A trace processor for Rotel: annotated spans are checked, and put into their served form.

What this changes, the first Flowmark party behind would read as the same, or would refuse:
integral doubles and decimal strings of integer keys become integers, "true" and "false" of bool
keys become bools, an idempotency key becomes its served form, secrets in results and error codes
are replaced. Everything else stays as it was given, what breaks a rule too: the backend refuses it
and keeps the evidence; here it is said on standard error, each fault once.

Rotel ends if a processor raises. This one raises nothing once it is loaded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final, Protocol

from flowmark_otel import names
from flowmark_otel.fold.redact import redacted
from flowmark_otel.model import Span, Value
from flowmark_otel.validate import BrokenRule, Rule, check_value, evidence_of, rule_of, unknown_keys
from flowmark_otel.validate.secrets import redact_text

_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_BOOLS: Final = {"true": True, "false": False}
_MOST_SAID: Final = 256

_said: set[str] = set()
"""The lines written so far; owned by ``_say``."""


class RotelValue(Protocol):
    """What is used of Rotel's ``AnyValue``: reading, and setting one kind of it."""

    value: object
    string_value: str
    int_value: int
    bool_value: bool


class RotelAttribute(Protocol):
    """The same of ``KeyValue``."""

    key: str
    value: RotelValue


class RotelSpan(Protocol):
    """The same of ``Span``."""

    name: str
    trace_id: bytes
    span_id: bytes
    attributes: Iterable[RotelAttribute]


class RotelScope(Protocol):
    """The same of ``ScopeSpans``."""

    spans: Iterable[RotelSpan]


class RotelResource(Protocol):
    """The same of ``ResourceSpans``."""

    scope_spans: Iterable[RotelScope]


def process_spans(resource_spans: RotelResource) -> None:
    """What Rotel calls with the spans of one resource, to be changed in place."""
    try:
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                _guarded(span)
    except BaseException as error:  # noqa: BLE001  a panic of Rust's is no Exception
        _say(f"spans were passed on unchecked: {type(error).__name__}")


def _guarded(span: RotelSpan) -> None:
    """One span; its neighbours do not suffer by it."""
    try:
        _process(span)
    except BaseException as error:  # noqa: BLE001  as above
        _say(f"a span was passed on unchecked: {type(error).__name__}")


def _process(span: RotelSpan) -> None:
    ours = [each for each in span.attributes if each.key.startswith(names.PREFIX)]
    if not ours:
        return
    values: dict[str, object] = {}
    for attribute in ours:
        key, held = attribute.key, attribute.value
        given = held.value
        values[key] = given
        rule = rule_of(key)
        if rule is None or given is None:
            continue
        kept = _normal(key, rule, given)
        if kept is not None and (type(kept) is not type(given) or kept != given):
            _set(held, kept)
            values[key] = kept
            if not isinstance(given, type(kept)):
                _say(f"{key} was given as {type(given).__name__}, read as {type(kept).__name__}")
    for fault in _faults(span, values):
        _say(f"span {span.name[:80]!r}: {fault}")


def _normal(key: str, rule: Rule, given: object) -> Value | None:
    """The value as it is served; None where it breaks its rule in whatever way it is read."""
    readings = (_served(key, rule, each) for each in (given, *_readings(given)))
    return next((each for each in readings if each is not None), None)


def _served(key: str, rule: Rule, given: object) -> Value | None:
    try:
        return redacted(key, check_value(key, rule, given))
    except BrokenRule:
        return None


def _readings(given: object) -> list[Value]:
    """What a string would be if its sender can set strings only."""
    if not isinstance(given, str):
        return []
    if _WHOLE.fullmatch(given):
        return [int(given)]
    return [_BOOLS[given]] if given in _BOOLS else []


def _set(held: RotelValue, value: Value) -> None:
    if isinstance(value, bool):
        held.bool_value = value
    elif isinstance(value, int):
        held.int_value = value
    elif isinstance(value, str):
        held.string_value = value


def _faults(span: RotelSpan, values: dict[str, object]) -> Iterable[str]:
    """What a backend would refuse the span or parts of it for, and keys that nobody reads."""
    read = Span(span.trace_id, span.span_id, span.name, 0, 0, failed=False, attributes=values)
    evidence = evidence_of(read)
    for key in unknown_keys(values):
        yield f"{key} is no key of Flowmark's"
    if evidence is None:
        return
    if evidence.unusable:
        yield evidence.unusable
        return
    for key, fault in evidence.broken.items():
        yield f"{key} {fault}"


def _say(what: str) -> None:
    """One line on standard error, if it was not said before; after the most there is silence."""
    line = redact_text(what)
    if line in _said or len(_said) > _MOST_SAID:
        return
    _said.add(line)
    if len(_said) > _MOST_SAID:
        line = "too many different faults; no more are named"
    try:
        sys.stderr.write(f"flowmark: {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
