"""A large store on PostgreSQL: the rows of one on SQLite, what is derived of them included."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.types.string import BytesBinaryDumper

from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store, schema
from flowmark_otel.backend.store.postgresql.statements import Copy
from flowmark_otel.backend.summary import search

_PIECE: Final = 50_000  # rows
_MADE: Final = (schema.meta, schema.projects)  # a store has its own


def copy(path: Path, url: str) -> None:
    """Copy the rows of a store on SQLite into an empty one on PostgreSQL, by COPY.

    Both have one project. What is in the full text is made of the summaries.
    """
    store = open_store(url)
    Keys(store).ensure_project("default")
    store.close()
    with closing(sqlite3.connect(path)) as old, psycopg.connect(url, autocommit=True) as new:
        new.adapters.register_dumper(bytes, BytesBinaryDumper)
        for table in schema.metadata.sorted_tables:
            if table not in _MADE:
                names = list(table.c.keys())
                given = ", ".join(names)
                rows = old.execute(f"SELECT {given} FROM {table.name}")  # noqa: S608  own names
                into = Copy(table, names, ())
                for some in _pieces(rows):
                    into.run(new, some)
        words = old.execute("SELECT project_id, run, body FROM summaries ORDER BY run")
        for some in _pieces(words):
            with new.cursor().copy("COPY search (run, body) FROM STDIN") as copying:
                for project_id, run, body in some:
                    vector = search.vector(search.code_of(project_id), body)
                    copying.write_row((run, vector))
        new.execute("VACUUM ANALYZE")  # as the server does by itself, in time


def _pieces(rows: sqlite3.Cursor) -> Iterator[Sequence[Any]]:
    while some := rows.fetchmany(_PIECE):
        yield some
