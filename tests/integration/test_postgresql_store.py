"""What is PostgreSQL's own: claims that meet, plans, schema, and who may connect (D5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, select, text

from flowmark_otel import names
from flowmark_otel.backend.batch import Verdict
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.store import Store, database_of, has_store, migrate, open_store, schema
from flowmark_otel.backend.store.postgresql import database as postgresql
from flowmark_otel.backend.store.postgresql.database import PostgresqlDatabase
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.store.transaction import Transactions
from flowmark_otel.errors import ConfigurationError, SchemaMismatch, Unavailable
from tests.support.envelopes import WAIT, batch, completed, put, rows, started
from tests.support.postgres import Cluster

pytestmark = pytest.mark.needs("psql")

SEEKS = {
    "events": (3, 2),
    "runs": (1, 0),
    "occurrences": (2, 0),
    "places": (4, 0),
    "rejections": (1, 2),
    "tombstones": (1, 0),
    "groups": (3, 0),
    "names": (2, 1),
}
"""The look-ups of the writer: how many keys, how many fixed values."""

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def url(postgres: Cluster) -> Iterator[str]:
    """The URL of an empty store."""
    found = postgres.store()
    yield found
    postgres.give_back(found)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(url)
    yield opened
    opened.close()


def until_one_waits(postgres: Cluster) -> None:
    """Wait until a transaction waits for another."""
    pause = threading.Event()
    for _ in range(WAIT * 100):
        if postgres.execute(_WAITING) != [(0,)]:
            return
        pause.wait(0.01)
    pytest.fail("nobody waits")


def test_who_loses_an_event_id_to_another_run_meets_the_winner(
    store: Store, url: str, postgres: Cluster
) -> None:
    """I2, I3: runs are claimed apart, an event id of both is a conflict for the later one."""
    put(store, started(1, run="first"))
    with psycopg.connect(url) as other:
        other.execute("UPDATE events SET part = 'op-end'")  # the same span ends in that run, unseen
        event = completed(1, run="second")
        judged = store.submit(batch([event, started(2, run="second")]))
        other.execute("SELECT 1")
        until_one_waits(postgres)
    verdict = judged.result(WAIT)
    assert (verdict.stored, [each.code for each in verdict.rejections]) == (1, [names.CONFLICT])
    assert [run["run_id"] for run in rows(store, schema.runs)] == ["first", "second"]


REFUSED = started(2, ("g", 1))
"""It claims the place of the first operation of its run."""

ACCEPTED = started(2, ("g", 1), run="other")
"""The same event id, of a run that is free to take it."""


def assert_both_are_marked(store: Store) -> None:
    """The refused event names the run that it was refused in and the one that has its id."""
    [rejected] = rows(store, schema.rejections)
    of = {each["run_id"]: each["id"] for each in rows(store, schema.runs)}
    assert (rejected["run"], rejected["accepted_run"]) == (of["run-1"], of["other"])
    [run] = [run for run in Reader(store).runs(1).items if run.run_id == "other"]
    [group] = Reader(store).attempts(1, run.key).items
    assert (group.verdict, group.conflicts) == ("undetermined", (1,))


def test_an_event_id_accepted_while_it_is_refused_is_a_conflict_of_both_runs(
    store: Store, url: str
) -> None:
    """Row 12: whoever refuses and was overtaken looks again, and meets what was accepted."""
    put(store, started(1, ("g", 1)))
    lock = PostgresqlDatabase.lock_rejections
    other = open_store(url)
    overtaking = [ACCEPTED]

    def late(database: PostgresqlDatabase, connection: Connection, scopes: Any) -> None:
        while overtaking:
            put(other, overtaking.pop())
        lock(database, connection, scopes)

    with patch.object(PostgresqlDatabase, "lock_rejections", late):
        verdict = put(store, REFUSED)
    assert [each.code for each in verdict.rejections] == [names.CONFLICT]
    assert_both_are_marked(store)
    other.close()


def test_an_event_id_refused_while_it_is_accepted_is_a_conflict_of_both_runs(
    store: Store, url: str, postgres: Cluster
) -> None:
    """Row 12: whoever accepts waits for those that refuse, and marks what they wrote."""
    put(store, started(1, ("g", 1)))
    write = Transactions._write
    other = open_store(url)
    accepted: list[Future[Verdict]] = []

    def slow(transactions: Transactions, *given: Any) -> None:
        write(transactions, *given)
        if not accepted:
            accepted.append(other.submit(batch([ACCEPTED])))
            until_one_waits(postgres)

    with patch.object(Transactions, "_write", slow):
        put(store, REFUSED)
    assert accepted[0].result(WAIT).stored == 1
    assert_both_are_marked(store)
    other.close()


def test_what_another_writer_does_in_a_run_is_seen(
    store: Store, url: str, postgres: Cluster
) -> None:
    """A6, row 11: an operation that is being ended elsewhere is not ended a second time."""
    put(store, started(1, ("g", 1), operation_id="op"))
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM runs FOR UPDATE")
        judged = store.submit(batch([completed(2, ("g", 1), operation_id="op")]))
        until_one_waits(postgres)
        other.execute("UPDATE occurrences SET status = 'failed', end_event = start_event")
    verdict = judged.result(WAIT)
    assert (verdict.stored, [each.code for each in verdict.rejections]) == (0, [names.CONFLICT])


def test_a_locked_run_is_waited_for_and_not_for_ever(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 7: a run that somebody holds is 503 after a bounded wait, others go on."""
    monkeypatch.setattr(postgresql, "LOCK_MS", 50)
    store = open_store(url)
    put(store, started(1, run="held"))
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM runs WHERE run_id = 'held' FOR UPDATE")
        with pytest.raises(Unavailable, match="lock timeout") as raised:
            put(store, completed(1, run="held"))
        assert raised.value.retry_after == 1
        assert put(store, started(2, run="free")).stored == 1
    assert put(store, completed(1, run="held")).stored == 1
    store.close()


def test_an_endless_statement_is_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault row 7: neither a write nor a read holds its connection for ever."""
    monkeypatch.setattr(postgresql, "WRITE_MS", 50)
    monkeypatch.setattr(postgresql, "READ_MS", 50)
    store = open_store(url)
    with pytest.raises(Unavailable, match="statement timeout"):
        store.write(lambda c: c.execute(text("SELECT pg_sleep(30)"))).result(WAIT)
    with pytest.raises(Unavailable, match="too long"), snapshot(store.engine) as reading:
        reading.execute(text("SELECT pg_sleep(30)"))
    assert put(store, started(1)).stored == 1
    store.close()


def test_a_read_is_one_snapshot_and_cannot_write(store: Store) -> None:
    """D5: what is committed while an answer is read is not half in it."""
    with snapshot(store.engine) as reading:
        assert reading.execute(select(schema.runs)).all() == []
        put(store, started(1))
        assert reading.execute(select(schema.runs)).all() == []
    with pytest.raises(Unavailable, match="read-only"), snapshot(store.engine) as reading:
        reading.execute(schema.meta.insert().values(name="x", value="y"))


@pytest.mark.parametrize("name", list(SEEKS))
def test_what_is_judged_against_is_found_by_index(store: Store, url: str, name: str) -> None:
    """Issue 4, Speed: no look-up of the writer scans a table, whatever the planner believes."""
    statement = getattr(store.statements, name)._text
    keys, fixed = SEEKS[name]
    given: list[object] = [[None]] * keys + [1, "server"][:fixed]
    with database_of(url).writing().connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        plan = "\n".join(row[0] for row in driver.execute(f"EXPLAIN {statement}", given))
    assert "Seq Scan" not in plan
    assert "Index" in plan


def test_the_migrations_make_what_the_tables_declare(store: Store) -> None:
    """D5: a migrated store and the declared tables are the same."""
    with store.engine.connect() as connection:
        options = {"include_object": lambda *given: not str(given[1]).startswith("search")}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []


def test_servers_that_start_at_once_make_one_store(postgres: Cluster) -> None:
    """D5: one makes the schema, all have its id, and one gets the first keys."""
    url = postgres.database()
    barrier = threading.Barrier(4)

    def start(_: int) -> tuple[str, bool]:
        barrier.wait(WAIT)
        store = open_store(url)
        try:
            return store.backend_id, Keys(store).first("default") is not None
        finally:
            store.close()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(start, range(4)))
    assert len({backend_id for backend_id, _ in found}) == 1
    assert sorted(got for _, got in found) == [False, False, False, True]


@pytest.mark.parametrize("asked", [True, False])
def test_a_newer_schema_is_refused(url: str, *, asked: bool) -> None:
    """Fault row 27: a store of a newer version is never touched, migration or not."""
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    try:
        with pytest.raises(SchemaMismatch, match=r"newer.*flowmark-otel migrate --db postgresql:"):
            open_store(url, migrate=asked)
    finally:
        with psycopg.connect(url) as connection:
            connection.execute(
                "UPDATE alembic_version SET version_num = %s", (migrate.REVISIONS[-1],)
            )


def test_an_old_schema_is_refused_unless_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 7: an old store is refused, naming the command, its password left out."""
    secret = url.replace("postgres@", "postgres:hunter2@")
    monkeypatch.setattr(migrate, "REVISIONS", (*migrate.REVISIONS, "9998"))
    with pytest.raises(SchemaMismatch, match=r"run flowmark-otel migrate --db postg") as raised:
        open_store(secret)
    assert "hunter2" not in str(raised.value)
    open_store(secret, migrate=True).close()


def test_a_foreign_database_is_refused(postgres: Cluster) -> None:
    """Contract, section 7: a database with other tables is not turned into a store."""
    url = postgres.database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (x int)")
    assert not has_store(url)
    with pytest.raises(SchemaMismatch, match="no store"):
        open_store(url, migrate=True)


def test_a_database_of_another_encoding_is_refused(postgres: Cluster) -> None:
    """Contract, section 7: a database that cannot hold every text is refused at the start."""
    url = postgres.database("ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(ConfigurationError, match="SQL_ASCII; make one with UTF8"):
        open_store(url)


@pytest.mark.parametrize(
    ("part", "other", "fault"),
    [
        ("/test_", "/missing_", "does not exist"),
        ("postgres@", "nobody@", "does not exist"),
        ("postgresql:", "postgresql+asyncpg:", "not supported"),
    ],
)
def test_a_database_that_cannot_be_opened_is_refused(
    url: str, part: str, other: str, fault: str
) -> None:
    """Contract, section 7: what trying again cannot mend is said as a fault of `--db`."""
    with pytest.raises(ConfigurationError, match=f"--db: .*{fault}"):
        open_store(url.replace(part, other))


def test_the_socket_and_the_short_scheme_will_do(postgres: Cluster, url: str) -> None:
    """D5: `--db` takes what other programs take."""
    name = url.rpartition("/")[2]
    for spelled in (postgres.socket_url(name), url.replace("postgresql:", "postgres:")):
        store = open_store(spelled)
        assert Reader(store).runs(1).items == ()
        store.close()
