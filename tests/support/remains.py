"""What a store still holds of anything, table by table."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, select

from flowmark_otel.backend.store import Store, schema

EVIDENCE: Final = (schema.runs, schema.events, schema.occurrences, schema.rejections)


def counted(connection: Connection) -> dict[str, int]:
    """How many rows there are of each table that holds evidence; those with none are left out."""
    found = {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in EVIDENCE
    }
    return {name: count for name, count in found.items() if count}


def held(store: Store) -> dict[str, int]:
    """As ``counted``, of what is stored now."""
    with store.engine.connect() as connection:
        return counted(connection)


def usage(store: Store, project_id: int = 1) -> tuple[int, int]:
    """The events and groups that a project is counted with."""
    columns = schema.usage.c
    with store.engine.connect() as connection:
        row = connection.execute(
            select(
                func.coalesce(func.sum(columns.events), 0),
                func.coalesce(func.sum(columns.groups), 0),
            ).where(columns.project_id == project_id)
        ).one()
    return int(row[0]), int(row[1])
