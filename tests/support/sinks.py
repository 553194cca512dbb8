"""A sink that keeps what it is given, and fails the test that gives it what no sink may get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowmark_otel import names
from flowmark_otel.model import Diagnostic, Envelope, Refused


class RecordingSink:
    """Keeps events and diagnostics in the order given, by any thread and without a lock.

    ``faults`` is what a strict reader would not accept: an empty batch, something that is no
    event, two mappings for one resource, an unknown code. ``check`` asserts that there was none.
    """

    def __init__(self) -> None:
        self.events: list[Envelope | Refused] = []
        self.batches: list[int] = []
        self.resources: list[Mapping[str, object]] = []
        self.diagnostics: list[Diagnostic] = []
        self.faults: list[str] = []

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Keep a batch."""
        if not events:
            self.faults.append("an empty batch")
        given: Sequence[object] = events
        for event in given:
            if not isinstance(event, (Envelope, Refused)):
                self.faults.append(f"no event: {event!r}")
        self.events.extend(events)
        self.batches.append(len(events))
        if not any(known is resource for known in self.resources):
            if any(dict(known) == dict(resource) for known in self.resources):
                self.faults.append("two mappings for one resource")
            self.resources.append(resource)

    def diagnose(self, diagnostic: Diagnostic) -> None:
        """Keep a diagnostic."""
        if diagnostic.code not in names.DIAGNOSTIC_CODES:
            self.faults.append(f"unknown code: {diagnostic.code}")
        self.diagnostics.append(diagnostic)

    @property
    def envelopes(self) -> list[Envelope]:
        """The events that are no refusals."""
        return [event for event in self.events if isinstance(event, Envelope)]

    @property
    def parts(self) -> list[str]:
        """What came, in order: parts of event ids, ``refused`` for refusals."""
        return [event.part if isinstance(event, Envelope) else "refused" for event in self.events]

    def of(self, part: str) -> Envelope:
        """The one envelope of a part."""
        [found] = [event for event in self.envelopes if event.part == part]
        return found

    def check(self) -> None:
        """Assert that nothing came that no sink may get, and no defect was reported."""
        assert self.faults == []
        assert [d for d in self.diagnostics if d.code == names.DIAGNOSTIC_INTERNAL] == []


class BrokenSink:
    """A sink that breaks its promise: everything raises."""

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Raise."""
        raise OSError(events, resource)

    def diagnose(self, diagnostic: Diagnostic) -> None:
        """Raise."""
        raise OSError(diagnostic)

    def try_flush(self, timeout: float) -> bool:
        """Raise."""
        raise OSError(timeout)
