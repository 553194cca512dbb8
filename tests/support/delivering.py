"""A delivery under test: the real one, with waits that tests can shorten and look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from flowmark_otel.deliver.backlog import Backlog
from flowmark_otel.deliver.flag import Flag
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.errors import DeliveryError
from flowmark_otel.model import Diagnostic, Envelope, Refused, Unacknowledged
from tests.support.envelopes import completed, started

RESOURCE: Final = {"service.name": "crm"}
LIMITS: Final = Limits(first_wait=0.01, longest_wait=0.05)
LONGEST: Final = 0.05
FLUSH: Final = 20.0


class Waits:
    """Waits as told, but never for long; ``asked`` holds the seconds of waits between tries."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, flag: Flag, seconds: float | None) -> object:
        """Wait; for ever where nothing but an event can end it."""
        if seconds is None:
            return flag.wait(None)
        self.asked.append(seconds)
        return flag.wait(min(seconds, LONGEST))


class Under(Delivery):
    """A delivery with its diagnostics and its waits."""

    def __init__(
        self,
        endpoint: str,
        *,
        protocol: str = "http/protobuf",
        pace: Pace | None = None,
        backlog: Backlog | None = None,
        **settings: object,
    ) -> None:
        self.seen: list[Diagnostic] = []
        self.waits = Waits()
        options = ClientOptions(endpoint=endpoint, protocol=protocol, **settings)  # type: ignore[arg-type]
        super().__init__(
            options,
            on_diagnostic=self.seen.append,
            backlog=backlog,
            pace=pace or Pace(limits=LIMITS, linger=0.01, wait=self.waits, jitter=lambda: 0.0),
        )

    @property
    def codes(self) -> list[str]:
        """The codes of the diagnostics so far."""
        return [each.code for each in self.seen]

    def record(self, *events: Envelope | Refused) -> None:
        """Record events of the one resource."""
        self.put(events, RESOURCE)

    def lost(self, timeout: float = FLUSH) -> DeliveryError:
        """The error of a flush that fails."""
        try:
            self.flush(timeout)
        except DeliveryError as error:
            return error
        msg = f"all was acknowledged: {self.counts()}"
        raise AssertionError(msg)


def named(error: DeliveryError) -> list[Unacknowledged]:
    """The events that a delivery error names."""
    found = [each for each in error.failures if isinstance(each, Unacknowledged)]
    assert len(found) == len(error.failures)
    return found


def reasons(error: DeliveryError) -> set[tuple[str, str]]:
    """Their states and reasons."""
    return {(each.state, each.reason) for each in named(error)}


def attempts(first: int, last: int) -> list[Envelope]:
    """Start and end of the attempts of these numbers, each with metadata that opts in."""
    made: list[Envelope] = []
    for number in range(first, last + 1):
        made += [started(number, ("g", number)), completed(number, ("g", number))]
    return made


def ordinary(first: int, last: int) -> list[Envelope]:
    """Start and end of operations without an attempt."""
    made: list[Envelope] = []
    for number in range(first, last + 1):
        made += [started(number), completed(number)]
    return made


def ids(events: Sequence[Envelope]) -> list[str]:
    """Their event ids."""
    return [each.event_id for each in events]


@contextmanager
def delivering(endpoint: str, **options: object) -> Iterator[Under]:
    """A delivery, ended without complaint."""
    made = Under(endpoint, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        with suppress(DeliveryError):
            made.shutdown(0)
