"""Ids of terms and series: few and repeated, so the latest are remembered."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Table, delete, exists, insert, select

from flowmark_otel.backend.evidence import chunks
from flowmark_otel.backend.store import derived, schema
from flowmark_otel.backend.summary.folding import ERROR_CODE, OPERATION, WORKFLOW, Term

Series: TypeAlias = tuple[str, str, str]
"""Origin, workflow, operation name; of all runs of an origin the last two are empty."""

_REMEMBERED: Final = 50_000
_REMOVAL: Final = "names_removal"  # a row of meta that changes when names are removed
_TERM: Final = ("kind", "value")
_SERIES: Final = ("origin", "workflow", "operation")


class Ids:
    """Owned by whoever folds, one transaction after the other.

    ``begin`` must come first in a transaction, ``forget`` must follow a rollback: ids that are
    remembered may be gone.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, tuple[str, ...]], int] = {}
        self._removal: str | None = None

    def begin(self, connection: Connection) -> None:
        """Remember nothing from before the latest removal of names, by whatever process."""
        latest = connection.execute(
            select(schema.meta.c.value).where(schema.meta.c.name == _REMOVAL)
        ).scalar()
        if latest != self._removal:
            self.forget()
            self._removal = latest

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


def remove_unused(connection: Connection, terms: Iterable[int], series: Iterable[int] = ()) -> None:
    """Remove those terms and series of which nothing is kept any more: names are evidence too.

    Terms that are no names stay: there are few, and they come back.
    """
    removed = 0
    for some in chunks(terms):
        table = derived.terms
        used = exists().where(derived.postings.c.term == table.c.id)
        named = (table.c.id.in_(some), table.c.kind.in_((WORKFLOW, OPERATION, ERROR_CODE)))
        removed += connection.execute(delete(table).where(*named, ~used)).rowcount
    for some in chunks(series):
        table = derived.series
        summed = exists().where(derived.rollups.c.series == table.c.id)
        spread = exists().where(derived.rollup_values.c.series == table.c.id)
        gone = (table.c.id.in_(some), ~summed, ~spread)
        removed += connection.execute(delete(table).where(*gone)).rowcount
    if removed:
        note_removal(connection)


def note_removal(connection: Connection) -> None:
    """Let all who remember ids know that some are gone."""
    connection.execute(delete(schema.meta).where(schema.meta.c.name == _REMOVAL))
    connection.execute(insert(schema.meta).values(name=_REMOVAL, value=uuid.uuid4().hex))
