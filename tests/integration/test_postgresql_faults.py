"""PostgreSQL terminated, killed and restarted under a store and under ``serve`` (fault row 6)."""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.errors import Unavailable
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Span, event_id
from flowmark_otel.wire import receipt
from tests.support.envelopes import WAIT, batch, completed, put, rows, started
from tests.support.history import attempt, span
from tests.support.otlp import traces_protobuf
from tests.support.postgres import Cluster, cluster
from tests.support.serving import Serving

pytestmark = pytest.mark.needs("psql")

_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
SENDERS = 3
RESTARTS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server that the tests of this file may stop."""
    with cluster() as made:
        yield made


@pytest.fixture
def store(server: Cluster) -> Iterator[Store]:
    """An empty store on it."""
    opened = open_store(server.store())
    yield opened
    opened.close()


def terminate(server: Cluster, store: Store) -> None:
    """End every connection to the store's database, as an administrator does."""
    name = store.database.url.rpartition("/")[2]
    assert server.execute(f"{_TERMINATE}'{name}'")


def test_terminated_connections_are_made_anew(server: Cluster, store: Store) -> None:
    """Row 6: neither writers nor readers say anything of connections that were ended while idle."""
    put(store, started(1, ("g", 1)))
    assert len(Reader(store).runs(1).items) == 1
    for number in range(2, 6):
        terminate(server, store)
        assert put(store, started(number, ("g", number))).stored == 1
        assert len(Reader(store).runs(1).items) == 1
    assert len(rows(store, schema.events)) == 5


def test_a_transaction_that_is_ended_runs_once_more(
    server: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 6: a connection ended within a transaction costs its sender nothing."""
    inner = store.statements.insert_occurrences
    written = inner.run
    runs = itertools.count()

    def run(driver: Any, given: Sequence[Sequence[object]]) -> None:
        if next(runs) == 0:
            terminate(server, store)
        written(driver, given)

    monkeypatch.setattr(inner, "run", run)
    verdict = put(store, started(1, ("g", 1)), completed(1, ("g", 1)))
    assert (verdict.stored, verdict.duplicate, verdict.rejections) == (2, 0, [])
    assert len(rows(store, schema.events)) == 2


def test_a_commit_that_nobody_heard_of_is_not_repeated(
    server: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 6, I2: the connection breaks after COMMIT took place: one retry, by id, finds it."""
    dialect = store._writer._sessions[0]._engine.dialect
    commit = dialect.do_commit
    commits = itertools.count()

    def committed(connection: Any) -> None:
        commit(connection)
        if next(commits) == 0:
            terminate(server, store)
            connection.execute("SELECT 1")

    monkeypatch.setattr(dialect, "do_commit", committed)
    verdict = put(store, started(1, ("g", 1)), completed(1, ("g", 1)))
    assert (verdict.stored, verdict.duplicate, verdict.rejections) == (0, 2, [])
    assert len(rows(store, schema.events)) == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_server_that_is_gone_is_unavailable_until_it_is_back(
    server: Cluster, store: Store, how: signal.Signals
) -> None:
    """Row 6: writing, reading, status and keys are 503 meanwhile, and go on by themselves."""
    keys = Keys(store)
    _, token = keys.create("default", names.KEY_INGEST)
    put(store, started(1, ("g", 1)))
    server.stop(how)
    try:
        for ask in (
            lambda: put(store, started(2, ("g", 2))),
            lambda: Reader(store).runs(1),
            lambda: states(store, 1, "server", [started(1).event_id]),
            lambda: Keys(store).authenticate(token),
            lambda: Keys(store).create("other", names.KEY_READ),
        ):
            with pytest.raises(Unavailable) as raised:
                ask()
            assert raised.value.retry_after == 1
        with pytest.raises(Unavailable, match="cannot be opened now"):
            open_store(server.url(store.database.url.rpartition("/")[2]))
    finally:
        server.start()
    assert put(store, started(2, ("g", 2))).stored == 1
    assert Keys(store).authenticate(token).project == "default"
    assert len(rows(store, schema.events)) == 2


def test_what_waits_for_a_server_is_bounded_by_its_sender(server: Cluster, store: Store) -> None:
    """Row 6: requests queued while the server stops are each answered, none is forgotten."""
    futures = [store.submit(batch([started(number)])) for number in range(1, 40)]
    server.stop(signal.SIGKILL)
    try:
        outcomes = [future.exception(WAIT) for future in futures]
    finally:
        server.start()
    assert all(each is None or isinstance(each, Unavailable) for each in outcomes)
    stored = sum(each is None for each in outcomes)
    assert len(rows(store, schema.events)) >= stored
    again = [store.submit(batch([started(number)])) for number in range(1, 40)]
    sums = [future.result(WAIT) for future in again]
    assert sum(each.stored + each.duplicate for each in sums) == 39
    assert len(rows(store, schema.events)) == 39


def answered(requests_: threading.Semaphore) -> None:
    """Wait until some more requests were acknowledged."""
    for _ in range(10):
        assert requests_.acquire(timeout=WAIT)


def test_serve_loses_nothing_when_its_database_is_killed_under_traffic(server: Cluster) -> None:
    """Row 6, I1, I2, I4: only 200 and 503 are ever answered; what was acknowledged is there."""
    url = server.store()
    acknowledged: set[str] = set()
    codes: set[int] = set()
    enough = threading.Semaphore(0)
    stop = threading.Event()
    with Serving(url, "--insecure-no-auth") as serving:

        def work(seed: int) -> None:
            chance = random.Random(seed)
            number = seed * 1_000_000
            while not stop.is_set():
                spans: list[Span] = []
                for _ in range(chance.randint(1, 8)):
                    number += 1
                    run_id = f"r{chance.randint(1, 20)}"
                    spans.append(span(number, attempt(f"g{number}", 1, run_id=run_id)))
                while True:
                    answer = serving.post(
                        "traces", traces_protobuf(spans), "application/x-protobuf"
                    )
                    codes.add(answer.status_code)
                    if answer.status_code == requests.codes.ok:
                        break
                    assert answer.headers["retry-after"] == "1"
                    if stop.wait(0.01):
                        return
                found = receipt.decode(answer.content, "protobuf")
                assert found.stored + found.duplicate == 2 * len(spans)
                acknowledged.update(e.event_id for one in spans for e in fold_span(one))
                enough.release()

        with ThreadPoolExecutor(SENDERS) as threads:
            working = [threads.submit(work, seed) for seed in range(1, SENDERS + 1)]
            try:
                for _ in range(RESTARTS):
                    answered(enough)
                    server.stop(signal.SIGKILL)
                    server.start()
                answered(enough)
            finally:
                stop.set()
            for each in working:
                each.result(WAIT)
    assert codes <= {200, 503}
    kept = open_store(url)
    found = [
        event_id(row["trace_id"], row["span_id"], row["part"]) for row in rows(kept, schema.events)
    ]
    kept.close()
    assert len(set(found)) == len(found)
    assert acknowledged <= set(found)
