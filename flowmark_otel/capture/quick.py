"""An SDK span → its events by the fast path, where it can be taken.

It takes what is there as it is, so whatever is not as usual is left to folding: lost or changed
attributes, events, times and ids that say nothing, and what raises.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.trace import StatusCode

from flowmark_otel import names
from flowmark_otel.capture.journal import Opened
from flowmark_otel.capture.reading import ResourceView
from flowmark_otel.fast import BOTH, END, SHAPES, START, STARTING, Unfolded, is_operation_name

_ERROR: Final = StatusCode.ERROR
_OPERATION: Final = frozenset((names.PART_OPERATION_START,))
_LATEST: Final = 2**63 - 1
_SPAN_ID: Final = 2**64 - 1  # of a key that names a span; the rest is its trace id
_MOST_WRITTEN: Final = 3


def takes_all(span: Span) -> bool:
    """Whether what is written on a span at its start stays so, and pushes nothing out."""
    bounded: Any = span._attributes  # noqa: SLF001  the public view does not say
    try:
        return bounded.max_value_len is None and (
            bounded.maxlen is None or len(bounded._dict) + _MOST_WRITTEN <= bounded.maxlen  # noqa: SLF001
        )
    except AttributeError:
        return False


def started_of(span: Span, key: int, view: ResourceView) -> Unfolded | None:
    """The start of an operation that is sent early; None: fold it.

    Spans are renamed: what the start calls the operation is written on the span. Only for a span
    that ``takes_all``.
    """
    seen: Any = span  # its public view is built anew with each question
    try:
        bounded = seen._attributes  # noqa: SLF001
        held = bounded._dict  # noqa: SLF001
        shape = SHAPES[STARTING].get(tuple(held))
        if shape is None or bounded.dropped or seen._events._dq:  # noqa: SLF001
            return None
        if names.OPERATION_NAME not in held:
            name = seen._name  # noqa: SLF001
            if not is_operation_name(name):
                return None
            span.set_attribute(names.OPERATION_NAME, name)
        values = shape.read(held)
        if shape.served:
            values += (view.service_name,)
        start = seen._start_time  # noqa: SLF001
        if (
            tuple(map(type, values)) == shape.types
            and type(start) is int
            and 0 < start <= _LATEST
            and key & _SPAN_ID
            and key > _SPAN_ID
        ):
            return Unfolded(shape, values, key, (start, 0), START)
    except Exception:  # noqa: BLE001  a broken rule, another SDK: folding says what is the matter
        return None
    return None


def ended_of(
    span: ReadableSpan, key: int, opened: Opened | None, view: ResourceView
) -> Unfolded | None:
    """What is left to send of a span, ``opened`` being what was kept of it; None: fold it."""
    seen: Any = span  # as in started_of
    try:
        bounded = seen._attributes  # noqa: SLF001
        held = bounded._dict  # noqa: SLF001
        shape = SHAPES[seen._status.status_code is _ERROR].get(tuple(held))  # noqa: SLF001
        if (
            shape is None
            or bounded.dropped
            or bounded.max_value_len is not None
            or seen._events._dq  # noqa: SLF001
        ):
            return None
        which = BOTH
        if opened is not None and opened.sent:
            settled = opened.settled
            if (
                opened.sent != _OPERATION
                or len(settled) != shape.settled
                or not settled.items() <= held.items()
            ):
                return None
            which = END
        values = shape.read(held)
        if shape.named:
            values += (seen._name,)  # noqa: SLF001
        if shape.served:
            values += (view.service_name,)
        start, end = seen._start_time, seen._end_time  # noqa: SLF001
        if (
            tuple(map(type, values)) == shape.types
            and type(start) is type(end) is int
            and 0 < start <= end <= _LATEST
            and key & _SPAN_ID
            and key > _SPAN_ID
        ):
            return Unfolded(shape, values, key, (start, end), which)
    except Exception:  # noqa: BLE001  as in started_of
        return None
    return None
