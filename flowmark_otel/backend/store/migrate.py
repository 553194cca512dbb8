"""The store's schema: made where there is none, upgraded only when asked.

Alembic is loaded only where there is something to change; a store that is up to date opens
without it.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, column, insert, inspect, select, table

from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import Database
from flowmark_otel.backend.store.store import BACKEND_ID
from flowmark_otel.errors import SchemaMismatch

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006")
"""All revisions, oldest first; the last is this version's. A test compares the scripts."""

_SCRIPTS: Final = Path(__file__).with_name("migrations")


def bring_up(database: Database, *, migrate: bool) -> None:
    """Make sure the store has this version's schema; raises SchemaMismatch where it may not be.

    Of several processes that start at once one makes the schema, the others wait for it.
    """
    engine = database.writing()
    with engine.connect() as connection:
        with connection.begin():
            if revision(connection) == REVISIONS[-1]:
                return
        with connection.begin():
            database.lock_schema(connection)
            _bring_up(connection, database, migrate=migrate)


def _bring_up(connection: Connection, database: Database, *, migrate: bool) -> None:
    found = revision(connection)
    head = REVISIONS[-1]
    if found == head:
        return
    if found is None and inspect(connection).get_table_names():
        msg = f"{database.name} is a database, but no store of flowmark-otel"
        raise SchemaMismatch(msg)
    command = f"flowmark-otel migrate --db {database.url}"
    if found is not None and found not in REVISIONS:
        msg = (
            f"the store has schema {found}, which is newer than this version's {head}:"
            f" upgrade the package, then run {command}"
        )
        raise SchemaMismatch(msg)
    if found is not None and not migrate:
        msg = f"the store has schema {found}, this version needs {head}: run {command}"
        raise SchemaMismatch(msg)
    upgrade(connection)
    if found is None:
        connection.execute(insert(schema.meta).values(name=BACKEND_ID, value=uuid.uuid4().hex))


def revision_of(database: Database) -> str | None:
    """The revision that a store is at; None where it has none."""
    engine = database.readers()
    try:
        with engine.connect() as connection:
            return revision(connection)
    finally:
        engine.dispose()


def revision(connection: Connection) -> str | None:
    """The revision a store is at; None where it has none."""
    versions = table("alembic_version", column("version_num"))
    if not inspect(connection).has_table(versions.name):
        return None
    found = connection.execute(select(versions.c.version_num)).scalar()
    return None if found is None else str(found)


def upgrade(connection: Connection) -> None:
    """Run the migrations up to the newest in the transaction of the connection."""
    from alembic import command  # noqa: PLC0415  costs a tenth of a second, rarely needed
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
