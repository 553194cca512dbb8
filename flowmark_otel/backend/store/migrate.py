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
from flowmark_otel.backend.store.sqlite import BACKEND_ID, engine
from flowmark_otel.errors import SchemaMismatch

REVISIONS: Final = ("0001", "0002")
"""All revisions, oldest first; the last is this version's. A test compares the scripts."""

_SCRIPTS: Final = Path(__file__).with_name("migrations")


def bring_up(path: Path, url: str, *, migrate: bool) -> None:
    """Make sure the file has this version's schema; raises SchemaMismatch where it may not be."""
    opened = engine(path, read_only=False)
    try:
        with opened.connect() as connection, connection.begin():
            found = revision(connection)
            head = REVISIONS[-1]
            if found == head:
                return
            if found is None and inspect(connection).get_table_names():
                msg = f"{path} is a database, but no store of flowmark-otel"
                raise SchemaMismatch(msg)
            if found is not None and found not in REVISIONS:
                msg = (
                    f"the store has schema {found}, which is newer than this version's {head}:"
                    f" upgrade the package, then run flowmark-otel migrate --db {url}"
                )
                raise SchemaMismatch(msg)
            if found is not None and not migrate:
                msg = (
                    f"the store has schema {found}, this version needs {head}:"
                    f" run flowmark-otel migrate --db {url}"
                )
                raise SchemaMismatch(msg)
            upgrade(connection)
            if found is None:
                connection.execute(
                    insert(schema.meta).values(name=BACKEND_ID, value=uuid.uuid4().hex)
                )
    finally:
        opened.dispose()


def revision_of(path: Path) -> str | None:
    """The revision that the store in a file is at; None where it has none."""
    opened = engine(path, read_only=True)
    try:
        with opened.connect() as connection:
            return revision(connection)
    finally:
        opened.dispose()


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
