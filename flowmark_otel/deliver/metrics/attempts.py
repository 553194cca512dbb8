"""Tallies of the attempts and operations that this process records; read when metrics are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from flowmark_otel import names
from flowmark_otel.deliver.metrics.groups import Groups, Said
from flowmark_otel.model import Envelope, Refused

MAX_NAMES: Final = 200
"""Pairs of workflow and operation name in the metrics; later ones count under ``_other``."""

Named: TypeAlias = tuple[str, str]
"""Workflow and operation name, as the points of a metric have them."""

_ENDS: Final[Mapping[str, names.Ended]] = {
    names.OPERATION_COMPLETED: "completed",
    names.OPERATION_FAILED: "failed",
}
_OTHERS: Final = (names.OTHER_NAMES, names.OTHER_NAMES)


class Attempts:
    """Counts by name and status or verdict; any thread may call, and read a copy.

    Refused events are in no count: nothing is known of them.
    """

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing was recorded; with a lock that nobody holds."""
        # Guards the rest; a handler of a signal may record while its thread does.
        self._lock = threading.RLock()
        self._groups = Groups()
        self._names: dict[Named, Named] = {}
        self._attempts: Counter[tuple[Named, str]] = Counter()
        self._operations: Counter[tuple[Named, str]] = Counter()
        self._lost_ns: Counter[Named] = Counter()

    def see(self, events: Iterable[Envelope | Refused]) -> list[tuple[Named, str, int]]:
        """Count events; names, status and duration in nanoseconds of attempts that ended."""
        durations: list[tuple[Named, str, int]] = []
        for event in events:
            if isinstance(event, Refused):
                continue
            status = _ENDS.get(event.event)
            if status is not None:
                self._ended(event, status, durations)
            elif event.event == names.OPERATION_STARTED:
                self._started(event)
        return durations

    def attempts(self) -> dict[tuple[Named, str], int]:
        """Attempts that ended, by status."""
        with self._lock:
            return dict(self._attempts)

    def operations(self) -> dict[tuple[Named, str], int]:
        """Operations that ended for certain, by verdict."""
        with self._lock:
            return dict(self._operations)

    def lost_ns(self) -> dict[Named, int]:
        """Nanoseconds lost to retries."""
        with self._lock:
            return dict(self._lost_ns)

    def _started(self, event: Envelope) -> None:
        # Any: validation let nothing but texts and integers through where they are wanted.
        given: dict[str, Any] = event.attributes
        number = given.get(names.ATTEMPT_NUMBER)
        if number is None:
            return
        workflow, operation = given[names.WORKFLOW_NAME], given[names.OPERATION_NAME]
        key = (workflow, given[names.RUN_ID], operation, given[names.ATTEMPT_GROUP_ID])
        with self._lock:
            said = self._groups.start(key, number, event.time_unix_nano)
            if said.lost_ns:
                self._lost_ns[self._named(workflow, operation)] += said.lost_ns

    def _ended(
        self, event: Envelope, status: names.Ended, durations: list[tuple[Named, str, int]]
    ) -> None:
        given: dict[str, Any] = event.attributes  # as in _started
        workflow, operation = given[names.WORKFLOW_NAME], given[names.OPERATION_NAME]
        number = given.get(names.ATTEMPT_NUMBER)
        with self._lock:
            named = self._named(workflow, operation)
            if number is None:
                said = Said("first_try" if status == "completed" else "failed")
            else:
                duration = given.get(names.DURATION_NS)
                self._attempts[named, status] += 1
                if duration is not None:
                    durations.append((named, status, duration))
                said = self._groups.end(
                    (workflow, given[names.RUN_ID], operation, given[names.ATTEMPT_GROUP_ID]),
                    number,
                    given.get(names.ATTEMPT_LIMIT),
                    event.time_unix_nano,
                    (duration or 0) if status == "failed" else None,
                )
            if said.verdict is not None:
                self._operations[named, said.verdict] += 1
            if said.lost_ns:
                self._lost_ns[named] += said.lost_ns

    def _named(self, workflow: str, operation: str) -> Named:
        """The names as points have them; the caller holds the lock."""
        named = (workflow, operation)
        found = self._names.get(named)
        if found is None:
            if len(self._names) >= self._max_names:
                return _OTHERS
            found = self._names[named] = named
        return found
