"""Operations that failed in the end without a limit that said so: counted when no retry came.

Metrics only. A group whose highest attempt failed waits here; if nothing of a higher number is
stored within the time, by whatever process, its operation is counted as failed, once. What waits
when a process ends is counted by nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, select

from flowmark_otel import names
from flowmark_otel.backend.background import Background
from flowmark_otel.backend.evidence import chunks
from flowmark_otel.backend.holding import Group
from flowmark_otel.backend.known import Occurrence
from flowmark_otel.backend.measured import Measured, Undecided
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.database import driver_of
from flowmark_otel.errors import Unavailable

MOST: Final = 65_536
"""Groups that wait; of more the oldest are looked at before their time."""

_AT_ONCE: Final = 1000
_LOOK_SECONDS: Final = 1.0
_FAILED_SECONDS: Final = 5.0
_logger = logging.getLogger(__name__)


class Waiting:
    """Groups in the order in which their time is over; any thread may call.

    ``seconds``: how long after its latest failure a group waits.
    """

    def __init__(self, seconds: float, most: int = MOST) -> None:
        self._seconds = seconds
        self._most = most
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Group, tuple[float, Undecided]] = OrderedDict()

    def see(self, measured: Measured, now: float) -> None:
        """What a durable request decided and left undecided; ``now`` in monotonic seconds."""
        with self._lock:
            for group in measured.overtaken:
                self._waiting.pop(group, None)
            for one in measured.undecided:
                self._waiting.pop(one.group, None)
                self._waiting[one.group] = (now + self._seconds, one)

    def due(self, now: float) -> list[Undecided]:
        """Some whose time is over, or that are too many; they are no longer here."""
        found: list[Undecided] = []
        with self._lock:
            while self._waiting and len(found) < _AT_ONCE:
                ends, one = next(iter(self._waiting.values()))
                if ends > now and len(self._waiting) <= self._most:
                    break
                self._waiting.popitem(last=False)
                found.append(one)
        return found


class Settler(Background):
    """A thread that asks the store what became of the groups whose time is over.

    ``count`` is told what they add, after it is durable that they were counted. ``stop`` it before
    the store is closed.
    """

    def __init__(self, store: Store, waiting: Waiting, count: Callable[[Measured], None]) -> None:
        super().__init__("flowmark-settling")
        self._store = store
        self._waiting = waiting
        self._count = count

    def _run(self) -> None:
        pause = _LOOK_SECONDS
        while not self._stopping.wait(pause):
            due = self._waiting.due(self._store.clock.monotonic())
            try:
                pause = 0.0 if self.settle(due) else _LOOK_SECONDS
            except Unavailable:  # readiness says so
                again = Measured(names.ORIGIN_SERVER, undecided=due)
                self._waiting.see(again, self._store.clock.monotonic())
                pause = _FAILED_SECONDS
            except Exception:
                _logger.exception("operations that failed cannot be counted")
                pause = _FAILED_SECONDS

    def settle(self, due: Sequence[Undecided]) -> int:
        """Count those that still are as they were, and return how many were looked at."""
        if due:
            by_origin: dict[str, list[Undecided]] = {}
            for one in self._store.write(lambda connection: self._decide(connection, due)).result():
                by_origin.setdefault(one.origin, []).append(one)
            for origin, some in by_origin.items():
                measured = Measured(origin)
                for one in some:
                    measured.operations[one.named, "failed"] += 1
                self._count(measured)
        return len(due)

    def _decide(self, connection: Connection, due: Sequence[Undecided]) -> list[Undecided]:
        runs = schema.runs.c
        # Held in the order of claims, so that no attempt comes to them meanwhile.
        for some in chunks({one.group[0] for one in due}):
            held = select(runs.id).where(runs.id.in_(some)).order_by(runs.key).with_for_update()
            connection.execute(held).all()
        statements, driver = self._store.statements, driver_of(connection)
        by_group = {one.group: one for one in due}
        found, rows = [], []
        for row in statements.groups.run(driver, list(by_group)):
            highest = Occurrence(*row)
            one = by_group[highest.run, highest.operation, highest.group_id or ""]
            failed = highest.status == names.STATUS_FAILED and not highest.decided
            if failed and highest.number == one.number:
                found.append(one)
                rows.append((highest.run, highest.operation_id, 1))
        statements.decide.run(driver, rows)
        return found
