"""A dashboard over a real store in this process, and a browser of it that keeps cookies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from flowmark_otel import dashboard, names
from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader, RunFilters
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.backend.store import open_store
from flowmark_otel.clock import SystemClock
from flowmark_otel.listen.protocol import Encoding, Signal
from flowmark_otel.model import Envelope, Principal, Span
from flowmark_otel.wire.encode import encode_logs
from tests.support.loop import LoopThread
from tests.support.otlp import traces_json
from tests.support.urls import Place, url_of

HERE = {"sec-fetch-site": "same-origin"}
ACME = "/p/acme"
"""What the addresses of the project begin with."""


class MovedClock(SystemClock):
    """The machine's clock, moved by a test."""

    def __init__(self) -> None:
        self.ahead = 0

    def now_ns(self) -> int:
        """Epoch nanoseconds, ``ahead`` seconds from now."""
        return super().now_ns() + self.ahead * 10**9

    def monotonic(self) -> float:
        """Seconds, as many ahead."""
        return super().monotonic() + self.ahead


class Browser:
    """A client that keeps cookies, and follows no redirect but that to the address's project."""

    def __init__(
        self,
        loop: LoopThread,
        routes: Sequence[BaseRoute],
        url: str,
        address: str = "127.0.0.1",
    ) -> None:
        self._loop = loop
        transport = httpx.ASGITransport(Starlette(routes=routes), client=(address, 40_000))
        self._client = httpx.AsyncClient(transport=transport, base_url=url)

    @property
    def cookies(self) -> httpx.Cookies:
        """What it keeps."""
        return self._client.cookies

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """The answer to a GET, of the project where the address names none."""
        answer = self.ask(path, headers)
        onward = answer.headers.get("location", "")
        named = onward.startswith("/p/") and onward.endswith(path) and onward != path
        return self.ask(onward, headers) if named else answer

    def ask(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """The answer to a GET, whatever it is."""
        return self._loop.run(self._client.get(path, headers=headers))

    def post(
        self,
        path: str,
        headers: Mapping[str, str],
        data: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        """The answer to a POST of a form."""
        asked = self._client.post(path, headers=headers, data=data, content=content)
        return self._loop.run(asked)


class Site:
    """A store, its keys and the dashboard on top of it."""

    def __init__(self, place: Place, loop: LoopThread) -> None:
        self.loop = loop
        self.clock = MovedClock()
        self.path = Path(place)
        self.url = url_of(place)
        self.store = open_store(self.url, clock=self.clock)
        self.keys = Keys(self.store)
        self.acceptor = Acceptor(self.store, self.keys)
        self.reader = Reader(self.store, self.clock)
        self.read_key_id, self.read_key = self.keys.create("acme", names.KEY_READ)
        _, self.ingest_key = self.keys.create("acme", names.KEY_INGEST)
        self.project_id = self.keys.ensure_project("acme")

    def client(
        self,
        anyone: Principal | None = None,
        url: str = "http://127.0.0.1",
        trace_url: str | None = None,
    ) -> Browser:
        """A browser that has not signed in."""
        sessions = Sessions(self.store, self.keys)
        routes = dashboard.routes(
            self.reader, sessions, anyone=anyone, trace_url=trace_url, clock=self.clock
        )
        return Browser(self.loop, routes, url)

    def signed_in(self, trace_url: str | None = None) -> Browser:
        """A browser with a session."""
        client = self.client(trace_url=trace_url)
        answer = client.post("/login", data={"key": self.read_key}, headers=HERE)
        assert answer.status_code == 303
        return client

    def send(self, *spans: Span, project: str = "acme") -> None:
        """Store what these spans fold into."""
        principal = Principal(self.keys.ensure_project(project), project, names.KEY_INGEST)
        body = traces_json(spans)
        sending = self.acceptor.accept(Signal.TRACES, Encoding.JSON, body, principal, "tests")
        self.loop.run(sending)

    def start(self, envelope: Envelope) -> None:
        """Store one envelope as it is, an early start for one."""
        principal = Principal(self.project_id, "acme", names.KEY_INGEST)
        body = encode_logs([envelope], {})
        sending = self.acceptor.accept(Signal.LOGS, Encoding.PROTOBUF, body, principal, "tests")
        self.loop.run(sending)

    def run_key(self, project: str = "acme", run_id: str | None = None) -> str:
        """The key of the latest run, or of the one with an id."""
        wanted = RunFilters(run_id=run_id)
        return self.reader.runs(self.keys.ensure_project(project), wanted).items[0].key

    def close(self) -> None:
        """End what the site started."""
        self.acceptor.close()
        self.store.close()
