"""Pure: what a project holds against what it may hold (contract, section 4, "over a quota").

Held is what is kept now: what expires or is deleted makes room. A quota of names counts names, so
what belongs to a name or group that is known already is never refused for it; the quota of events
counts events, ends of accepted operations among them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from flowmark_otel.backend.batch import Claim

Name: TypeAlias = tuple[str, str]
"""Workflow and operation name; an empty operation is the workflow's own name."""

Group: TypeAlias = tuple[int, str, str]
"""``runs.id``, operation name, group id (A3)."""


class Limits(NamedTuple):
    """The quotas of one project; None is no limit.

    ``operations`` counts the operation names of all its workflows, each workflow's own.
    """

    events: int | None = None
    workflows: int | None = None
    operations: int | None = None
    groups: int | None = None


NO_LIMITS: Final = Limits()

_HELD: Final = {
    "events": "events",
    "workflows": "workflow names",
    "operations": "operation names",
    "groups": "attempt groups",
}
_MEND: Final = {
    "events": "raise it with flowmark-otel quotas set, let runs expire or delete some",
    "workflows": "keep ids out of workflow names, or raise it with flowmark-otel quotas set",
    "operations": "keep ids out of operation names, or raise it with flowmark-otel quotas set",
    "groups": "raise it with flowmark-otel quotas set, let runs expire or delete some",
}


@dataclass(slots=True)
class Holding:
    """What one project holds; the writer owns it between transactions, the judge changes it.

    ``names`` are those known of what arrives, not all there are: ``workflows`` and ``operations``
    count all. ``new_names`` and the two deltas are what the transaction has to write.
    """

    limits: Limits = NO_LIMITS
    events: int = 0
    groups: int = 0
    workflows: int = 0
    operations: int = 0
    names: set[Name] = field(default_factory=set)
    new_names: list[Name] = field(default_factory=list)
    new_events: int = 0
    new_groups: int = 0

    def has_room(self, events: int, names: int) -> bool:
        """Whether so many events, and names among them, are over no quota whatever they are."""
        limits = self.limits
        return not (
            _full(self.events + events - 1, limits.events)
            or _full(self.groups + events - 1, limits.groups)
            or _full(self.workflows + names - 1, limits.workflows)
            or _full(self.operations + names - 1, limits.operations)
        )

    def refuses(
        self, claim: Claim, run: int | None, known_groups: Container[Group], *, accepted: bool
    ) -> str | None:
        """Why a new event is over a quota, naming quota and mend; None where there is room.

        ``run`` is None where the event is the first of its run; ``accepted`` tells that its
        operation is known with its attempt.
        """
        limits = self.limits
        if _full(self.events, limits.events):
            return _over("events", limits.events)
        workflow, operation = claim.run[0], claim.operation
        new_workflow = run is None and (workflow, "") not in self.names
        if new_workflow and _full(self.workflows, limits.workflows):
            return _over("workflows", limits.workflows)
        if operation is None or accepted:
            return None
        new_name = (workflow, operation) not in self.names
        if new_name and _full(self.operations, limits.operations):
            return _over("operations", limits.operations)
        group = None if claim.group_id is None else (run or 0, operation, claim.group_id)
        new_group = group is not None and group not in known_groups
        if new_group and _full(self.groups, limits.groups):
            return _over("groups", limits.groups)
        return None

    def add_group(self) -> None:
        """Count a group that was not known."""
        self.groups += 1
        self.new_groups += 1

    def note(self, name: Name) -> None:
        """Count a name, if it is new."""
        if name in self.names:
            return
        self.names.add(name)
        self.new_names.append(name)
        if name[1]:
            self.operations += 1
        else:
            self.workflows += 1

    def written(self) -> None:
        """The transaction wrote what was new."""
        self.new_names.clear()
        self.new_events = self.new_groups = 0


def _full(held: int, limit: int | None) -> bool:
    return limit is not None and held >= limit


def _over(quota: str, limit: int | None) -> str:
    return f"the project's quota of {limit} {_HELD[quota]} is used up; {_MEND[quota]}"
