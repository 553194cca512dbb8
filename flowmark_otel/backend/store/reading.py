"""Reading the store: one snapshot, and what a fault of the database means to whoever reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, TimeoutError as PoolExhausted

from flowmark_otel.errors import Unavailable

READ_SECONDS: Final = 10.0
"""How long one answer may read."""

_TOO_LONG: Final = "reading took too long; ask for a shorter time or fewer at once"
_ENDED: Final = ("interrupted", "canceling statement due to statement timeout")
_CHECKED_EVERY: Final = 20_000  # steps of SQLite's machine: well below a millisecond each


@contextmanager
def snapshot(engine: Engine, seconds: float | None = None) -> Iterator[Connection]:
    """A connection whose reads agree with each other; it does not wait for the writer.

    Raises Unavailable where the database cannot be read, now or any more, or where the statements
    go on after ``seconds``.
    """
    try:
        with engine.connect() as connection, connection.begin():
            if seconds is None:
                yield connection
            else:
                with _limited(connection, seconds):
                    yield connection
    except (DBAPIError, PoolExhausted, engine.dialect.loaded_dbapi.Error) as error:
        msg = f"the store cannot be read now: {said(error)}"
        raise Unavailable(msg) from error


@contextmanager
def _limited(connection: Connection, seconds: float) -> Iterator[None]:
    """End statements that run for too long, so that no reader hangs."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT set_config('statement_timeout', :most, true)"),
            {"most": str(max(int(seconds * 1000), 1))},
        )
        yield
        return
    driver: Any = connection.connection.driver_connection
    until = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > until, _CHECKED_EVERY)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def said(error: Exception) -> str:
    """What the database says of a fault, without what its wrappers say of themselves."""
    if isinstance(error, PoolExhausted):
        return "all connections are in use"
    told = str(error.orig if isinstance(error, DBAPIError) else error)
    return _TOO_LONG if told.startswith(_ENDED) else told
