"""Where runs are read from: the API of a backend, or a store itself; JSON documents either way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import quote

import requests
from sqlalchemy import select

from flowmark_otel import names
from flowmark_otel.backend.read import MAX_LIMIT, NotFound, Reader, RunFilters
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.views import Page, jsonable, rfc3339
from flowmark_otel.commands.remote import Backend, Refusal
from flowmark_otel.commands.tables import Json
from flowmark_otel.errors import FlowmarkError

_NO_LIMIT: Final = 1_000_000
View = TypeVar("View")


class Source(Protocol):
    """Answers about runs; ``since`` is epoch nanoseconds."""

    def runs(
        self,
        limit: int,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        status: str | None = None,
        since: int | None = None,
    ) -> list[Json]:
        """At most ``limit`` runs, the latest first."""
        ...

    def run(self, key: str) -> Json | None:
        """The run of a key, None if there is none."""
        ...

    def attempts(self, key: str) -> list[Json]:
        """All groups of a run."""
        ...

    def occurrences(self, key: str) -> list[Json]:
        """All occurrences of a run."""
        ...


class ApiSource:
    """Reads through the JSON API (contract, section 5)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def runs(
        self,
        limit: int,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        status: str | None = None,
        since: int | None = None,
    ) -> list[Json]:
        """At most ``limit`` runs, the latest first."""
        begin = None if since is None else rfc3339(since)
        query = {"workflow": workflow, "run_id": run_id, "status": status, "since": begin}
        return self._all("/api/v1/runs", limit, **query)

    def run(self, key: str) -> Json | None:
        """The run of a key, None if there is none."""
        try:
            return cast("Json", self._backend.get(f"/api/v1/runs/{_quoted(key)}"))
        except Refusal as refusal:
            if refusal.status == requests.codes.not_found:
                return None
            raise

    def attempts(self, key: str) -> list[Json]:
        """All groups of a run."""
        return self._all(f"/api/v1/runs/{_quoted(key)}/attempts", _NO_LIMIT)

    def occurrences(self, key: str) -> list[Json]:
        """All occurrences of a run."""
        return self._all(f"/api/v1/runs/{_quoted(key)}/operations", _NO_LIMIT)

    def _all(self, path: str, limit: int, **query: str | None) -> list[Json]:
        found: list[Json] = []
        cursor: str | None = None
        while len(found) < limit:
            size = min(MAX_LIMIT, limit - len(found))
            page = self._backend.get(path, limit=size, cursor=cursor, **query)
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                break
        return found


def project_of(store: Store, name: str) -> int:
    """The id of a project of the store; raises FlowmarkError where there is none of the name."""
    asked = select(schema.projects.c.id).where(schema.projects.c.name == name)
    with snapshot(store.engine) as connection:
        found = connection.execute(asked).scalar()
    if found is None:
        msg = f"the store has no project {name!r}; name one with --project"
        raise FlowmarkError(msg)
    return int(found)


class StoreSource:
    """Reads one project of a store, without a server."""

    def __init__(self, store: Store, project: str) -> None:
        self._project_id = project_of(store, project)
        self._reader = Reader(store)

    def runs(
        self,
        limit: int,
        *,
        workflow: str | None = None,
        run_id: str | None = None,
        status: str | None = None,
        since: int | None = None,
    ) -> list[Json]:
        """At most ``limit`` runs, the latest first."""
        filters = RunFilters(
            workflow=workflow,
            run_id=run_id,
            status=cast("names.RunStatus | None", status),
            since=since,
        )
        return _all(
            lambda size, cursor: self._reader.runs(self._project_id, filters, size, cursor), limit
        )

    def run(self, key: str) -> Json | None:
        """The run of a key, None if there is none."""
        try:
            return cast("Json", jsonable(self._reader.run(self._project_id, key)))
        except NotFound:
            return None

    def attempts(self, key: str) -> list[Json]:
        """All groups of a run."""
        return _all(lambda size, cursor: self._reader.attempts(self._project_id, key, size, cursor))

    def occurrences(self, key: str) -> list[Json]:
        """All occurrences of a run."""
        return _all(
            lambda size, cursor: self._reader.operations(self._project_id, key, size, cursor)
        )


def _all(page_of: Callable[[int, str | None], Page[View]], limit: int = _NO_LIMIT) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while len(found) < limit:
        page = page_of(min(MAX_LIMIT, limit - len(found)), cursor)
        found += jsonable(page.items)
        cursor = page.next
        if cursor is None:
            break
    return found


def _quoted(key: str) -> str:
    return quote(key, safe="")
