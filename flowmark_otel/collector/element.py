"""What a node does with a payload, before any policy: one try (contract, section 9; C1-C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, overload, runtime_checkable

from flowmark_otel import names
from flowmark_otel.collector.events import Event, Row
from flowmark_otel.collector.payload import Payload
from flowmark_otel.errors import FlowmarkError

INVALID_ENVELOPE: Final = "InvalidEnvelope"
"""The error name of what is refused for itself: bad input, which no other try can mend."""


def error_name(reason: str) -> str:
    """The error name of a reason of section 3: ``count_mismatch`` is ``CountMismatch``."""
    return "".join(word.capitalize() for word in reason.split("_"))


class Fate(NamedTuple):
    """What became of one event: a state of section 3 of the contract.

    ``item``: the position of its item in the request; ``event_id`` is empty where none can be
    derived, and of events that were taken, which nobody names. ``state`` is ``stored``,
    ``duplicate``, ``custody``, a rejection code, or ``rejected`` where the other side refused it
    for itself without a word: the node makes of that what its ``on_error`` says. ``told`` as in
    ``Event``.
    """

    item: int
    event_id: str
    state: str
    message: str = ""
    told: bool = True


class Alike(Sequence[Fate]):
    """The fates of events that were all taken alike; each is made when somebody looks at it.

    ``state`` as in ``Fate``; ``told`` is that of all of them.
    """

    def __init__(self, events: Sequence[Event], state: str, *, told: bool) -> None:
        self._events = events
        self.state = state
        self.told = told

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, place: int) -> Fate: ...
    @overload
    def __getitem__(self, place: slice) -> list[Fate]: ...
    def __getitem__(self, place: int | slice) -> Fate | list[Fate]:
        if isinstance(place, slice):
            return [self._fate(each) for each in self._events[place]]
        return self._fate(self._events[place])

    def _fate(self, event: Event) -> Fate:
        return Fate(event.item, "", self.state, "", self.told)


class ElementError(FlowmarkError):
    """One try failed, for the whole payload.

    ``reason`` is one of section 3, or ``names.INVALID`` for bad input. ``permanent``: no other try
    can help; else ``retry_after`` is the number of seconds that the other side asked for, if it
    did. ``paused``: a fault of set-up, which a try soon after will hardly mend. ``fates``: where
    every event of the request was refused for itself, what is said of each.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        permanent: bool = False,
        retry_after: float | None = None,
        paused: bool = False,
        fates: tuple[Fate, ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.name = INVALID_ENVELOPE if reason == names.INVALID else error_name(reason)
        self.permanent = permanent
        self.retry_after = retry_after
        self.paused = paused
        self.fates = fates


class Outcome(NamedTuple):
    """What a node says of a payload that it took.

    ``fates`` has one entry for each event that it answers for, in the order of the events, none
    for a node that carries telemetry alone. ``acknowledged``: whether the branch to the backend
    acknowledged ``attempts-v1``, or took custody for it; None where there is no such branch.
    ``backend_id``: whose receipt it is.
    """

    fates: Sequence[Fate] = ()
    acknowledged: bool | None = None
    backend_id: str = ""


@runtime_checkable
class Preparing(Protocol):
    """An element part of whose work is done where the events are read, off the loop."""

    def prepare(self, events: Row) -> None:
        """Make of a row what taking it will ask for; raises nothing."""
        ...


class Element(Protocol):
    """One node. Owns its connections and files; used on one event loop."""

    async def start(self) -> None:
        """Open what it needs. Raises ConfigurationError where that can never work."""
        ...

    async def take(self, payload: Payload, seconds: float) -> Outcome:
        """One try, which may take so many seconds. Raises ElementError; takes all or nothing."""
        ...

    async def close(self) -> None:
        """Finish what is in flight and let go of everything; called once."""
        ...
