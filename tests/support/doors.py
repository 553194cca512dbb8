"""A backend with two projects, all ways into it as its own tables name them, and keys of all kinds.

The ways are read from the application and the gRPC server that serve, so a new one is among them
without being named here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import grpc
import requests
from grpc.aio._server import Server as GrpcServer
from starlette.routing import BaseRoute, Mount, Route

from flowmark_otel import names
from flowmark_otel.backend.keys import KINDS, Keys
from flowmark_otel.backend.store import open_store
from flowmark_otel.model import run_key
from flowmark_otel.server import Server
from tests.support import payloads
from tests.support.api import story
from tests.support.browser_keys import PAGE
from tests.support.history import attempt
from tests.support.loop import loop_thread
from tests.support.server import options

WAIT: Final = 30
MANY: Final = 1_000_000
OURS: Final = "ours"
THEIRS: Final = "theirs"
MARK: Final = "of-ours-alone"
"""What nothing of others says."""


IN_PROJECT: Final = "/p/{project}"


class Door(NamedTuple):
    """A method and the template of a path."""

    method: str
    path: str

    def at(self, key: str, trace_id: str, project: str) -> str:
        """The path, of a run and a trace of a project."""
        found = self.path.replace("{key}", key).replace("{trace_id}", trace_id)
        found = found.replace("{project}", project)
        return found.replace("{path:path}", "no/such/path")


GROUP: Final = {"operation": "push-to-crm", "group_id": "batch-42", "number": "1"}
OCCURRENCE: Final = {"operation_id": f"{5:016x}"}
NEEDED: Final = {
    Door("DELETE", "/api/v1/runs"): {"workflow": "none"},
    Door("GET", "/runs/news"): {"after": "1"},
    Door("GET", "/runs/{key}/news"): {"after": "1-1"},
    Door("GET", "/overview/news"): {"after": "0"},
    Door("GET", "/ingest/news"): {"after": "0"},
    Door("GET", "/evidence/news"): {"after": "0-0"},
    **{
        Door("GET", f"/runs/{{key}}/{view}{form}"): asked
        for view, asked in (("group", GROUP), ("attempt", GROUP), ("occurrence", OCCURRENCE))
        for form in ("", ".json", ".csv")
    },
}
"""Parameters without which a door does not open."""


class Doors(NamedTuple):
    """Where it listens, what it serves, and tokens by project and kind, bad ones by what is bad."""

    http: str
    grpc: str
    routes: tuple[Door, ...]
    calls: tuple[str, ...]
    keys: dict[tuple[str, str], str]
    bad: dict[str, str | None]
    run: str
    trace: str

    def ask(
        self,
        door: Door,
        token: str | None,
        *,
        key: str = "",
        trace: str = "",
        project: str = OURS,
        **given: Any,
    ) -> requests.Response:
        """An answer over HTTP, no redirect followed; of our run and trace unless others are given.

        ``given``: further headers, cookies or form fields as ``requests`` takes them.
        """
        kind = {"content-type": payloads.JSON} if door.method == "POST" else {}
        headers = {**kind, **given.pop("headers", {})}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        body = b'{"eventIds": []}' if door.path.endswith("/status") else b"{}"
        given.setdefault("data", body if door.method == "POST" else None)
        return requests.request(
            door.method,
            f"http://{self.http}{door.at(key or self.run, trace or self.trace, project)}",
            headers=headers,
            params=NEEDED.get(door._replace(path=door.path.removeprefix(IN_PROJECT))),
            allow_redirects=False,
            timeout=WAIT,
            **given,
        )

    def call(self, method: str, token: str | None, message: bytes = b"") -> tuple[Any, bytes]:
        """Code and answer of a gRPC call of one message."""
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        with grpc.insecure_channel(self.grpc) as channel:
            call: Any = channel.unary_unary(method)
            try:
                return grpc.StatusCode.OK, call(message, metadata=metadata, timeout=WAIT)
            except grpc.RpcError as error:
                return error.code(), str(error.details()).encode()

    def sign_in(self, token: str | None) -> requests.Response:
        """The answer to the form of the pages."""
        form = {"key": token or "", "next": "/runs"}
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self.ask(Door("POST", "/login"), None, data=form, headers=kind)


def doors_of(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[Door]:
    """All routes below some; those that answer every method by themselves with GET and DELETE."""
    for route in routes:
        if isinstance(route, Mount):
            app: Any = route.app
            while not hasattr(app, "routes") and hasattr(app, "app"):
                app = app.app  # what a middleware is around
            inner = list(getattr(app, "routes", ()))
            if inner:
                yield from doors_of(inner, prefix + route.path)
            else:
                yield Door("GET", prefix + route.path)
        else:
            assert isinstance(route, Route), route
            for method in sorted((route.methods or {"GET", "DELETE"}) - {"HEAD"}):
                yield Door(method, prefix + route.path)


@contextmanager
def doors(path: Path) -> Iterator[Doors]:
    """A backend on a new store, our project with a story in it."""
    served = options(path)
    bad, keys = _keys(served.db)
    calls: list[str] = []
    add = GrpcServer.add_generic_rpc_handlers

    def noted(server: GrpcServer, handlers: Sequence[Any]) -> None:
        calls.extend(name for one in handlers for name in one._method_handlers)
        add(server, handlers)

    server = Server(served)
    with (
        loop_thread() as loop,
        patch.object(GrpcServer, "add_generic_rpc_handlers", noted),
        # More wrong keys are tried than one address may.
        patch("flowmark_otel.dashboard.pace.OF_ADDRESS", MANY),
        patch("flowmark_otel.dashboard.pace.OF_ALL", MANY),
    ):
        loop.run(server.start())
        listeners: Any = server._listeners
        found = Doors(
            server.http_address,
            server.grpc_address,
            tuple(doors_of(listeners._app.routes)),
            tuple(calls),
            keys,
            bad,
            run_key(1, names.ORIGIN_SERVER, "crm.sync", "r1").hex(),
            f"{1:032x}",
        )
        try:
            named = attempt(MARK, 1, run_id=MARK, workflow=MARK, operation=MARK)
            body = payloads.as_json(payloads.request([*story(), payloads.span(8, named)]))
            sent = found.ask(
                Door("POST", "/v1/traces"),
                keys[OURS, names.KEY_INGEST],
                data=body,
                headers={"content-type": payloads.JSON},
            )
            assert sent.status_code == requests.codes.ok, sent.text
            yield found
        finally:
            loop.run(server.stop())


def _keys(url: str) -> tuple[dict[str, str | None], dict[tuple[str, str], str]]:
    store = open_store(url)
    try:
        keys = Keys(store)
        made = {}
        for project in (OURS, THEIRS):
            for kind in KINDS:
                pages = (PAGE,) if kind == names.KEY_BROWSER else ()
                made[project, kind] = keys.create(project, kind, pages=pages)[1]
        bad: dict[str, str | None] = {"none": None, "unknown": f"fmk_{'0' * 16}_{'0' * 64}"}
        for kind in (names.KEY_INGEST, names.KEY_ADMIN):
            token = made[OURS, kind]
            bad[f"wrong {kind}"] = token[:-1] + ("0" if token[-1] != "0" else "1")
            bad[f"expired {kind}"] = keys.create(OURS, kind, 1)[1]
            revoked, token = keys.create(OURS, kind)
            keys.revoke(revoked)
            bad[f"revoked {kind}"] = token
        return bad, made
    finally:
        store.close()
