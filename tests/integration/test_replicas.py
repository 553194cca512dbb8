"""``collector/replicas``: two ``collect`` and two ``serve`` on one PostgreSQL behind nginx (D3)."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
import requests
import yaml

from flowmark_otel import names
from flowmark_otel.collector.config.loading import load
from flowmark_otel.wire import receipt
from tests.support import collecting, hops
from tests.support.answers import free_port
from tests.support.collector_files import ENVIRONMENT
from tests.support.killing import EXPORT, TYPE, batch, ids_of
from tests.support.otlp import traces_protobuf
from tests.support.postgres import Cluster
from tests.support.serving import Serving

REPLICAS: Final = hops.ROOT / "collector" / "replicas"
PORTS: Final = ("15317", "15318", "25317", "25318", "14317", "14318", "24317", "24318")
ROUND: Final = 8
"""Requests that are acknowledged before, while and after one replica is away."""


class Site:
    """Everything of the README, each replica a process that comes back where it was."""

    def __init__(self, database: str, folder: Path, parties: ExitStack) -> None:
        self._database = database
        self._folder = folder
        self._parties = parties
        self._at = {port: f"127.0.0.1:{free_port()}" for port in (*PORTS, "5317", "5318")}
        self.running: dict[str, Any] = {}
        first = self.start("serve 1")
        self.key = first.keys[0]
        self.start("serve 2")
        self.front = parties.enter_context(hops.replicas(self._at))
        self.start("collect 1")
        self.start("collect 2")

    def start(self, name: str) -> Any:
        """Start a replica, first or again."""
        kind, number = name.split()
        made = self._serve(number) if kind == "serve" else self._collect(number)
        self.running[name] = self._parties.enter_context(made)
        return self.running[name]

    def kill(self, name: str) -> None:
        """End a replica with SIGKILL."""
        process = self.running[name].process
        process.kill()
        process.wait(20)

    @contextmanager
    def _serve(self, number: str) -> Iterator[Serving]:
        where = ("--grpc", self._at[f"{number}5317"], "--http", self._at[f"{number}5318"])
        with Serving(self._database, *where) as serving:
            yield serving

    @contextmanager
    def _collect(self, number: str) -> Iterator[collecting.Process]:
        """The first hands over by HTTP, the second by gRPC."""
        folder = self._folder / f"collect-{number}"
        folder.mkdir(exist_ok=True)
        protocol, port = {"1": ("http/protobuf", "5318"), "2": ("grpc", "5317")}[number]
        env = {
            "COLLECT_GRPC": self._at[f"{number}4317"],
            "COLLECT_HTTP": self._at[f"{number}4318"],
            "COLLECT_LETTERS": str(folder / "letters.jsonl"),
            "COLLECT_TELEMETRY": "127.0.0.1:0",
            "FLOWMARK_API_KEY": self.key,
            "FLOWMARK_BACKEND": f"http://{self._at[port]}",
            "FLOWMARK_PROTOCOL": protocol,
        }
        config = yaml.safe_load((REPLICAS / "collect.yaml").read_text())
        with collecting.process(config, folder, env) as process:
            yield process

    def states(self, ids: list[str]) -> Counter[str]:
        """What the backends, behind nginx, say of events."""
        found: Counter[str] = Counter()
        for start in range(0, len(ids), 1000):
            answer = requests.post(
                f"http://{self._at['5318']}/v1/flowmark/status",
                json={"eventIds": ids[start : start + 1000]},
                headers={"authorization": f"Bearer {self.key}"},
                timeout=30,
            )
            found.update(event["state"] for event in answer.json()["events"])
        return found


class Application(threading.Thread):
    """Sends one request after the other, each until it is acknowledged, until it is told to end."""

    def __init__(self, site: Site, transport: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._chance = random.Random(seed)
        self._address = getattr(site.front, transport)
        self._connect = {"http": self._http, "grpc": self._grpc}[transport]
        self._enough = threading.Event()
        self._more = threading.Condition()
        self.ids: list[str] = []
        self.receipts: list[tuple[int, int]] = []
        self.requests = self.failed = 0

    def run(self) -> None:
        """Send."""
        send = self._connect()
        while not self._enough.is_set():
            spans = batch(self._chance)
            body = traces_protobuf(spans)
            while (answer := self._answer(send, body)) is None:
                self.failed += 1
                self._enough.wait(0.05)
                send = self._connect()
            found = receipt.decode(answer, "protobuf")
            assert receipt.fault(found) is None
            assert found.received == len(ids_of(spans))
            self.receipts.append((found.stored, found.duplicate))
            with self._more:
                self.ids += ids_of(spans)
                self.requests += 1
                self._more.notify_all()

    @staticmethod
    def _answer(send: Callable[[bytes], bytes], body: bytes) -> bytes | None:
        """What one try is answered; None where it failed."""
        try:
            return send(body)
        except (OSError, http.client.HTTPException, grpc.RpcError):
            return None

    def await_more(self, count: int = ROUND) -> None:
        """Wait until so many more requests have been acknowledged."""
        with self._more:
            wanted = self.requests + count
            assert self._more.wait_for(lambda: self.requests >= wanted, 60), self.failed

    def end(self) -> None:
        """End after the request that is under way."""
        self._enough.set()
        self.join(60)
        assert not self.is_alive()

    def _http(self) -> Callable[[bytes], bytes]:
        connection = http.client.HTTPConnection(self._address, timeout=40)

        def send(body: bytes) -> bytes:
            connection.request("POST", "/v1/traces", body, TYPE)
            answer = connection.getresponse()
            found = answer.read()
            if answer.status != http.client.OK:
                raise OSError(answer.status, found)
            return found

        return send

    def _grpc(self) -> Callable[[bytes], bytes]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        call: Any = grpc.insecure_channel(self._address, options=options).unary_unary(EXPORT)
        return lambda body: bytes(call(body, timeout=40))


@pytest.mark.needs("nginx", "psql")
@pytest.mark.timeout(300)
def test_one_of_each_killed_and_restarted_loses_and_doubles_nothing(
    postgres: Cluster, tmp_path: Path
) -> None:
    """Rows 1 and 2, I1, I2, I4: replicas die in turn; all that was answered is there, once."""
    database = postgres.database()
    with ExitStack() as parties:
        site = Site(database, tmp_path, parties)
        applications = [
            Application(site, name, number) for number, name in enumerate(hops.Hop._fields)
        ]
        for each in applications:
            each.start()
        for victim in ("collect 1", "serve 1", "collect 2", "serve 2"):
            for each in applications:
                each.await_more()
            site.kill(victim)
            for each in applications:
                each.await_more()  # the other one of its kind carries on alone
            site.start(victim)
        for each in applications:
            each.await_more()
            each.end()
        sent = [event for each in applications for event in each.ids]
        assert len(sent) == len(set(sent))
        assert site.states(sent) == {names.STORED: len(sent)}
    name = database.rpartition("/")[2]
    rows = postgres.execute(
        "SELECT count(*), count(DISTINCT (trace_id, span_id, part)) FROM events", name
    )
    assert rows == [(len(sent), len(sent))]
    told = [each for one in applications for each in one.receipts]
    assert sum(stored + duplicate for stored, duplicate in told) == len(sent)
    assert not postgres.execute("SELECT 1 FROM rejections", name)


def test_the_configuration_is_what_the_readme_says() -> None:
    """D3: the file is loaded as it stands; each port of nginx's file is named by the README."""
    plan = load(REPLICAS / "collect.yaml", ENVIRONMENT)
    assert plan.telemetry == "127.0.0.1:18888"
    text = (REPLICAS / "README.md").read_text("utf-8")
    assert all(port in text for port in (*PORTS, "4317", "4318", "5317", "5318"))
