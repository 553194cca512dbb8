"""A recorded run as a test reads it: the same folding as the backend's (contract, section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flowmark_otel import names
from flowmark_otel.fold.groups import Group, groups
from flowmark_otel.fold.rows import Accepted, Conflicting, error_of, result_of, text
from flowmark_otel.fold.state import Occurrence, RunState, occurrences, run_state
from flowmark_otel.model import RunRef, Value


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run and its evidence, in order of arrival; what it reads as is derived from that."""

    workflow: str
    run_id: str
    events: tuple[Accepted, ...]
    conflicting: tuple[Conflicting, ...] = ()

    @property
    def ref(self) -> RunRef:
        """The run as another names it in ``retry_of``."""
        return RunRef(self.workflow, self.run_id)

    @property
    def state(self) -> RunState:
        """The run itself: status, times, ends, what it retries, flags."""
        return run_state(self.events)

    @property
    def status(self) -> names.RunStatus:
        """``open``, ``completed``, ``failed``; ``unknown`` if only operations were recorded."""
        return self.state.status

    @property
    def outcome(self) -> str | None:
        """The outcome of its latest end."""
        end = self.state.end
        return None if end is None else text(end.attributes, names.RUN_OUTCOME)

    @property
    def result(self) -> Mapping[str, Value]:
        """The reported result of its latest end, by key."""
        end = self.state.end
        return {} if end is None else result_of(end)

    @property
    def retry_of(self) -> RunRef | None:
        """The run that this one says it retries."""
        return self.state.retry_of

    @property
    def occurrences(self) -> tuple[Occurrence, ...]:
        """Its operations by first arrival, attempts or not."""
        return occurrences(self.events, self.conflicting)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Its attempts by group, with gaps, conflicts and verdict."""
        return groups(self.occurrences, self.conflicting)

    def describe(self) -> str:
        """What was recorded, in lines of text."""
        lines = [f"run {self.run_id!r} of {self.workflow!r}: {self.status}"]
        for group in self.groups:
            lines.append(f"  {group.operation}, group {group.group_id!r}: {group.verdict}")
            lines += [f"    attempt {attempt_line(each)}" for each in group.attempts]
            for first, last in group.gaps:
                lines.append(f"    no evidence of {_span(first, last)}")
            lines += [f"    {each.event}: conflict: {each.message}" for each in group.rejected]
        for one in self.occurrences:
            if one.group_id is None:
                lines.append(f"  {one.operation}, no attempt: {_status(one)}")
        if len(lines) == 1:
            lines.append("  no operations")
        return "\n".join(lines)


def attempt_line(one: Occurrence) -> str:
    """Number and status of an attempt, and how it failed."""
    return f"{one.number} {_status(one)}"


def _status(one: Occurrence) -> str:
    error = None if one.end is None else error_of(one.end)
    code = None if error is None else error.code or error.type
    return f"{one.status} ({code})" if code else one.status


def _span(first: int, last: int) -> str:
    return f"attempt {first}" if first == last else f"attempts {first} to {last}"
