"""What a flush says: how many were not acknowledged, which, and why (pure; contract, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.deliver.counts import MAX_NAMED, Key, Window
from flowmark_otel.model import Unacknowledged

_PENDING_MESSAGE: Final = "still waits"
_MAX_SAID: Final = 200


class Truth(NamedTuple):
    """The events not acknowledged by (state, reason), at most 100 of them by name, and a line."""

    failed: Mapping[Key, int]
    named: tuple[Unacknowledged, ...]
    message: str


def truth_of(window: Window, pending: tuple[str, str, int], ids: Sequence[str]) -> Truth:
    """Join what was settled with what still waits, given as state, reason and number."""
    state, reason, waiting = pending
    failed = dict(window.failed)
    named = list(window.named)
    if waiting:
        failed[state, reason] = failed.get((state, reason), 0) + waiting
        room = MAX_NAMED - len(named)
        named += [
            Unacknowledged(event_id, state, reason, _PENDING_MESSAGE) for event_id in ids[:room]
        ]
    total = window.settled + waiting
    count = sum(failed.values())
    events = "event was" if total == 1 else "events were"
    said = ", ".join(_said(key, number, named) for key, number in failed.items())
    message = f"{count} of {total} {events} not acknowledged: {said}" if failed else ""
    return Truth(failed, tuple(named), message)


def _said(key: Key, number: int, named: Sequence[Unacknowledged]) -> str:
    """One state in words, with the first of its events as an example."""
    state, reason = key
    plain = reason in ("", state, names.REASON_REJECTED)
    text = f"{number} {state}" if plain else f"{number} {state}, {reason}"
    first = next((each for each in named if (each.state, each.reason) == key), None)
    if first is None:
        return text
    parts = [part for part in (first.event_id, first.message) if part]
    return f"{text} ({': '.join(parts)[:_MAX_SAID]})" if parts else text
