"""Project keys: made, shown once, looked up by their id, revoked (contract, section 4, Projects).

A key is ``fmk_<id>_<secret>``. The secret has 256 random bits, so at rest a plain SHA-256 is
enough: a slow hash protects what people think up, and would cost every request its time. An
unknown id takes the same path as a wrong secret. What was read is remembered for two seconds, so
a key revoked by another process is refused within that time, and one revoked here at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update
from sqlalchemy.sql.expression import Executable

from flowmark_otel import names
from flowmark_otel.backend import audit
from flowmark_otel.backend.browsers import pages_of, publishable
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.errors import Unauthenticated, Unavailable
from flowmark_otel.model import MAX_NAME, Principal, check_text

KINDS: Final = (names.KEY_INGEST, names.KEY_READ, names.KEY_ADMIN, names.KEY_BROWSER)
SENDING_KINDS: Final = frozenset((names.KEY_INGEST, names.KEY_BROWSER))
READING_KINDS: Final = frozenset((names.KEY_READ, names.KEY_ADMIN))
REMEMBERED_SECONDS: Final = 2.0
SERVE: Final = "serve"
"""Who makes the first keys of a store, for the audit."""

_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # Unicode categories
_PREFIX: Final = "fmk"
_ID_ALPHABET: Final = string.ascii_lowercase + string.digits
_ID_LENGTH: Final = 16
_TOKEN: Final = re.compile(r"fmk_([A-Za-z0-9]{1,64})_([A-Za-z0-9]{1,128})")
_SECRET_BYTES: Final = 32
_MAX_REMEMBERED: Final = 1024
_USED_EVERY_NS: Final = 60_000_000_000
_WRITE_SECONDS: Final = 30.0
_NO_HASH: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it may be shown: never its secret; times in epoch nanoseconds.

    ``pages`` and ``events_per_minute`` are those of a browser key.
    """

    key_id: str
    project: str
    kind: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    pages: tuple[str, ...] = ()
    events_per_minute: int | None = None


class _Remembered(NamedTuple):
    """What was read of a key, and when (monotonic seconds)."""

    row: RowMapping
    read_at: float


class _Made(NamedTuple):
    """A key before it is stored, with the secret that is never stored."""

    key_id: str
    secret: str
    kind: str
    expires_at: int | None

    @classmethod
    def of(cls, kind: str, expires_at: int | None) -> _Made:
        key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
        return cls(key_id, secrets.token_hex(_SECRET_BYTES), kind, expires_at)

    @property
    def token(self) -> str:
        return f"{_PREFIX}_{self.key_id}_{self.secret}"

    def insert(self, connection: Connection, project_id: int, now: int, actor: str) -> None:
        row = {
            "id": self.key_id,
            "project_id": project_id,
            "kind": self.kind,
            "secret_hash": _hash(self.secret),
            "created_at": now,
            "expires_at": self.expires_at,
        }
        connection.execute(insert(schema.keys).values(row))
        audit.note(
            connection,
            project_id=project_id,
            at=now,
            actor=actor,
            action=audit.CREATE_KEY,
            subject=_subject(self.key_id, self.kind),
        )


class Keys:
    """The keys of a store; every method may be called from any thread.

    Writes go through the store's one writer. ``authenticate`` never waits for it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = store.clock
        self._remembered: dict[str, _Remembered] = {}
        self._page_origins: frozenset[str] = frozenset()
        self._pages_read_at: float | None = None  # monotonic seconds
        self._used: dict[str, int] = {}  # epoch nanoseconds of the last note, by key id

    def ensure_project(self, name: str) -> int:
        """The id of the project of this name, made if it is missing; raises ValueError."""
        check_project(name)
        now = self._clock.now_ns()

        def job(connection: Connection) -> int:
            return _project(connection, name, now)

        return self._store.write(job).result(_WRITE_SECONDS)

    def create(
        self,
        project: str,
        kind: str,
        expires_at: int | None = None,
        *,
        pages: Sequence[str] = (),
        events_per_minute: int | None = None,
        actor: str = SERVE,
    ) -> tuple[str, str]:
        """Make a key: its id, and the token that is shown this once; ``actor`` is audited.

        ``expires_at`` in epoch nanoseconds. ``pages``: the origins of web pages, which a browser
        key needs and no other takes; ``events_per_minute`` likewise, by default
        ``EVENTS_PER_MINUTE``. Raises ValueError for what cannot be.
        """
        check_project(project)
        if kind not in KINDS:
            msg = f"kind must be one of {', '.join(KINDS)}, found {kind!r}"
            raise ValueError(msg)
        limits = publishable(kind, pages, events_per_minute)
        made = _Made.of(kind, expires_at)
        now = self._clock.now_ns()

        def job(connection: Connection) -> None:
            made.insert(connection, _project(connection, project, now), now, actor)
            if limits is not None:
                row = {"key_id": made.key_id, **limits}
                connection.execute(insert(schema.browser_keys).values(row))

        self._store.write(job).result(_WRITE_SECONDS)
        return made.key_id, made.token

    def list(self) -> list[Key]:
        """All keys, revoked ones too, oldest first."""
        keys, projects, browser = schema.keys.c, schema.projects.c, schema.browser_keys.c
        asked = (
            select(
                keys.id,
                projects.name,
                keys.kind,
                keys.created_at,
                keys.expires_at,
                keys.revoked_at,
                keys.last_used_at,
                browser.pages,
                browser.events_per_minute,
            )
            .join_from(schema.keys, schema.projects)
            .outerjoin(schema.browser_keys, browser.key_id == keys.id)
            .order_by(keys.created_at, keys.id)
        )
        with snapshot(self._store.engine) as connection:
            return [
                Key(*row[:-2], pages_of(row.pages), row.events_per_minute)
                for row in connection.execute(asked)
            ]

    def first(self, project: str) -> tuple[str, str] | None:
        """An ingest and a read key for a store that nobody used yet; None where somebody did.

        Of several servers that start on one store at once, one gets them.
        """
        with snapshot(self._store.engine) as connection:
            if connection.execute(_ANY_PROJECT).first() is not None:
                return None
        made = _Made.of(names.KEY_INGEST, None), _Made.of(names.KEY_READ, None)
        now = self._clock.now_ns()

        def job(connection: Connection) -> bool:
            if connection.execute(_ANY_PROJECT).first() is not None:
                return False
            # Whoever does the same meanwhile waits here, and then finds the project.
            project_id = _project(connection, project, now)
            for key in made:
                key.insert(connection, project_id, now, SERVE)
            return True

        if not self._store.write(job).result(_WRITE_SECONDS):
            return None
        return made[0].token, made[1].token

    def missing(self) -> tuple[str, ...]:
        """The kinds of key that nobody has, of the two that it takes to send and to read."""
        now = self._clock.now_ns()
        active = {key.kind for key in self.list() if _valid(key.revoked_at, key.expires_at, now)}
        senders = SENDING_KINDS - {names.KEY_BROWSER}  # a page can not stand in for a server
        needed = ((names.KEY_INGEST, senders), (names.KEY_READ, READING_KINDS))
        return tuple(kind for kind, any_of in needed if not active & any_of)

    def revoke(self, key_id: str, *, actor: str = SERVE) -> bool:
        """Revoke a key for good, once; False if there is none of this id. ``actor`` is audited."""
        keys = schema.keys
        now = self._clock.now_ns()

        def job(connection: Connection) -> bool:
            asked = select(keys.c.project_id, keys.c.kind).where(keys.c.id == key_id)
            found = connection.execute(asked).one_or_none()
            unrevoked = (keys.c.id == key_id) & keys.c.revoked_at.is_(None)
            changed = connection.execute(update(keys).where(unrevoked).values(revoked_at=now))
            if found is not None and changed.rowcount:
                audit.note(
                    connection,
                    project_id=found.project_id,
                    at=now,
                    actor=actor,
                    action=audit.REVOKE_KEY,
                    subject=_subject(key_id, found.kind),
                )
            return found is not None

        known = self._store.write(job).result(_WRITE_SECONDS)
        self._remembered.pop(key_id, None)
        return known

    def authenticate(self, token: str) -> Principal:
        """Whom a token stands for.

        Raises Unauthenticated, whatever is wrong with it, or Unavailable if the store cannot be
        read.
        """
        key_id, secret = _parse(token)
        row = self._row(key_id)
        known = _NO_HASH if row is None else row["secret_hash"]
        return self._admitted(row, matches=hmac.compare_digest(known, _hash(secret)))

    def principal(self, key_id: str) -> Principal:
        """Whom a key stands for, for a session that was opened with it; raises as above."""
        return self._admitted(self._row(key_id), matches=True)

    def _admitted(self, row: RowMapping | None, *, matches: bool) -> Principal:
        now = self._clock.now_ns()
        valid = row is not None and _valid(row["revoked_at"], row["expires_at"], now)
        if row is None or not matches or not valid:
            msg = "the key is unknown, expired or revoked"
            raise Unauthenticated(msg)
        self._note_use(row, now)
        return Principal(
            row["project_id"],
            row["project"],
            row["kind"],
            row["id"],
            pages_of(row["pages"]),
            row["events_per_minute"],
        )

    def page_origins(self) -> frozenset[str]:
        """The origins of web pages that any valid browser key names; empty where there is none.

        Remembered as keys are; where the store cannot be read what was last known still holds.
        """
        now = self._clock.monotonic()
        if self._pages_read_at is None or now - self._pages_read_at >= REMEMBERED_SECONDS:
            wall = self._clock.now_ns()
            with contextlib.suppress(Unavailable), snapshot(self._store.engine) as connection:
                self._page_origins = frozenset(
                    page
                    for pages, revoked_at, expires_at in connection.execute(_PAGES)
                    if _valid(revoked_at, expires_at, wall)
                    for page in pages_of(pages)
                )
            self._pages_read_at = now
        return self._page_origins

    def _row(self, key_id: str) -> RowMapping | None:
        now = self._clock.monotonic()
        remembered = self._remembered.get(key_id)
        if remembered is not None and now - remembered.read_at < REMEMBERED_SECONDS:
            return remembered.row
        with snapshot(self._store.engine) as connection:
            row = connection.execute(_ASKED, {"key_id": key_id}).mappings().one_or_none()
        if row is None:
            self._remembered.pop(key_id, None)
            return None
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[key_id] = _Remembered(row, now)
        return row

    def _note_use(self, row: RowMapping, now: int) -> None:
        """Keep ``last_used_at`` about right, at most once a minute; nobody waits for it."""
        key_id = row["id"]
        noted = max(row["last_used_at"] or 0, self._used.get(key_id, 0))
        if now - noted < _USED_EVERY_NS:
            return
        if len(self._used) >= _MAX_REMEMBERED:
            self._used.clear()
        self._used[key_id] = now
        keys = schema.keys

        def job(connection: Connection) -> None:
            connection.execute(update(keys).where(keys.c.id == key_id).values(last_used_at=now))

        try:
            self._store.write(job)
        except Unavailable:
            # The store is closing: the request is answered by its own verdict, not by this one.
            self._used.pop(key_id, None)


_ANY_PROJECT: Final = select(schema.projects.c.id).limit(1)
_ASKED: Final[Executable] = (
    select(
        schema.keys,
        schema.projects.c.name.label("project"),
        schema.browser_keys.c.pages,
        schema.browser_keys.c.events_per_minute,
    )
    .join_from(schema.keys, schema.projects)
    .outerjoin(schema.browser_keys, schema.browser_keys.c.key_id == schema.keys.c.id)
    .where(schema.keys.c.id == bindparam("key_id"))
)
_PAGES: Final[Executable] = select(
    schema.browser_keys.c.pages, schema.keys.c.revoked_at, schema.keys.c.expires_at
).join_from(schema.browser_keys, schema.keys)


def check_project(name: str) -> None:
    """Raises ValueError, naming the rule, for a name that a project cannot have."""
    check_text("the project's name", name, MAX_NAME)
    if any(unicodedata.category(character) in _UNSEEN for character in name):
        msg = f"the project's name must hold no control characters, found {name!r}"
        raise ValueError(msg)


def bearer(authorization: str | None) -> str:
    """The token in an ``authorization`` header; raises Unauthenticated where there is none."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        msg = "send the header: authorization: Bearer fmk_..."
        raise Unauthenticated(msg)
    return token


def _parse(token: str) -> tuple[str, str]:
    match = _TOKEN.fullmatch(token)
    if match is None:
        msg = "the key has not the form fmk_<id>_<secret>"
        raise Unauthenticated(msg)
    return match[1], match[2]


def _subject(key_id: str, kind: str) -> str:
    return f"{key_id} ({kind})"


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _valid(revoked_at: int | None, expires_at: int | None, now: int) -> bool:
    return revoked_at is None and (expires_at is None or now < expires_at)


def _project(connection: Connection, name: str, now: int) -> int:
    projects = schema.projects
    asked = select(projects.c.id).where(projects.c.name == name)
    found = connection.execute(asked).scalar()
    if found is None:
        made = insert(projects).values(name=name, created_at=now).returning(projects.c.id)
        found = connection.execute(made).scalar_one()
    return int(found)
