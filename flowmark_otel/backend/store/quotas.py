"""The quotas that projects have of their own, and what they hold (contract, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, insert, select, update

from flowmark_otel.backend.holding import Limits
from flowmark_otel.backend.store import schema

UNLIMITED: Final = -1
"""In the table: no limit, whatever ``serve`` was told. Null there is what it was told."""


@dataclass(frozen=True, slots=True)
class Usage:
    """One project: what it holds, and its own quotas, None where those of ``serve`` hold."""

    project: str
    held: Limits
    quotas: Limits


def change(connection: Connection, project_id: int, quotas: Mapping[str, int | None]) -> None:
    """Set quotas of a project by their names; None is the default again."""
    table = schema.quotas
    mine = table.c.project_id == project_id
    if connection.execute(select(table.c.project_id).where(mine)).fetchone() is None:
        connection.execute(insert(table).values(project_id=project_id))
    if quotas:
        connection.execute(update(table).where(mine).values(dict(quotas)))


def usage(connection: Connection) -> list[Usage]:
    """All projects, by name."""
    projects, quotas = schema.projects.c, schema.quotas.c
    held, known = schema.usage.c, schema.known_names.c
    counted = [
        select(func.coalesce(func.sum(held.events), 0)).where(held.project_id == projects.id),
        select(func.count()).where(known.project_id == projects.id, known.operation == ""),
        select(func.count()).where(known.project_id == projects.id, known.operation != ""),
        select(func.coalesce(func.sum(held.groups), 0)).where(held.project_id == projects.id),
    ]
    asked = (
        select(
            projects.name,
            *(one.scalar_subquery() for one in counted),
            quotas.events,
            quotas.workflows,
            quotas.operations,
            quotas.groups,
        )
        .join_from(schema.projects, schema.quotas, quotas.project_id == projects.id, isouter=True)
        .order_by(projects.name)
    )
    width = len(Limits._fields)
    return [
        Usage(row[0], Limits(*map(int, row[1 : 1 + width])), Limits(*row[1 + width :]))
        for row in connection.execute(asked)
    ]
