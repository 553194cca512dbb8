"""Assertions about what was recorded; a failed one shows all of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowmark_otel import names
from flowmark_otel.annotate import Workflow
from flowmark_otel.fold.groups import Group
from flowmark_otel.model import RunRef
from flowmark_otel.testing.recording import active_backend
from flowmark_otel.testing.runs import RecordedRun


def assert_attempts(
    run: RecordedRun | RunRef | Workflow[Any],
    operation: str,
    statuses: Sequence[names.Status],
    *,
    group_id: str | None = None,
) -> None:
    """Assert that an operation was tried so often, and how each attempt ended.

    ``run``: from ``InMemoryBackend.run``; or a handle or reference, which is looked up in the
    backend that is recorded into. ``statuses``: ``completed``, ``failed`` or ``open``, from
    attempt 1 on without a gap. ``group_id`` is needed where the operation has several groups; an
    empty list says that there is no attempt. Raises AssertionError with what was recorded.
    """
    found = run if isinstance(run, RecordedRun) else _looked_up(run)
    groups = [
        group
        for group in found.groups
        if group.operation == operation and group_id in (None, group.group_id)
    ]
    fault = _fault(groups, list(statuses))
    if fault:
        named = operation if group_id is None else f"{operation}, group {group_id!r}"
        expected = ", ".join(statuses) or "none"
        msg = f"attempts of {named}: {fault}; expected {expected}\n{found.describe()}"
        raise AssertionError(msg)


def _fault(groups: Sequence[Group], statuses: list[names.Status]) -> str:
    """What is not as expected; empty if all is."""
    if not groups:
        return "none recorded" if statuses else ""
    if len(groups) > 1:
        return f"{len(groups)} groups recorded, name one by group_id"
    [group] = groups
    if group.conflicts:
        return f"attempt {group.conflicts[0]} is in conflict"
    recorded = [(each.number, each.status) for each in group.attempts]
    if recorded == list(enumerate(statuses, 1)):
        return ""
    return "recorded " + ", ".join(f"{number} {status}" for number, status in recorded)


def _looked_up(run: RunRef | Workflow[Any]) -> RecordedRun:
    ref = run if isinstance(run, RunRef) else run.ref
    return active_backend().run(ref.workflow, ref.run_id)
