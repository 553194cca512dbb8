"""What an attribute limit of the SDK took from a span, as whoever wrote it said it (section 1).

The SDK cuts before any processor sees the span. Uncut values are known of what our recording API
writes, of what ``annotate`` sets, and, under ``FlowmarkSampler``, of what a span is created with;
what else an application sets on a span is known as the limit left it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan

from flowmark_otel.annotate.context import GIVEN_KEY
from flowmark_otel.capture.freeze import START_KEYS

UNLIMITED: Final = (None, False)
"""Of a span from which no limit can have taken anything yet."""

_TEXTS: Final = frozenset(START_KEYS)


class _Noted(threading.local):
    """What this thread's sampler saw last: the span starts on the same thread, at once."""

    trace_id = 0
    attributes: Mapping[str, object] | None = None


_noted: Final = _Noted()


def note(trace_id: int, attributes: Mapping[str, object] | None) -> None:
    """Keep what the next span of this thread is created with; None forgets the one before."""
    _noted.trace_id = trace_id
    _noted.attributes = attributes


def given_at_start(trace_id: int, context: Context) -> Mapping[str, object]:
    """The uncut values that a span of this trace, starting now, was created with."""
    noted, _noted.attributes = _noted.attributes, None
    given: Any = context.get(GIVEN_KEY)
    if isinstance(given, Mapping):
        return given
    return noted if noted is not None and _noted.trace_id == trace_id else {}


def limits_of(span: ReadableSpan) -> tuple[int | None, bool]:
    """The length limit of values on a span, None without one; and whether attributes were lost."""
    bounded: Any = span._attributes  # noqa: SLF001  nothing else tells
    limit = getattr(bounded, "max_value_len", None)
    return limit if type(limit) is int else None, bool(getattr(bounded, "dropped", 0))


def mend(
    attributes: dict[str, object],
    given: Mapping[str, object],
    limits: tuple[int | None, bool],
) -> list[str]:
    """Put back what the limits took of ``given``; the start fields of which that is in doubt.

    In doubt is a text that is as long as the limit lets it be, and nobody said how long it was.
    """
    limit, lost = limits
    if limit is not None:
        for key, now in attributes.items():
            whole = given.get(key)
            if type(now) is str and type(whole) is str and _is_cut(now, whole, limit):
                attributes[key] = whole
    if lost:
        for key, value in given.items():
            attributes.setdefault(key, value)
    return sorted(
        key
        for key, now in attributes.items()
        if key in _TEXTS and type(now) is str and len(now) == limit and given.get(key) != now
    )


def _is_cut(now: str, whole: str, limit: int) -> bool:
    return len(now) == limit < len(whole) and whole.startswith(now)
