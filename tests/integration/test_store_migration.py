"""From the first schema to this one: nothing is lost, and what is held is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, select, text

from flowmark_otel.backend.read import Reader, RunFilters, elsewhere
from flowmark_otel.backend.store import database_of, migrate, migrate_store, open_store, schema
from flowmark_otel.backend.summary import search
from flowmark_otel.errors import SchemaMismatch
from tests.conftest import STORES
from tests.support import old_store
from tests.support.envelopes import put, started
from tests.support.postgres import Cluster

KEPT = ("projects", "events", "occurrences", "rejections", "runs")
Empty = Callable[[], str]

revisions = pytest.mark.parametrize("revision", migrate.REVISIONS[:-1])


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where there is no store yet, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('old')}/store.db"
    found: Cluster = request.getfixturevalue("postgres")
    return found.database()


def held(url: str, *tables: str) -> dict[str, list[Any]]:
    """All rows of tables, whatever columns they have."""
    opened = database_of(url).readers()
    with opened.connect() as connection:
        found = MetaData()
        found.reflect(connection, only=tables)
        rows = {
            name: sorted(map(tuple, connection.execute(select(found.tables[name]))))
            for name in tables
        }
    opened.dispose()
    return rows


@revisions
def test_an_old_store_is_refused_unless_asked(url: str, revision: str) -> None:
    """Contract, section 7: an old store is refused, naming the command, and left as it is."""
    old_store.make(url, revision)
    before = held(url, *KEPT, "alembic_version", "senders")
    with pytest.raises(SchemaMismatch, match=rf"schema {revision}.*: run flowmark-otel migrate"):
        open_store(url)
    assert held(url, *KEPT, "alembic_version", "senders") == before


@revisions
def test_a_migration_keeps_all_evidence(url: str, revision: str) -> None:
    """I1, I2: every row of an old store is there after the migration, and is read and added to.

    The store keeps its id, so senders go on as before.
    """
    old_store.make(url, revision)
    before = held(url, *KEPT)
    assert migrate_store(url) == revision
    after = held(url, *KEPT)
    for table, rows in before.items():  # columns that came later stand behind
        assert [row[: len(old)] for row, old in zip(after[table], rows, strict=True)] == rows
    [sender] = held(url, "senders")["senders"]
    assert sender[:6] == (1, 1, "ua/1", "crm", "", "")
    store = open_store(url)
    assert store.backend_id == old_store.BACKEND_ID
    [run] = Reader(store).runs(old_store.PROJECT).items
    assert (run.run_id, run.counts.attempts) == ("r1", 3)
    assert len(Reader(store).events(old_store.PROJECT, run.key).items) == old_store.EVENTS
    store.close()


def test_a_migrated_store_is_written_to(tmp_path: Any) -> None:
    """I1: ids go on after those of the old store, and what it held is judged against."""
    url = f"sqlite:///{tmp_path}/store.db"
    old_store.make(url, "0001")
    migrate_store(url)
    store = open_store(url)
    assert put(store, started(9, ("h", 2), run="r1", operation="push")).stored == 1
    [run] = Reader(store).runs(old_store.PROJECT).items
    assert (run.counts.attempts, run.counts.groups) == (4, 2)
    store.close()


def test_a_migration_counts_what_is_held(url: str) -> None:
    """Issue 4, quotas: what a store held before it had quotas counts against them."""
    old_store.make(url, "0001")
    migrate_store(url)
    found = held(url, "usage", "known_names")
    assert found["usage"] == [(old_store.PROJECT, 0, old_store.EVENTS, old_store.GROUPS)]
    assert [row[:3] for row in found["known_names"]] == [
        (old_store.PROJECT, "crm.sync", ""),
        (old_store.PROJECT, "crm.sync", "push"),
    ]


@pytest.mark.parametrize("revision", ["0004", "0005"])
def test_a_migration_gives_what_is_looked_up_its_project(url: str, revision: str) -> None:
    """Row 22: what an old store holds is looked up by project, in groups and in the full text.

    The words of runs can be taken away again as they were put in.
    """
    old_store.make(url, revision)
    old_store.summarise(url)
    before = held(url, "occurrences")["occurrences"]
    migrate_store(url)
    after = held(url, "occurrences")["occurrences"]
    assert [row[: len(old)] for row, old in zip(after, before, strict=True)] == before
    assert [(row[0], row[-1]) for row in after] == [
        *[(1, old_store.PROJECT)] * old_store.ATTEMPTS,
        (2, old_store.OTHER),
        (3, old_store.PROJECT),
    ]
    store = open_store(url)
    of_group = RunFilters(group_id="g")
    for project, own in ((old_store.PROJECT, {1, 3}), (old_store.OTHER, {2})):
        with store.engine.connect() as connection:
            for phrases in ([["crm"]], [["sync", "pu"], ["g"]]):
                assert set(search.some(connection, project, phrases, 9)) == own
                assert search.among(connection, project, phrases, {1, 2, 3}) == own
            assert search.some(connection, project, [["push", "sync"]], 9) == []
        runs = Reader(store).runs(project, of_group).items
        assert {int(run.run_id[1:]) for run in runs} == own
        with store.engine.connect() as connection:
            of_project = schema.runs.c.project_id == project
            for row in connection.execute(select(schema.runs).where(of_project)):
                found = elsewhere.elsewhere(connection, project, row, [("push", "g")])
                assert found["push", "g"].number == len(own) - 1

    def forget(connection: Connection) -> None:
        search.remove(connection, old_store.PROJECT, [(1, old_store.WORDS)])

    store.write(forget).result(30)
    with store.engine.connect() as connection:
        assert search.some(connection, old_store.PROJECT, [["crm"]], 9) == [3]
        assert search.some(connection, old_store.OTHER, [["crm"]], 9) == [2]
    store.close()


def test_a_migration_that_fails_changes_nothing(url: str) -> None:
    """Fault row 4: a migration is one transaction; broken off, the store is at its old schema."""
    old_store.make(url, "0002")
    opened = database_of(url).writing()
    with opened.connect() as connection, connection.begin():
        connection.execute(text("CREATE TABLE quotas (x INTEGER)"))  # in the way of the new one
    opened.dispose()
    before = held(url, *KEPT, "senders", "alembic_version")
    with pytest.raises(Exception, match="quotas"):
        migrate_store(url)
    assert held(url, *KEPT, "senders", "alembic_version") == before
    with pytest.raises(Exception, match="tombstones"):
        held(url, "tombstones")
