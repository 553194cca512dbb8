"""PostgreSQL: runs are read by their keys also where the database knows nothing of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event

from flowmark_otel.backend.store import Store, open_store
from flowmark_otel.backend.summary.analysing import LEAST
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.backend.tries import run_tries
from tests.support.envelopes import put, started
from tests.support.postgres import Cluster

pytestmark = pytest.mark.needs("psql")

RUNS = 3000
FILL = """
ALTER TABLE runs SET (autovacuum_enabled = false);
ALTER TABLE occurrences SET (autovacuum_enabled = false);
INSERT INTO runs (id, key, project_id, origin, workflow, run_id, first_received_at,
    last_received_at, stale)
    SELECT i, decode(md5(i::text), 'hex'), 1, 'server', 'w', 'r' || i, i, i, 0
    FROM generate_series(1, 3000) AS i;
INSERT INTO occurrences (run, operation_id, operation, group_id, number, fields, status, project_id)
    SELECT i, 'op' || k, 'o', 'g' || i, k, '{}', 'completed', 1
    FROM generate_series(1, 3000) AS i, generate_series(1, 2) AS k;
ALTER SEQUENCE runs_id_seq RESTART WITH 3001
"""
assert RUNS > LEAST
KNOWN = "SELECT reltuples FROM pg_class WHERE relname IN ('runs', 'occurrences') ORDER BY 1"


@pytest.fixture
def grown(postgres: Cluster) -> Iterator[tuple[Store, str]]:
    """A store that grew, with no statistics, and the name of its database."""
    url = postgres.database()
    store = open_store(url)
    name = url.rpartition("/")[2]
    postgres.execute(FILL, name)
    yield store, name
    store.close()


def plan(engine: Engine, runs: list[int]) -> list[str]:
    """The plan of the first statement by which runs are read for folding."""
    executed: list[tuple[str, Any]] = []
    event.listen(
        engine, "before_cursor_execute", lambda *given: executed.append((given[2], given[3]))
    )
    with engine.connect() as connection:
        found = run_tries(connection, 1, runs)
        assert all(len(found[run].groups) == 1 for run in runs)
        statement, parameters = executed[0]
        return [
            row[0] for row in connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).all()
        ]


def test_folding_reads_runs_by_their_keys_without_statistics(
    postgres: Cluster, grown: tuple[Store, str]
) -> None:
    """Issue 4: what is folded costs what it holds, also on a store that grew a moment ago."""
    store, name = grown
    assert {row[0] for row in postgres.execute(KNOWN, name)} == {-1}
    engine = store.database.writing()
    found = plan(engine, list(range(100, 200)))
    engine.dispose()
    assert any("runs_pkey" in line for line in found), found
    assert any("occurrences_pkey" in line for line in found), found
    assert not any("Seq Scan" in line or "runs_by_arrival" in line for line in found), found


def test_tables_that_grew_are_looked_at_while_runs_are_folded(
    postgres: Cluster, grown: tuple[Store, str]
) -> None:
    """Issue 4: readers do not wait for autovacuum until the database plans with what is there."""
    store, name = grown
    put(store, started(1, ("g", 1)))
    fold_all(store)
    known = [row[0] for row in postgres.execute(KNOWN, name)]
    assert known == pytest.approx([RUNS, 2 * RUNS], rel=0.1)
    found = plan(store.engine, list(range(100, 110)))
    assert not any("Seq Scan" in line for line in found), found
