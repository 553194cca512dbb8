"""What readers are told while the database cannot be read (fault row 5)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import requests
from starlette.applications import Starlette

from flowmark_otel import dashboard, names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.backend.store import Store, open_store
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.errors import Unavailable
from tests.support.server import Running, options, running

KEY = "0" * 32
SAID = "the store cannot be read now: no such table: runs"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A backend without keys that lost tables of its store while it was at work."""
    path = tmp_path_factory.mktemp("broken") / "s.db"
    with running(options(path, insecure_no_auth=True)) as backend:
        for page in ("/runs", "/api/v1/runs"):
            assert get(backend, page).status_code == HTTPStatus.OK
        connection = sqlite3.connect(path)
        for table in ("occurrences", "runs"):
            connection.execute(f"DROP TABLE {table}")
        connection.close()
        yield backend


def get(backend: Running, path: str) -> requests.Response:
    """The answer to a GET, redirects not followed."""
    return requests.get(f"http://{backend.http}{path}", timeout=30, allow_redirects=False)


@pytest.mark.parametrize(
    "path",
    [
        *("/api/v1/runs", f"/api/v1/runs/{KEY}", f"/api/v1/runs/{KEY}/operations"),
        *(f"/api/v1/runs/{KEY}/attempts", f"/api/v1/runs/{KEY}/events"),
        *("/api/v1/operations", f"/api/v1/trace/{KEY}", "/api/v1/overview"),
        *("/api/v1/evidence", "/api/v1/ingest"),
        *("/runs.json", f"/runs/{KEY}.json", f"/runs/{KEY}/attempts.json"),
        *(f"/runs/{KEY}/operations.json", f"/runs/{KEY}/events.json"),
    ],
)
def test_programs_are_told_to_ask_again(broken: Running, path: str) -> None:
    """Fault row 5: a database error while reading is 503 with a time to wait, never 500."""
    answer = get(broken, path)
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert answer.headers["retry-after"] == "1"
    assert answer.json() == {"error": {"code": "unavailable", "message": SAID}}


@pytest.mark.parametrize("path", ["/runs", f"/runs/{KEY}", f"/runs/{KEY}/events", f"/trace/{KEY}"])
def test_people_are_told_to_ask_again(broken: Running, path: str) -> None:
    """Fault row 5: each page says that the store cannot be read now, with 503 and never 500."""
    answer = get(broken, path)
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert answer.headers["retry-after"] == "1"
    assert f"{SAID}." in answer.text
    assert "sqlalche.me" not in answer.text


def run(store: Store, statement: str) -> None:
    """Run a statement where the store writes."""
    store.write(lambda c: c.exec_driver_sql(statement).close()).result(30)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(f"sqlite:///{tmp_path}/s.db")
    yield opened
    opened.close()


async def test_a_session_outlives_keys_that_cannot_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 5: while keys cannot be read pages answer 503, then the session goes on."""
    keys = Keys(store)
    _, key = await asyncio.to_thread(keys.create, "default", names.KEY_READ)
    app = Starlette(routes=dashboard.routes(Reader(store), Sessions(store, keys)))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
        own = {"sec-fetch-site": "same-origin"}
        await browser.post("/login", data={"key": key}, headers=own)
        run(store, "ALTER TABLE keys RENAME TO lost")
        monkeypatch.setattr("flowmark_otel.backend.keys.REMEMBERED_SECONDS", 0)
        for path in ("/p/default/runs", "/p/default/runs.json"):
            answer = await browser.get(path)
            assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            assert "no such table: keys" in answer.text
        run(store, "ALTER TABLE lost RENAME TO keys")
        assert (await browser.get("/p/default/runs")).status_code == HTTPStatus.OK


def test_all_readers_at_once_is_a_matter_of_time(store: Store) -> None:
    """Fault row 25: where no connection is free the answer is Unavailable, not an error of ours."""
    store.engine.pool._timeout = 0  # type: ignore[attr-defined]
    held = [store.engine.connect() for _ in range(16)]
    with pytest.raises(Unavailable, match="all connections are in use"):
        snapshot(store.engine).__enter__()
    for connection in held:
        connection.close()
    with snapshot(store.engine):
        pass
