"""Pure: what stored events add to the metrics of attempts and operations (contract, section 10).

Each figure only rises, so that a rate can be taken of it. What is counted once is told by what the
store holds, not by who judges: of several workers each counts what it stored, and the sum is right.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from flowmark_otel import names
from flowmark_otel.backend.batch import Claim
from flowmark_otel.backend.holding import Group
from flowmark_otel.backend.known import Occurrence, Run
from flowmark_otel.backend.times import unwrap_time

Named: TypeAlias = tuple[str, str]
"""Workflow and operation name."""

_STATUS: Final[dict[str, names.Ended]] = {
    names.STATUS_COMPLETED: "completed",
    names.STATUS_FAILED: "failed",
}


class Undecided(NamedTuple):
    """A group whose highest known attempt failed, and nothing says whether another will come."""

    group: Group
    number: int
    named: Named
    origin: str


@dataclass(slots=True)
class Measured:
    """What the events of one request, or of some decided groups, add.

    Owned by whoever judges until the transaction is durable, then by whoever counts.
    ``attempts``: names, status, duration in nanoseconds. ``overtaken``: groups that were tried
    again: what waited to be decided about them no longer has to.
    """

    origin: str
    attempts: list[tuple[Named, names.Ended, int | None]] = field(default_factory=list)
    operations: Counter[tuple[Named, names.Verdict]] = field(default_factory=Counter)
    lost_ns: Counter[Named] = field(default_factory=Counter)
    diagnostics: Counter[str] = field(default_factory=Counter)
    undecided: list[Undecided] = field(default_factory=list)
    overtaken: list[Group] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all: the request is judged again."""
        for each in (self.attempts, self.operations, self.lost_ns, self.diagnostics):
            each.clear()
        self.undecided.clear()
        self.overtaken.clear()

    def stored(self, claim: Claim) -> None:
        """An event was stored: what about it may be incomplete or wrong."""
        envelope = claim.envelope
        if envelope.dropped_attributes_count:
            self.diagnostics[names.FLAG_METADATA_INCOMPLETE] += 1
        if envelope.characters_replaced:
            self.diagnostics[names.FLAG_CHARACTERS_REPLACED] += 1

    def overtook(self, run: Run, found: Occurrence, before: Occurrence) -> None:
        """A group was tried again: its latest failure was in vain."""
        if found.group_id is not None:
            self.overtaken.append((run.id, found.operation, found.group_id))
        if before.status == names.STATUS_FAILED and before.duration_ns:
            self.lost_ns[run.workflow, found.operation] += before.duration_ns

    def started(self, run: Run, found: Occurrence, before: Occurrence | None) -> None:
        """The first start of an occurrence; ``before`` is the highest attempt below it."""
        if before is not None:
            self._waited(run, before, found)

    def ended(self, run: Run, found: Occurrence, limit: object, highest: Occurrence | None) -> None:
        """The one end of an occurrence; ``highest`` is the highest known attempt of its group.

        Marks the occurrence as decided where it decides its operation.
        """
        named = (run.workflow, found.operation)
        status = _STATUS[found.status]
        if found.group_id is None or found.number is None or highest is None:
            self.operations[named, "first_try" if status == "completed" else "failed"] += 1
            return
        number = found.number
        self.attempts.append((named, status, found.duration_ns))
        last = isinstance(limit, int) and number >= limit
        if isinstance(limit, int) and number > limit:
            self.diagnostics[names.FLAG_BEYOND_LIMIT] += 1
        if found is not highest:
            if status == "failed":
                self.lost_ns[named] += found.duration_ns or 0
            self._waited(run, found, highest)
        elif found.decided:
            return
        elif status == "completed":
            found.decided = 1
            self.operations[named, "first_try" if number == 1 else "after_retry"] += 1
        elif last:
            found.decided = 1
            self.operations[named, "failed"] += 1
        else:
            group = (run.id, found.operation, found.group_id)
            self.undecided.append(Undecided(group, number, named, run.origin))

    def _waited(self, run: Run, one: Occurrence, after: Occurrence) -> None:
        """The time between consecutive attempts, where both sides of it are known."""
        if one.number is None or after.number != one.number + 1:
            return
        if one.ended_at and after.started_at:
            waited = unwrap_time(after.started_at) - unwrap_time(one.ended_at)
            if waited > 0:
                self.lost_ns[run.workflow, one.operation] += waited
