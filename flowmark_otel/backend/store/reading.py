"""Reading the store: one snapshot, and what a fault of the database means to whoever reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, TimeoutError as PoolExhausted

from flowmark_otel.errors import Unavailable


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection whose reads agree with each other; it does not wait for the writer.

    Raises Unavailable where the database cannot be read, now or any more.
    """
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except (DBAPIError, PoolExhausted, engine.dialect.loaded_dbapi.Error) as error:
        msg = f"the store cannot be read now: {said(error)}"
        raise Unavailable(msg) from error


def said(error: Exception) -> str:
    """What the database says of a fault, without what its wrappers say of themselves."""
    if isinstance(error, PoolExhausted):
        return "all connections are in use"
    return str(error.orig if isinstance(error, DBAPIError) else error)
