"""What was recorded of which span, so that nothing is recorded twice (E1).

One journal for each sink: two processors on one provider share it. There are no locks, so a fork
cannot leave one held; each step is a single operation on a dict, a set or a deque.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.sdk.trace import Span

from flowmark_otel.model import Sink

_REMEMBERED: Final = 8192
"""Ended spans that are remembered; an exporter asks about them some seconds later."""


class Opened:
    """What is kept of an open annotated span.

    ``kept``: its start fields as they were at the start, ``said``: what our own API set since, so
    that an attribute limit cannot change its fold; ``doubtful``: the keys of ``kept`` that one may
    have cut before. ``frozen``: the keys that a start, already sent, has settled; ``settled``: what
    it has settled them to. ``sent``: which starts those were, as parts of event ids.
    """

    __slots__ = ("doubtful", "frozen", "kept", "said", "sent", "settled", "watch")

    def __init__(
        self,
        kept: dict[str, object],
        frozen: frozenset[str] = frozenset(),
        sent: frozenset[str] = frozenset(),
    ) -> None:
        self.kept = kept
        self.said: Mapping[str, object] = {}
        self.doubtful: Sequence[str] = ()
        self.frozen = frozen
        self.settled = {key: value for key, value in kept.items() if key in frozen}
        self.sent = sent
        self.watch: weakref.ref[Span] | None = None

    def given(self) -> dict[str, object]:
        """What is known to be whole, as it was set last."""
        found = {**self.kept, **self.said}
        for key in self.doubtful:
            if key not in self.said:
                del found[key]
        return found


class Journal:
    """Open and recently ended spans of one sink, by ``span_key``."""

    __slots__ = ("__weakref__", "_ended", "_opened", "_order", "sink")

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._opened: dict[int, Opened] = {}
        self._ended: dict[int, object] = {}
        self._order: deque[int] = deque()

    def open(self, key: int, span: Span, opened: Opened) -> bool:
        """Keep an open span, for as long as it lives; False if it is kept already."""
        if self._opened.setdefault(key, opened) is not opened:
            return False
        opened.watch = weakref.ref(span, lambda _: self._opened.pop(key, None))
        return True

    def say(self, key: int, span: Span, values: Mapping[str, object]) -> None:
        """Keep what was set on an open span."""
        if key not in self._opened:
            self.open(key, span, Opened({}))
        opened = self._opened.get(key)
        if opened is not None:
            opened.said = {**opened.said, **values}

    def close(self, key: int) -> Opened | None:
        """Take what was kept of a span that has ended."""
        return self._opened.pop(key, None)

    def claim(self, key: int) -> bool:
        """Take it on oneself to record the end of a span; False if another did."""
        token = object()
        return self._ended.setdefault(key, token) is token

    def settle(self, key: int, *, recorded: bool) -> None:
        """Say whether there was anything to record of a claimed span; if so it is remembered."""
        if not recorded:
            self._ended.pop(key, None)
            return
        self._order.append(key)
        if len(self._order) > _REMEMBERED:
            self._ended.pop(self._order.popleft(), None)

    def has(self, key: int) -> bool:
        """Whether this span is kept or was recorded, as far as it is remembered."""
        return key in self._opened or key in self._ended


_journals: dict[int, weakref.ref[Journal]] = {}


def journal_of(sink: Sink) -> Journal:
    """The journal of a sink; whoever records into it keeps it, and it its sink."""
    key = id(sink)
    own = Journal(sink)
    reference = weakref.ref(own)
    while True:
        # Of threads that come here at once, all leave with the same journal.
        first = _journals.setdefault(key, reference)
        found = first()
        if found is not None and found.sink is sink:
            return found
        if _journals.get(key) is first:  # of a sink that is gone
            _journals.pop(key, None)


def is_journaled(key: int) -> bool:
    """Whether any sink has this span, open or ended."""
    found = [journal for reference in list(_journals.values()) if (journal := reference())]
    return any(journal.has(key) for journal in found)
