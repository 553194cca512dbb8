"""What is special about browser keys: pages, a quota, names of their own (A20).

Such a key is public: whoever opens the page has it. So it only writes, its evidence is kept apart
by origin, and what it may write in a minute is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.config import web_origin

EVENTS_PER_MINUTE: Final = 6_000
"""What a browser key may send unless it is made otherwise."""
MIN_EVENTS_PER_MINUTE: Final = 60
MAX_EVENTS_PER_MINUTE: Final = 10_000_000

_WINDOW_SECONDS: Final = 60.0


def qualified(origin: str, workflow: str) -> str:
    """What a workflow is called in what a browser key sent, and as it is in all else (A20).

    Runs are named so; the attributes of events stay as they were sent, and with them the digests.
    """
    return names.BROWSER_PREFIX + workflow if origin == names.ORIGIN_BROWSER else workflow


def publishable(
    kind: str, pages: Sequence[str], events_per_minute: int | None
) -> dict[str, object] | None:
    """The row of ``browser_keys`` without its id, None for other kinds; raises ValueError."""
    if kind != names.KEY_BROWSER:
        if pages or events_per_minute is not None:
            msg = f"origins and events per minute are for keys of kind {names.KEY_BROWSER} only"
            raise ValueError(msg)
        return None
    if not pages:
        msg = f"a key of kind {names.KEY_BROWSER} needs the origins of the pages that send with it"
        raise ValueError(msg)
    limit = EVENTS_PER_MINUTE if events_per_minute is None else events_per_minute
    if not MIN_EVENTS_PER_MINUTE <= limit <= MAX_EVENTS_PER_MINUTE:
        msg = (
            f"events per minute must be from {MIN_EVENTS_PER_MINUTE} to {MAX_EVENTS_PER_MINUTE},"
            f" found {limit}"
        )
        raise ValueError(msg)
    joined = " ".join(dict.fromkeys(web_origin(page) for page in pages))
    return {"pages": joined, "events_per_minute": limit}


def pages_of(joined: str | None) -> tuple[str, ...]:
    """The origins in the column ``pages``."""
    return tuple((joined or "").split())


class Quota:
    """Events that browser keys sent in the current minute, counted in this process alone.

    Owns its counters, one for each key that sent; may be used from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[float, int]] = {}  # start (monotonic), events

    def take(self, key_id: str, per_minute: int, ends: Sequence[int]) -> int:
        """Count as many events of a request as still go into this minute, and return how many.

        ``ends`` are the numbers of events up to and with each item of the request: an item is
        taken whole or not at all, and none after the first that is not.
        """
        now = self._clock.monotonic()
        with self._lock:
            start, used = self._windows.get(key_id, (now, 0))
            if now - start >= _WINDOW_SECONDS:
                start, used = now, 0
            room = per_minute - used
            taken = max((end for end in ends if end <= room), default=0)
            self._windows[key_id] = (start, used + taken)
        return taken
