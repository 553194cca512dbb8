"""An SDK span, open or ended → the record that folding reads.

What the SDK lets through that no rule accepts (lists, bytes, lone surrogates) stays as it is:
folding refuses it by name. Times that OTLP cannot carry count as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, StatusCode

from flowmark_otel import names
from flowmark_otel.model import Span, SpanEvent
from flowmark_otel.signals import ANY, Signals

_MAX_PLAIN: Final = 4096
_plain: set[str] = set()
"""Keys that were seen and are none of ours; telemetry has few, and only so many are kept."""

says_nothing: Final[Callable[[Iterable[str]], bool]] = _plain.issuperset
"""Whether all keys are known to be none of ours: one call in C, as every span passes here."""


def is_marked(keys: Collection[str]) -> bool:
    """Whether any key is one of ours; if none is, they are known from now on.

    Ask ``says_nothing`` first: that costs a tenth. Marks of signals are never known as plain.
    """
    for key in keys:  # any() over a generator costs half of all that is done at an end
        if key.startswith("flowmark."):
            return True
    if len(_plain) < _MAX_PLAIN:
        _plain.update(set(keys) - ANY.marks)  # spans with a mark of a signal are looked at
    return False


def read_signals(span: ReadableSpan, signals: Signals) -> dict[str, object]:
    """The attributes that signals are read from, values of exact built-in types."""
    held = held_by(span) or {}
    return {key: _exact(value) for key, value in held.items() if key in signals.reads}


_READ_EVENTS: Final = frozenset((names.EXCEPTION_EVENT, names.ATTEMPT_OBSERVED))
_MAX_TIME: Final = 2**64 - 1


def span_key(context: Any) -> int:  # noqa: ANN401  a span context, of whatever SDK
    """One number that names a span within this process: its trace id, then its span id."""
    if type(context) is SpanContext:
        return context[0] << 64 | context[1]  # its properties are calls in Python
    key: int = context.trace_id << 64 | context.span_id
    return key


def attributes_of(span: ReadableSpan) -> dict[str, object]:
    """The attributes that folding reads, in order, values of exact built-in types."""
    held = held_by(span)
    return _read(held.items()) if held else {}


def held_by(span: ReadableSpan) -> Mapping[str, Any]:
    """All attributes of a span, not to be changed."""
    held: Any = span._attributes  # noqa: SLF001  the public view costs more than the rest
    found: Mapping[str, Any] = getattr(held, "_dict", held)  # the bounded one reads in Python
    return found


def read_span(span: ReadableSpan, attributes: dict[str, object], service_name: object) -> Span:
    """The record of a span; the end is 0 while it is open.

    ``attributes``: as ``attributes_of`` gave them, or changed since by the caller.
    """
    context: Any = span.context
    status: Any = span.status
    name: object = span.name
    return Span(
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        name if type(name) is str else str(name),
        _time(span.start_time),
        _time(span.end_time),
        status is not None and status.status_code is StatusCode.ERROR,
        attributes,
        service_name,
        _events(span),
        span.dropped_attributes,
    )


def _events(span: ReadableSpan) -> list[SpanEvent] | tuple[()]:
    """The events that folding reads."""
    if not getattr(span, "_events", True):  # the public view is built anew each time
        return ()
    return [
        SpanEvent(event.name, _time(event.timestamp), _read((event.attributes or {}).items()))
        for event in span.events
        if event.name in _READ_EVENTS
    ]


def _read(items: Iterable[tuple[str, Any]]) -> dict[str, object]:
    """The attributes that folding reads; a subclass (an enum member, say) becomes its value."""
    found = {
        key: value
        for key, value in items
        if key.startswith("flowmark.") or key in _READ_KEYS  # a literal: this runs for every key
    }
    if not _EXACT.issuperset(map(type, found.values())):
        for key, value in found.items():
            found[key] = _exact(value)
    return found


def _exact(value: Any) -> object:  # noqa: ANN401  whatever the SDK let through
    if type(value) in _EXACT:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    return float.__float__(value) if isinstance(value, float) else value


_EXACT: Final = frozenset((str, int, bool, float))
_READ_KEYS: Final = frozenset((names.ERROR_TYPE, names.EXCEPTION_TYPE))


def _time(value: object) -> int:
    """Epoch nanoseconds; 0 where unknown."""
    return value if type(value) is int and 0 <= value <= _MAX_TIME else 0


class ResourceView:
    """What is read of a resource, kept for the next span: a provider's is always the same."""

    __slots__ = ("attributes", "resource", "service_name")

    def __init__(self, resource: Any) -> None:  # noqa: ANN401  an SDK resource
        self.resource = resource
        self.attributes: Mapping[str, object] = resource.attributes
        self.service_name = self.attributes.get(names.SERVICE_NAME)
