"""Views as JSON: times as RFC 3339, records as objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

Time = NewType("Time", int)
"""Epoch nanoseconds, as sent or as received; JSON writes it as RFC 3339 UTC with nine digits."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def rfc3339(time: int) -> str:
    """Write epoch nanoseconds (any uint64) as ``2026-11-30T13:24:55.000000001Z``."""
    seconds, nanoseconds = divmod(time, 1_000_000_000)
    whole = _EPOCH + timedelta(seconds=seconds)
    return f"{whole.strftime('%Y-%m-%dT%H:%M:%S')}.{nanoseconds:09d}Z"


def jsonable(view: object) -> Any:  # noqa: ANN401 (JSON has no narrower type)
    """Return the JSON-ready form of a view, of a tuple of views or of a plain value."""
    if isinstance(view, (list, tuple)):
        return [jsonable(item) for item in view]
    if dataclasses.is_dataclass(view) and not isinstance(view, type):
        return {name: write(getattr(view, name)) for name, write in _writers(type(view))}
    return view


@cache
def _writers(view: type) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = get_type_hints(view)
    return tuple((field.name, _writer(hints[field.name])) for field in dataclasses.fields(view))


def _writer(hint: object) -> Callable[[Any], Any]:
    if hint is Time:
        return rfc3339
    if get_origin(hint) in (Union, UnionType) and Time in get_args(hint):
        others = set(get_args(hint)) - {Time, NoneType}
        if others:
            msg = f"a time shares its field with {others}"
            raise TypeError(msg)
        return _optional_time
    return jsonable


def _optional_time(time: int | None) -> str | None:
    return None if time is None else rfc3339(time)
