"""What the run page says of the run itself: its own facts, its references, its result, its ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import ErrorView, RunLink, RunView, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.pages.frame import Fact, Link
from flowmark_otel.dashboard.pages.links import run_path
from flowmark_otel.model import Value


class References(NamedTuple):
    """Whom a run names and who names it (A17–A19).

    ``unresolved``: the predecessor's name where it is not stored. ``parent``: the parent id as
    given, None if none was.
    """

    retry_of: Link | None
    unresolved: str | None
    retried_by: tuple[Link, ...]
    parents: tuple[Link, ...]
    parent: str | None


class End(NamedTuple):
    """One of several ends of a continued run, in the order they were sent.

    The titles are the full times for the tooltip.
    """

    status: str
    ended_at: str
    ended_title: str | None
    outcome: str | None
    error: str | None
    event_id: str
    received_at: str
    received_title: str


def own_facts(run: RunView) -> tuple[Fact, ...]:
    """Status, outcome, times, correlation, and whatever makes them less certain."""
    facts = [
        Fact("Status", status(run)),
        Fact("Outcome", run.outcome)
        if run.outcome
        else Fact("Outcome", "none reported", muted=True),
        _time("Started", run.started_at, received=_started(run)),
        _time("Ended", run.ended_at, received=bool(run.ends)),
        Fact("Took", words.lasted(run.duration_ns))
        if run.duration_ns is not None
        else Fact("Took", words.UNKNOWN, muted=True),
        Fact(
            "First received",
            words.moment(run.first_received_at),
            time=rfc3339(run.first_received_at),
        ),
    ]
    if run.correlation_id:
        facts.append(Fact("Correlation", run.correlation_id, code=True))
    if run.origin == names.ORIGIN_BROWSER:
        facts.append(Fact("Origin", words.FROM_BROWSER))
    facts += [Fact("Note", words.FLAGS[flag]) for flag in run.flags]
    if run.defaulted:
        facts.append(Fact("By default", ", ".join(run.defaulted), code=True))
    return tuple(facts)


def status(run: RunView) -> str:
    """``failed, BATCH_FAILED``."""
    said = words.RUN_STATUSES[run.status]
    code = error(run.error)
    return f"{said}, {code}" if code else said


def error(view: ErrorView | None) -> str | None:
    """Code, type and whether it may be tried again, as far as reported."""
    if view is None:
        return None
    parts = [part for part in dict.fromkeys((view.code, view.type)) if part]
    if view.retryable is not None:
        parts.append("retryable" if view.retryable else "not retryable")
    return ", ".join(parts) or None


def references(run: RunView) -> References:
    """The references of a run; an absent or foreign target reads "unresolved" (A17)."""
    retry_of, unresolved = None, None
    if run.retry_of:
        name = f"{run.retry_of.workflow} / {run.retry_of.run_id}"
        if run.retry_of.resolved and run.retry_of.key:
            retry_of = Link(name, run_path(run.retry_of.key))
        else:
            unresolved = name
    return References(
        retry_of,
        unresolved,
        tuple(map(_link, run.retried_by)),
        tuple(map(_link, run.parents)),
        run.parent_run_id,
    )


def result(items: Iterable[tuple[str, Value]]) -> tuple[Fact, ...]:
    """Reported items of one run; numbers as sent."""
    return tuple(Fact(name, value(item)) for name, item in items)


def value(item: Value) -> str:
    """A value as text: ``true``, ``2000``, ``2.5``; strings as they are."""
    if isinstance(item, bool):
        return "true" if item else "false"
    return item if isinstance(item, str) else str(item)


def ends(run: RunView) -> tuple[End, ...]:
    """All ends where there are several; the run reads as its latest (A14)."""
    if len(run.ends) < 2:  # noqa: PLR2004 (one end needs no list)
        return ()
    return tuple(
        End(
            end.status,
            words.TIME_UNKNOWN if end.ended_at is None else words.moment(end.ended_at),
            None if end.ended_at is None else rfc3339(end.ended_at),
            end.outcome,
            error(end.error),
            end.event_id,
            words.moment(end.received_at),
            rfc3339(end.received_at),
        )
        for end in run.ends
    )


def _started(run: RunView) -> bool:
    return run.status == names.STATUS_OPEN


def _time(name: str, time: int | None, *, received: bool) -> Fact:
    if time is not None:
        return Fact(name, words.moment(time), time=rfc3339(time))
    return Fact(name, words.TIME_UNKNOWN if received else "not received", muted=True)


def _link(link: RunLink) -> Link:
    return Link(f"{link.workflow} / {link.run_id}", run_path(link.key))
