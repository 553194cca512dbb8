"""SQL text of the writer for PostgreSQL: rows go by COPY, keys and changes as arrays.

One statement, one round trip, however many rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import psycopg
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

from flowmark_otel.backend.store.database import Row

_DIALECT: Final = postgresql.dialect()  # type: ignore[no-untyped-call]


def type_of(table: Table, column: str) -> str:
    """The name of a column's type, as the server knows it."""
    found: str = table.columns[column].type.compile(dialect=_DIALECT)
    return {"VARCHAR": "text", "BIGSERIAL": "bigint"}.get(found, found.lower())


def array(table: Table, column: str) -> str:
    """A parameter that holds many values of a column."""
    return f"%b::{type_of(table, column)}[]"


def columns_of(rows: Sequence[Sequence[object]], width: int) -> list[list[object]]:
    """Rows turned into one list a column."""
    return [[row[index] for row in rows] for index in range(width)]


def rows_of(values: list[Any], width: int) -> list[tuple[Any, ...]]:
    """One list cut into rows."""
    return list(zip(*[iter(values)] * width, strict=True))


class Statements:
    """Implements ``database.Dialect``."""

    def insert(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        order: Sequence[str] = (),
        ignore: bool = False,
    ) -> Copy | InsertNew:
        """By COPY, which is the fastest, or where it cannot be, from arrays."""
        names = [column.name for column in table.columns if column.name not in without]
        return InsertNew(table, names) if ignore else Copy(table, names, order)

    def update(self, table: Table, key: Sequence[str], columns: Sequence[str]) -> Update:
        """Columns of many rows a statement."""
        return Update(table, key, columns)

    def seek(
        self,
        table: Table,
        keys: Sequence[str],
        columns: Sequence[str],
        *,
        fixed: Sequence[str] = (),
        also: str = "",
        tail: str = "",
    ) -> Seek:
        """Rows by many keys a statement."""
        return Seek(table, keys, columns, fixed=fixed, also=also, tail=tail)


class Copy:
    """Inserts rows by COPY in the binary format, in the order of the columns ``order``."""

    def __init__(self, table: Table, names: Sequence[str], order: Sequence[str]) -> None:
        self._text = f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
        self._types = [type_of(table, name) for name in names]
        self._width = len(names)
        self._order = itemgetter(*map(names.index, order)) if order else None

    def run(self, driver: psycopg.Connection, rows: Sequence[Sequence[object]]) -> None:
        """Insert all rows."""
        if not rows:
            return
        ordered = rows if self._order is None else sorted(rows, key=self._order)
        with driver.cursor() as cursor, cursor.copy(self._text) as copy:
            copy.set_types(self._types)
            write_row = copy.write_row
            for row in ordered:
                write_row(row)

    def run_flat(self, driver: psycopg.Connection, values: list[Any]) -> None:
        """Insert rows whose values stand one after the other in one list."""
        self.run(driver, rows_of(values, self._width))


class InsertNew:
    """Inserts the rows that no unique constraint forbids."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        self._width = len(names)
        self._text = (
            f"INSERT INTO {table.name} ({', '.join(names)}) SELECT *"  # noqa: S608  own names
            f" FROM unnest({', '.join(array(table, name) for name in names)})"
            " ON CONFLICT DO NOTHING"
        )

    def run(self, driver: psycopg.Connection, rows: Sequence[Sequence[object]]) -> None:
        """Insert all rows, in order."""
        if rows:
            driver.execute(self._text, columns_of(rows, self._width))

    def run_flat(self, driver: psycopg.Connection, values: list[Any]) -> None:
        """Insert rows whose values stand one after the other in one list."""
        self.run(driver, rows_of(values, self._width))


class Update:
    """Sets ``columns`` of rows that exist, given as tuples of ``key`` and those columns."""

    def __init__(self, table: Table, key: Sequence[str], columns: Sequence[str]) -> None:
        names = [*key, *columns]
        self._width = len(names)
        self._text = (
            f"UPDATE {table.name} AS t SET"  # noqa: S608  own names
            f" {', '.join(f'{name} = given.{name}' for name in columns)}"
            f" FROM unnest({', '.join(array(table, name) for name in names)})"
            f" AS given ({', '.join(names)})"
            f" WHERE {' AND '.join(f't.{name} = given.{name}' for name in key)}"
        )

    def run(self, driver: psycopg.Connection, rows: Sequence[Sequence[object]]) -> None:
        """Update all rows."""
        if rows:
            driver.execute(self._text, columns_of(rows, self._width))


class Seek:
    """Selects what many keys name: a join of the given keys with an index, seek by seek.

    ``LATERAL`` fixes the order of the loops, ``OFFSET`` keeps the planner from undoing that: what
    it knows of a table's size is old.
    """

    def __init__(
        self,
        table: Table,
        keys: Sequence[str],
        columns: Sequence[str],
        *,
        fixed: Sequence[str] = (),
        also: str = "",
        tail: str = "",
    ) -> None:
        self._width = len(keys)
        on = [f"t.{key} = given.{key}" for key in keys]
        on += [f"t.{name} = %b::{type_of(table, name)}" for name in fixed]
        on += [also] * bool(also)
        self._text = (
            f"SELECT {', '.join(columns)}"  # noqa: S608  own names
            f" FROM unnest({', '.join(array(table, key) for key in keys)})"
            f" AS given ({', '.join(keys)})"
            f" CROSS JOIN LATERAL (SELECT * FROM {table.name} AS t"
            f" WHERE {' AND '.join(on)} OFFSET 0) AS t {tail}"
        )

    def run(
        self,
        driver: psycopg.Connection,
        keys: Sequence[Sequence[object]],
        fixed: Sequence[object] = (),
    ) -> Iterator[Row]:
        """The rows that the keys name; ``fixed`` are the values of the fixed columns."""
        if not keys:
            return
        with driver.cursor(binary=True) as cursor:
            cursor.execute(self._text, [*columns_of(keys, self._width), *fixed])
            yield from cursor.fetchall()
