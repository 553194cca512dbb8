"""A sink that keeps what it is given, and fails the test that gives it what no sink may get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowmark_otel import names
from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Diagnostic, Envelope, Refused
from flowmark_otel.wire.records import FRAMES, encode_record


class RecordingSink:
    """Keeps events and diagnostics in the order given, by any thread and without a lock.

    ``faults`` is what a strict reader would not accept: an empty batch, something that is no
    event, two mappings for one resource, an unknown code, events of the fast path that it writes
    otherwise than they fold. ``check`` asserts that there was none; ``quick`` counts these events.
    """

    def __init__(self) -> None:
        self.events: list[Envelope | Refused] = []
        self.batches: list[int] = []
        self.resources: list[Mapping[str, object]] = []
        self.diagnostics: list[Diagnostic] = []
        self.faults: list[str] = []
        self.quick = 0

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Keep a batch."""
        if not events:
            self.faults.append("an empty batch")
        given: Sequence[object] = events
        for event in given:
            if not isinstance(event, (Envelope, Refused)):
                self.faults.append(f"no event: {event!r}")
        if isinstance(events, Unfolded):
            self.quick += len(events)
            self.faults += differences(events)
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


def differences(events: Unfolded) -> list[str]:
    """Where the fast path writes something else than the plain path, event by event."""
    written: list[bytes] = []
    events.write(written)
    plain: list[bytes] = []
    for event in events:
        record = encode_record(event)
        plain += (FRAMES[len(record)], record)
    return [] if b"".join(written) == b"".join(plain) else [f"written otherwise: {list(events)}"]


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
