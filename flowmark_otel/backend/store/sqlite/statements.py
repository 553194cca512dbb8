"""SQL text of the writer, compiled once from the tables and widened to many rows a statement.

The driver gives up the interpreter lock at every step of a statement and has to win it back from
busy threads, each time for up to a switch interval. One statement for many rows steps once;
beside one busy thread that was eleven times as fast as ``executemany``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from sqlalchemy import Table, bindparam, insert
from sqlalchemy.dialects import sqlite

from flowmark_otel.backend.store.database import Row

MAX_VARIABLES: Final = 32_766
_LARGEST: Final = 1024
DIALECT: Final = sqlite.dialect(paramstyle="qmark")


class Statements:
    """Implements ``database.Dialect``."""

    def insert(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        order: Sequence[str] = (),
        ignore: bool = False,
    ) -> Insert:
        """Rows of a table, many a statement."""
        return Insert(table, without=without, order=order, ignore=ignore)

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


class _Texts(dict[int, str]):
    """The text of a statement by its number of rows, each made once.

    Numbers are powers of two (``chunks``), so there are few. Two threads may make the same one.
    """

    def __init__(self, head: str, row: str, tail: str = "") -> None:
        super().__init__()
        self._head, self._row, self._tail = head, row, tail

    def __missing__(self, rows: int) -> str:
        text = self[rows] = f"{self._head}{', '.join([self._row] * rows)}{self._tail}"
        return text


class _Widened:
    """A statement of many rows."""

    _text_of: _Texts

    def text(self, rows: int) -> str:
        """The statement for so many rows."""
        return self._text_of[rows]


class Insert(_Widened):
    """Inserts rows given as tuples of all columns of a table, in their order."""

    def __init__(
        self,
        table: Table,
        *,
        without: Sequence[str] = (),
        order: Sequence[str] = (),
        ignore: bool = False,
    ) -> None:
        del order  # there is one writer
        columns = [column.name for column in table.columns if column.name not in without]
        compiled = insert(table).values({name: bindparam(name) for name in columns})
        if ignore:
            compiled = compiled.prefix_with("OR IGNORE")
        head, values = str(compiled.compile(dialect=DIALECT)).split(" VALUES ")
        self._text_of = _Texts(f"{head} VALUES ", values)
        self._width = len(columns)

    def run(self, connection: sqlite3.Connection, rows: Sequence[Sequence[object]]) -> None:
        """Insert all rows, in order."""
        self.run_flat(connection, list(chain.from_iterable(rows)))

    def run_flat(self, connection: sqlite3.Connection, values: list[object]) -> None:
        """Insert rows whose values stand one after the other in one list."""
        width = self._width
        for start, stop in chunks(len(values) // width, width):
            chunk = values[start * width : stop * width]
            connection.execute(self.text(stop - start), chunk)


class Update(_Widened):
    """Sets ``columns`` of rows that exist, given as tuples of ``key`` and those columns.

    Only what may have changed should be named: an index is rewritten for every column that is.
    """

    def __init__(self, table: Table, key: Sequence[str], columns: Sequence[str]) -> None:
        quote = DIALECT.identifier_preparer.quote
        name = quote(table.name)
        given = [quote(column) for column in (*key, *columns)]
        sets = ", ".join(f"{column} = given.{column}" for column in given[len(key) :])
        match = " AND ".join(f"{name}.{column} = given.{column}" for column in given[: len(key)])
        self._text_of = _Texts(
            f"WITH given ({', '.join(given)}) AS (VALUES ",
            f"({', '.join('?' * len(given))})",
            f") UPDATE {name} SET {sets} FROM given WHERE {match}",  # noqa: S608  own names
        )
        self._width = len(given)

    def run(self, connection: sqlite3.Connection, rows: Sequence[Sequence[object]]) -> None:
        """Update all rows."""
        for start, stop in chunks(len(rows), self._width):
            values = list(chain.from_iterable(rows[start:stop]))
            connection.execute(self.text(stop - start), values)


class Seek(_Widened):
    """Selects what many keys name: a join of the given keys with an index, seek by seek.

    A ``CROSS JOIN`` fixes the order of the loops; ``IN (VALUES …)`` scans the index instead.
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
        on = [f"t.{key} = given.{key}" for key in keys] + [f"t.{name} = ?" for name in fixed]
        on += [also] * bool(also)
        self._text_of = _Texts(
            f"WITH given ({', '.join(keys)}) AS (VALUES ",
            f"({', '.join('?' * len(keys))})",
            f") SELECT {', '.join(columns)} FROM given CROSS JOIN {table.name} AS t"  # noqa: S608  own names
            f" ON {' AND '.join(on)} {tail}",
        )
        self._width = len(keys)

    def run(
        self,
        connection: sqlite3.Connection,
        keys: Sequence[Sequence[object]],
        fixed: Sequence[object] = (),
    ) -> Iterator[Row]:
        """The rows that the keys name; ``fixed`` are the values of the fixed columns."""
        for start, stop in chunks(len(keys), self._width, spare=len(fixed)):
            parameters = [*chain.from_iterable(keys[start:stop]), *fixed]
            yield from connection.execute(self.text(stop - start), parameters).fetchall()


def chunks(rows: int, width: int, *, spare: int = 0) -> Iterator[tuple[int, int]]:
    """Where to cut so many rows: pieces of powers of two, so that few statements serve all."""
    size = _LARGEST
    while size * width + spare > MAX_VARIABLES:
        size //= 2
    start = 0
    while start < rows:
        while size > rows - start:
            size //= 2
        yield start, start + size
        start += size
