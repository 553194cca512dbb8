"""Who has signed in to the pages: an opaque cookie for a read key, kept in the store.

So it holds whichever process answers, and through a restart. Every request authenticates the key
again: a revoked or expired one ends its sessions at once. What is stored is a digest of the cookie
and the key's id, so that neither a backup nor a reader of the file holds a way in.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from concurrent.futures import TimeoutError as TookTooLong
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from flowmark_otel.backend.keys import READING_KINDS, Keys
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.errors import Forbidden, Unauthenticated, Unavailable
from flowmark_otel.model import Principal

LIFETIME: Final = 12 * 60 * 60
"""Seconds after which one has to sign in again."""

MOST: Final = 1_000
"""Sessions of a store; the one that ends first makes room."""

_PREFIX: Final = "session/"
_WRITE_SECONDS: Final = 10.0


class Sessions:
    """All sessions of a store, rows of its ``meta`` table; every method from any thread.

    They are few and short-lived, and no evidence: a table of their own would be a change of schema
    for nothing.
    """

    lifetime: Final = LIFETIME

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    def open(self, key: str) -> str:
        """Sign in with a read key and return the value of the cookie.

        Raises Unauthenticated, Forbidden where the key is not one for reading, or Unavailable.
        """
        principal = _reading(self._keys.authenticate(key))
        token = secrets.token_urlsafe(32)
        now = self._store.clock.now_ns()
        row = {"name": _name(token), "value": f"{now + LIFETIME * 10**9} {principal.key_id}"}

        def job(connection: Connection) -> None:
            _make_room(connection, now)
            connection.execute(insert(schema.meta).values(row))

        self._write(job)
        return token

    def principal(self, token: str | None) -> Principal:
        """Whom a cookie stands for. Raises Unauthenticated, Forbidden or Unavailable."""
        value = self._value(token) if token else None
        if value is not None:
            ends, _, key_id = value.partition(" ")
            if self._store.clock.now_ns() < int(ends):
                return _reading(self._keys.principal(key_id))
        msg = "not signed in"
        raise Unauthenticated(msg)

    def close(self, token: str | None) -> None:
        """Sign out, for every process at once; nothing if not signed in. Raises Unavailable."""
        if token and self._value(token) is not None:
            meta = schema.meta
            ending = delete(meta).where(meta.c.name == _name(token))
            self._write(lambda connection: connection.execute(ending))

    def _value(self, token: str) -> str | None:
        meta = schema.meta
        with snapshot(self._store.engine) as connection:
            asked = select(meta.c.value).where(meta.c.name == _name(token))
            return connection.execute(asked).scalar_one_or_none()

    def _write(self, job: Callable[[Connection], object]) -> None:
        waiting = self._store.write(job)
        try:
            waiting.result(_WRITE_SECONDS)
        except TookTooLong as error:
            waiting.cancel()
            msg = "the store did not answer in time"
            raise Unavailable(msg) from error


def _make_room(connection: Connection, now: int) -> None:
    """Forget sessions that ended, and of the others all but the latest."""
    meta = schema.meta
    asked = select(meta.c.value, meta.c.name).where(meta.c.name.startswith(_PREFIX))
    found = sorted((int(row[0].partition(" ")[0]), row[1]) for row in connection.execute(asked))
    ended = sum(ends <= now for ends, _ in found)
    for _, name in found[: max(ended, len(found) - MOST + 1)]:
        connection.execute(delete(meta).where(meta.c.name == name))


def _reading(principal: Principal) -> Principal:
    if principal.kind not in READING_KINDS:
        msg = "not a key for reading"
        raise Forbidden(msg)
    return principal


def _name(token: str) -> str:
    digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_PREFIX}{digest}"
