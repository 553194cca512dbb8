"""Who deleted what, made or revoked which key, and when: written with the deed (section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, insert, select, update

from flowmark_otel.backend.removal import Buried
from flowmark_otel.backend.store import schema

DELETE_RUN: Final = "delete_run"
DELETE_WORKFLOW: Final = "delete_workflow"
CREATE_KEY: Final = "create_key"
REVOKE_KEY: Final = "revoke_key"
"""What can be done."""

_audit = schema.audit


@dataclass(frozen=True, slots=True)
class Deed:
    """One entry: times in epoch nanoseconds.

    ``actor`` is the id of a key, or the command and who ran it. ``subject`` is the key of the run,
    the name of the workflow, or the id of the key with its kind. ``finished_at`` is None where it
    was broken off; ``runs`` and ``events`` are true even then.
    """

    id: int
    project: str
    at: int
    actor: str
    action: str
    subject: str
    runs: int
    events: int
    finished_at: int | None


def begin(
    connection: Connection,
    *,
    project_id: int,
    at: int,
    actor: str,
    action: str,
    subject: str,
) -> int:
    """Write down that something is about to be done; the id of the entry."""
    added = insert(_audit).values(
        project_id=project_id,
        at=at,
        actor=actor,
        action=action,
        subject=subject,
        runs=0,
        events=0,
    )
    return int(connection.execute(added.returning(_audit.c.id)).scalar_one())


def note(
    connection: Connection,
    *,
    project_id: int,
    at: int,
    actor: str,
    action: str,
    subject: str,
) -> None:
    """Write down what the running transaction does as a whole."""
    entry = begin(
        connection, project_id=project_id, at=at, actor=actor, action=action, subject=subject
    )
    finish(connection, entry, at)


def add(connection: Connection, entry: int, buried: Buried) -> None:
    """Add to an entry what the running transaction buries."""
    columns = _audit.c
    connection.execute(
        update(_audit)
        .where(columns.id == entry)
        .values(runs=columns.runs + buried.runs, events=columns.events + buried.events),
    )


def finish(connection: Connection, entry: int, at: int) -> None:
    """Write down that all of it was done."""
    connection.execute(update(_audit).where(_audit.c.id == entry).values(finished_at=at))


def entries(connection: Connection, project_id: int | None = None, limit: int = 50) -> list[Deed]:
    """The latest entries, of one project or of all, the latest first."""
    columns, projects = _audit.c, schema.projects
    asked = (
        select(
            columns.id,
            projects.c.name,
            columns.at,
            columns.actor,
            columns.action,
            columns.subject,
            columns.runs,
            columns.events,
            columns.finished_at,
        )
        .join_from(_audit, projects, projects.c.id == columns.project_id)
        .order_by(columns.id.desc())
        .limit(limit)
    )
    if project_id is not None:
        asked = asked.where(columns.project_id == project_id)
    return [Deed(*row) for row in connection.execute(asked)]
