"""What failed at a node → letters that hold the failed items and nothing else (C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flowmark_otel.collector.payload import Letter, Telemetry
from flowmark_otel.wire import cut

MOST_LETTERS: Final = 16
"""Letters of one message: each is a walk through all of its request."""


class Fault(NamedTuple):
    """Why an item failed: its position, an error name of section 9, and words."""

    item: int
    exception: str
    message: str


class Failures(NamedTuple):
    """What failed of a request: some of its items, or all of it (``whole``).

    ``items``: how many spans, records, events or letters that is, for the counts.
    """

    source: Telemetry
    items: int
    faults: Sequence[Fault] = ()
    whole: Fault | None = None

    def letters(self, tries: int, node: str, time_unix_nano: int) -> tuple[Letter, ...]:
        """A letter for each fault in words, with all items that have it."""
        if self.whole is not None:
            _, exception, message = self.whole
            return (Letter(tries, exception, message, node, time_unix_nano, self.source),)
        found: dict[tuple[str, str], set[int]] = {}
        for item, exception, message in self.faults:
            key = (exception, message)
            if key not in found and len(found) >= MOST_LETTERS:
                key = next(reversed(found))
            found.setdefault(key, set()).add(item)
        return tuple(
            Letter(tries, exception, message, node, time_unix_nano, self._of(items))
            for (exception, message), items in found.items()
        )

    def _of(self, items: set[int]) -> Telemetry:
        source = self.source
        parts = cut.split(source.body, items, encoding=source.encoding, signal=source.signal)
        return source._replace(body=parts.taken)
