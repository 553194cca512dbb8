"""PostgreSQL: how connections are made, how runs are claimed, where ids come from.

READ COMMITTED for writers, so that each statement sees what others committed before it; REPEATABLE
READ for readers, so that a transaction is one snapshot. Every wait has an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel
from psycopg.types.string import BytesBinaryDumper
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.pool import NullPool, QueuePool

from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import Fault, Row, driver_of
from flowmark_otel.backend.store.postgresql.faults import fault_of, refusal_of, said
from flowmark_otel.backend.store.postgresql.statements import Statements, array, columns_of
from flowmark_otel.errors import ConfigurationError

CONNECT_SECONDS: Final = 5
LOCK_MS: Final = 5_000
WRITE_MS: Final = 10_000
READ_MS: Final = 30_000
_POOL_SECONDS: Final = 5.0
_READERS: Final = 8
_WRITERS: Final = 2
_SCHEMA_LOCK: Final = 0x666C_6F77_6D61_726B  # "flowmark"

_CLAIMED: Final = ("key", "project_id", "origin", "workflow", "run_id")
# Ids in the order of the request, rows in the order of their keys.
_CLAIM: Final = (
    f"INSERT INTO runs (id, {', '.join(_CLAIMED)}, first_received_at, last_received_at)"  # noqa: S608  own names
    " SELECT given.*, %b::bigint, %b::bigint"
    f" FROM (SELECT nextval('runs_id_seq'), named.*"
    f" FROM unnest({', '.join(array(schema.runs, name) for name in _CLAIMED)}) AS named) AS given"
    f" (id, {', '.join(_CLAIMED)}) ORDER BY given.key"
    " ON CONFLICT (key) DO NOTHING RETURNING key"
)
_LOCK: Final = "SELECT key FROM runs WHERE key = ANY(%b) ORDER BY key FOR UPDATE"
_HOLD: Final = "SELECT 1 FROM runs WHERE id = ANY(%b) FOR UPDATE SKIP LOCKED"
_THERE: Final = "SELECT 1 FROM runs WHERE id = ANY(%b)"
_UNCLAIM: Final = "DELETE FROM runs WHERE key = ANY(%b)"
# As one value: a row for each costs as much as to write the event.
_EVENT_IDS: Final = "SELECT array_agg(nextval('events_id_seq')) FROM generate_series(1, %b::int)"
_SCOPE: Final = "(hashtextextended('rejections ' || %b::bigint || %b::text, 0))"
_LOCK_REJECTIONS: Final = f"SELECT pg_advisory_xact_lock{_SCOPE}"
_AWAIT_REJECTIONS: Final = f"SELECT pg_advisory_xact_lock_shared{_SCOPE}"


class RunGone(psycopg.errors.SerializationFailure):
    """A run was deleted between being found and being held; another try makes it anew."""


class Overtaken(psycopg.errors.SerializationFailure):
    """An event id was accepted after it was looked for, to be rejected; another try meets it."""


class RunHeld(psycopg.errors.SerializationFailure):
    """A run that a conflict concerns is held by another transaction; the next try claims it."""


class PostgresqlDatabase:
    """Implements ``database.Database`` on a database that is there; it makes the tables alone.

    The row of a run is the lock of all that is judged within it. Rows of new runs are inserted
    first, those that were there are locked after, both sorted by key: whoever waits for the second
    kind holds nothing that somebody in front of the first kind's lock waits for, so no circle.
    """

    writers: Final = _WRITERS

    def __init__(self, url: URL) -> None:
        """Raises ConfigurationError where the URL names no database."""
        if not url.database:
            fault = "--db: name the database: postgresql://user@host/database"
            raise ConfigurationError([fault])
        self._url = url.set(drivername="postgresql+psycopg")
        self.url = url.set(drivername="postgresql").render_as_string(hide_password=True)
        self.name = self.url
        self.dialect = Statements()

    def create(self) -> None:
        """Nothing; whoever runs a server makes its databases."""

    def exists(self) -> bool:
        """Whether to connect; what is there the connection tells."""
        return True

    def readers(self) -> Engine:
        """Pooled connections whose transactions are read only and one snapshot each."""
        made = self._engine(
            poolclass=QueuePool,
            pool_size=_READERS,
            max_overflow=_READERS,
            pool_timeout=_POOL_SECONDS,
            pool_pre_ping=True,
        )

        @event.listens_for(made, "connect")
        def connected(driver: psycopg.Connection, _record: object) -> None:
            driver.execute(f"SET statement_timeout = {READ_MS}")
            driver.commit()
            driver.isolation_level = IsolationLevel.REPEATABLE_READ
            driver.read_only = True

        return made

    def writing(self) -> Engine:
        """Connections whose statements are seeks, whatever the planner thinks of the tables.

        What a store holds grows a hundredfold before statistics say so; each row the writer reads
        is found by a key, and a plan that scans for them would wait on itself.
        """
        made = self._engine(poolclass=NullPool)

        @event.listens_for(made, "connect")
        def connected(driver: psycopg.Connection, _record: object) -> None:
            driver.isolation_level = IsolationLevel.READ_COMMITTED
            # The last one registered serves COPY; the one of the DB-API's type is slow.
            driver.adapters.register_dumper(bytes, BytesBinaryDumper)
            for name, value in (
                ("statement_timeout", WRITE_MS),
                ("lock_timeout", LOCK_MS),
                ("idle_in_transaction_session_timeout", WRITE_MS),
                ("plan_cache_mode", "force_custom_plan"),
                ("enable_seqscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("synchronous_commit", "on"),
            ):
                driver.execute(f"SET {name} = {value}")
            driver.commit()

        return made

    def lock_schema(self, connection: Connection) -> None:
        """An advisory lock, since there may be no table yet."""
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
        encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
        if encoding != "UTF8":
            fault = f"--db: the database has encoding {encoding}; make one with UTF8"
            raise ConfigurationError([fault])

    def event_ids(self, connection: Connection, most: int) -> Iterator[int]:
        """From the sequence, taken while the runs are held: within a run ids go by commit."""
        if not most:
            return iter(())
        driver: psycopg.Connection = driver_of(connection)
        with driver.cursor(binary=True) as cursor:
            [[ids]] = cursor.execute(_EVENT_IDS, [most]).fetchall()
            return iter(ids)

    def run_ids(self, connection: Connection) -> Iterator[int]:
        """None: every run has its row by ``claim``."""
        del connection
        return iter(())

    def claim(
        self,
        connection: Connection,
        claims: Sequence[Row],
        received_at: int,
        *,
        also: Sequence[bytes] = (),
    ) -> set[bytes]:
        """Make the rows of new runs, then lock those that were there."""
        if not claims:
            return set()
        driver: psycopg.Connection = driver_of(connection)
        with driver.cursor(binary=True) as cursor:
            given: list[Any] = columns_of(claims, len(_CLAIMED))
            cursor.execute(_CLAIM, [received_at, received_at, *given])
            made = {row[0] for row in cursor.fetchall()}
            others = [row[0] for row in claims if row[0] not in made]
            if others or also:
                locked = cursor.execute(_LOCK, [[*others, *also]]).fetchall()
                if not {row[0] for row in locked}.issuperset(others):
                    raise RunGone
        return made

    def hold(self, connection: Connection, runs: Sequence[int]) -> None:
        """Lock the rows that nobody holds; to wait here could be to wait in a circle."""
        driver: psycopg.Connection = driver_of(connection)
        there, held = (driver.execute(one, [list(runs)]).rowcount for one in (_THERE, _HOLD))
        if held < there:
            raise RunHeld

    def unclaim(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Nobody saw them yet."""
        driver: psycopg.Connection = driver_of(connection)
        driver.execute(_UNCLAIM, [list(keys)])

    def lock_rejections(self, connection: Connection, scopes: Sequence[tuple[int, str]]) -> None:
        """Advisory locks: how many are kept is a matter of all of them, not of a row."""
        driver: psycopg.Connection = driver_of(connection)
        for scope in scopes:
            driver.execute(_LOCK_REJECTIONS, scope)

    def await_rejections(self, connection: Connection, scopes: Sequence[tuple[int, str]]) -> None:
        """The same locks, shared: whoever accepts waits for nobody but one that rejects.

        Taken after the rows of runs, as those of rejections are, and in their order.
        """
        driver: psycopg.Connection = driver_of(connection)
        for scope in scopes:
            driver.execute(_AWAIT_REJECTIONS, scope)

    def overtaken(self) -> Exception:
        """A serialisation failure of our own."""
        return Overtaken()

    def fault(self, error: BaseException) -> Fault:
        """What an error of a transaction means."""
        return fault_of(error)

    def refusal(self, error: BaseException) -> str | None:
        """A wrong password, no such database, no right to make tables."""
        return refusal_of(error)

    def said(self, error: BaseException) -> str:
        """The server's words."""
        return said(error)

    def _engine(self, **pool: Any) -> Engine:  # noqa: ANN401  passed on
        return create_engine(
            self._url,
            use_native_hstore=False,
            connect_args={
                "connect_timeout": CONNECT_SECONDS,
                "application_name": "flowmark-otel",
                "client_encoding": "utf8",
                # A host that went away without a word is noticed, not waited for.
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": WRITE_MS,
            },
            **pool,
        )
