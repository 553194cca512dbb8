"""What one process can say of groups from the attempts that it records itself. Pure.

It reads no store: attempts that other processes made are unknown here, and a group whose last
attempt failed stays undecided unless its limit says that no other follows. The backend, which has
all the evidence, decides those; what is said here is never more than there is evidence for.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple, TypeAlias

from flowmark_otel import names

GroupKey: TypeAlias = tuple[str, str, str, str]
"""Workflow, run id, operation name, group id."""

KEPT: Final = 4096
"""Groups remembered, the latest ones."""


class Said(NamedTuple):
    """What one event added: a verdict, the first of its group, or None; nanoseconds lost."""

    verdict: names.Verdict | None = None
    lost_ns: int = 0


class _Tries:
    """One group: its highest number, its latest start and end, and a failure nobody retried yet."""

    __slots__ = ("decided", "ended", "failed_ns", "highest", "started")

    def __init__(self) -> None:
        self.highest = 0
        self.started = (0, 0)  # number and time
        self.ended = (0, 0)
        self.failed_ns = 0  # of the highest number
        self.decided = False


class Groups:
    """The groups that this process made attempts of lately; its owner guards it."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._groups: OrderedDict[GroupKey, _Tries] = OrderedDict()

    def start(self, key: GroupKey, number: int, at: int) -> Said:
        """An attempt started, at epoch nanoseconds, 0 if unknown.

        A failed attempt with a lower number was in vain from here on, and so was the time since.
        """
        tries = self._tries(key)
        lost = 0
        if number > tries.highest:
            lost, tries.failed_ns = tries.failed_ns, 0
            tries.highest = number
        tries.started = (number, at)
        before, ended_at = tries.ended
        if before == number - 1 and ended_at and at:
            lost += max(at - ended_at, 0)
        return Said(None, lost)

    def end(
        self, key: GroupKey, number: int, limit: int | None, at: int, failed_ns: int | None
    ) -> Said:
        """An attempt ended; ``failed_ns`` is its duration if it failed, None if it completed."""
        tries = self._tries(key)
        tries.highest = max(tries.highest, number)
        tries.ended = (number, at)
        lost = 0
        after, started_at = tries.started
        if after == number + 1 and started_at and at:
            lost = max(started_at - at, 0)
        verdict: names.Verdict | None = None
        if failed_ns is None:
            verdict = "first_try" if number == 1 else "after_retry"
        else:
            if number < tries.highest:
                lost += failed_ns
            else:
                tries.failed_ns = failed_ns
            if limit is not None and number >= limit:
                verdict = "failed"
        if tries.decided:
            verdict = None
        elif verdict is not None:
            tries.decided = True
        return Said(verdict, lost)

    def _tries(self, key: GroupKey) -> _Tries:
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = _Tries()
            if len(self._groups) > self._kept:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(key)
        return found
