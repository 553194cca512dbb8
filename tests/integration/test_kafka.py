"""``collector/kafka``: a Kafka broker as the buffer between two stock Collectors (A24)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.model import Span
from tests.support import collecting, kafka, stock_collector
from tests.support.answers import free_port
from tests.support.fleet import until
from tests.support.serving import Serving
from tests.support.stock_collector import Stock, all_ids, batches, export, states

pytestmark = [pytest.mark.needs("go", "java", "mvn"), pytest.mark.timeout(900)]

ROUND: Final = 8
"""Requests that are acknowledged before, while and after a party is away."""

PATIENCE: Final = 5
"""Seconds that the application waits for an answer."""


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kafka.Broker]:
    """A broker, empty at first; what tests leave in it is read."""
    jars = kafka.fetched(request.config.cache.mkdir("kafka"))
    made = kafka.Broker(jars, tmp_path_factory.mktemp("kafka"))
    yield made
    made.kill()


class Line:
    """The parties around the broker, each a process; what is stopped comes back where it was."""

    def __init__(self, otelcol: Path, broker: kafka.Broker, folder: Path) -> None:
        self._otelcol = otelcol
        self._folder = folder
        self._backend = f"127.0.0.1:{free_port()}"
        self._collect = f"127.0.0.1:{free_port()}"
        self._env = {"KAFKA": broker.address, "OTELCOL_NEXT": self._collect}
        self.log = folder / "consumer.log"

    @contextmanager
    def backend(self) -> Iterator[Serving]:
        """The backend."""
        where = ("--insecure-no-auth", "--http", self._backend)
        with Serving(self._folder / "s.db", *where) as serving:
            yield serving

    @contextmanager
    def collector(self) -> Iterator[collecting.Process]:
        """``collect``, in front of the backend."""
        config = collecting.configuration(f"http://{self._backend}")
        protocols = {"grpc": {"endpoint": self._collect}, "http": {"endpoint": "127.0.0.1:0"}}
        config["receivers"] = {"otlp": {"protocols": protocols}}
        with collecting.process(config, self._folder) as made:
            yield made

    @contextmanager
    def consumer(self) -> Iterator[Any]:
        """The stock Collector that reads Kafka."""
        config = kafka.FOLDER / "from-kafka.yaml"
        with stock_collector.process(self._otelcol, config, self._env, self.log) as made:
            yield made

    @contextmanager
    def producer(self) -> Iterator[Stock]:
        """The stock Collector that writes to Kafka."""
        config = kafka.FOLDER / "to-kafka.yaml"
        with stock_collector.running(self._otelcol, config, self._folder, self._env) as made:
            yield made


@pytest.fixture
def line(otelcol: Path, broker: kafka.Broker, tmp_path: Path) -> Line:
    """All but the broker, on free ports."""
    return Line(otelcol, broker, tmp_path)


def test_an_offset_moves_only_when_the_backend_has_answered(
    line: Line, broker: kafka.Broker
) -> None:
    """Row 2, A24: read and not delivered is not committed, and read again after SIGKILL."""
    sent = batches(1, ROUND)
    ids = all_ids(sent)
    with ExitStack() as parties:
        producer = parties.enter_context(line.producer())
        for spans in sent:
            until(partial(_is_taken, producer, spans), 60)
        parties.enter_context(line.collector())
        with line.consumer() as consumer:
            until(lambda: "Backing off" in line.log.read_text(), 60)  # it was read
            assert broker.offsets() == (0, len(sent))
            consumer.kill()
            consumer.wait(30)
        serving = parties.enter_context(line.backend())
        assert states(serving, ids) == {names.STATE_UNKNOWN: len(ids)}
        parties.enter_context(line.consumer())
        until(lambda: states(serving, ids) == {names.STORED: len(ids)}, 60)
        until(lambda: broker.offsets() == (len(sent), len(sent)), 60)
        assert _stored(serving) == len(ids)


def test_whoever_dies_loses_nothing_acknowledged(line: Line, broker: kafka.Broker) -> None:
    """Rows 1 and 2, I1, I2: reader and broker killed under traffic; all of it is stored once."""
    with ExitStack() as parties:
        serving = parties.enter_context(line.backend())
        parties.enter_context(line.collector())
        consumer = parties.enter_context(line.consumer())
        application = _Application(parties.enter_context(line.producer()))
        application.start()
        try:
            application.await_more()
            consumer.kill()
            consumer.wait(30)
            application.await_more()  # the buffer takes what nobody reads
            parties.enter_context(line.consumer())
            application.await_more()
            broker.kill()
            failed = application.failed
            until(lambda: application.failed > failed, 60)  # nothing is taken without it
            broker.start()
            application.await_more()
        finally:
            application.end()
        ids = all_ids(application.acknowledged)
        until(lambda: states(serving, ids) == {names.STORED: len(ids)}, 120)

        def all_read() -> bool:
            """Whether the group has committed all there is."""
            committed, end = broker.offsets()
            return committed == end

        until(all_read, 60)
        assert _stored(serving) == len(ids)


class _Application(threading.Thread):
    """Sends one request after the other, each until it is acknowledged, until it is told to end."""

    def __init__(self, producer: Stock) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._enough = threading.Event()
        self._more = threading.Condition()
        self.acknowledged: list[list[Span]] = []
        self.failed = 0

    def run(self) -> None:
        """Send."""
        seed = 100
        while not self._enough.is_set():
            seed += 1
            [spans] = batches(seed, 1)
            while not _is_taken(self._producer, spans):
                self.failed += 1
                self._enough.wait(0.05)
            with self._more:
                self.acknowledged.append(spans)
                self._more.notify_all()

    def await_more(self) -> None:
        """Wait until one more round has been acknowledged."""
        with self._more:
            wanted = len(self.acknowledged) + ROUND
            assert self._more.wait_for(lambda: len(self.acknowledged) >= wanted, 120), self.failed

    def end(self) -> None:
        """End after the request that is under way, once it is acknowledged."""
        self._enough.set()
        self.join(120)
        assert not self.is_alive()


def _is_taken(producer: Stock, spans: list[Span]) -> bool:
    """One try, given up as a stock exporter does."""
    try:
        return export(producer, spans, PATIENCE).ok
    except requests.RequestException:
        return False


def _stored(serving: Serving) -> int:
    """Events that the backend has counted as stored."""
    rows: list[dict[str, Any]] = serving.get("/ingest")["events"]
    return sum(row["count"] for row in rows if row["state"] == names.STORED)
