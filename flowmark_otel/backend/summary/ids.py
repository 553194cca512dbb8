"""Ids of terms and series: few and repeated, so the latest are remembered."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Table, insert, select

from flowmark_otel.backend.store import derived
from flowmark_otel.backend.summary.folding import Term

Series: TypeAlias = tuple[str, str, str]
"""Origin, workflow, operation name; of all runs of an origin the last two are empty."""

_REMEMBERED: Final = 50_000
_TERM: Final = ("kind", "value")
_SERIES: Final = ("origin", "workflow", "operation")


class Ids:
    """Owned by whoever folds, one transaction after the other.

    ``forget`` must follow a rollback: ids that were given since may be gone.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, tuple[str, ...]], int] = {}

    def forget(self) -> None:
        """Remember nothing."""
        self._known.clear()

    def term(self, connection: Connection, project_id: int, term: Term) -> int:
        """The id of a term, stored in the running transaction if it is new."""
        return self._id(connection, derived.terms, project_id, _TERM, term)

    def series(self, connection: Connection, project_id: int, series: Series) -> int:
        """The id of a series, likewise."""
        return self._id(connection, derived.series, project_id, _SERIES, series)

    def _id(
        self,
        connection: Connection,
        table: Table,
        project_id: int,
        columns: tuple[str, ...],
        values: tuple[str, ...],
    ) -> int:
        key = (table.name, project_id, values)
        found = self._known.get(key)
        if found is None:
            named: dict[str, Any] = {
                "project_id": project_id,
                **dict(zip(columns, values, strict=True)),
            }
            found = connection.execute(
                select(table.c.id).where(*(table.c[name] == named[name] for name in named))
            ).scalar()
            if found is None:
                made = connection.execute(insert(table), named).inserted_primary_key
                found = made[0] if made else None
            if len(self._known) >= _REMEMBERED:
                self.forget()
            self._known[key] = found = int(found or 0)
        return found
