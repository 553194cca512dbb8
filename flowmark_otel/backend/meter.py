"""What whoever counts is told of the judging of requests; called on the event loop."""

from __future__ import annotations

from typing import Protocol

from flowmark_otel.backend.measured import Measured
from flowmark_otel.backend.store import Verdict
from flowmark_otel.errors import Unavailable


class Meter(Protocol):
    """Sees each request go through: its body, its events while they wait, what became of them."""

    def body(self, octets: int) -> None:
        """Bytes that began, or with a minus ended, to be judged."""
        ...

    def waiting(self, events: int) -> None:
        """Events that began, or with a minus ended, to wait for the store."""
        ...

    def judged(self, verdict: Verdict, seconds: float) -> None:
        """A verdict that is durable, and how long the store took for it."""
        ...

    def measure(self, origin: str) -> Measured | None:
        """What is to be filled with what a request adds to metrics; None: nobody counts."""
        ...

    def measured(self, measured: Measured) -> None:
        """What a durable request adds; called in any thread, also if nobody waits any more."""
        ...

    def unacknowledged(self, events: int) -> None:
        """Events that were submitted and not acknowledged; their sender has them still."""
        ...

    def limited(self, events: int) -> None:
        """Events over the quota of a browser key, which never reach the store."""
        ...

    def unavailable(self, error: Unavailable) -> None:
        """A request that the store could not take now."""
        ...


class Unmetered:
    """Counts nothing."""

    def body(self, octets: int) -> None:
        """Nothing."""

    def waiting(self, events: int) -> None:
        """Nothing."""

    def judged(self, verdict: Verdict, seconds: float) -> None:
        """Nothing."""

    def measure(self, origin: str) -> Measured | None:
        """Nobody counts."""

    def measured(self, measured: Measured) -> None:
        """Nothing."""

    def unacknowledged(self, events: int) -> None:
        """Nothing."""

    def limited(self, events: int) -> None:
        """Nothing."""

    def unavailable(self, error: Unavailable) -> None:
        """Nothing."""
