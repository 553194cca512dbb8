"""A stock OpenTelemetry Collector between an application and ``flowmark-otel collect`` (A24)."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names
from flowmark_otel.model import Span
from tests.support import collecting, stock_collector
from tests.support.answers import free_port
from tests.support.collector_files import SAMPLE
from tests.support.fleet import until
from tests.support.killing import SPANS, TYPE, ids_of
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving
from tests.support.spans import finished_spans
from tests.support.stock_collector import Stock, all_ids, batches, export, states

pytestmark = [pytest.mark.needs("go"), pytest.mark.timeout(900)]

BATCHES: Final = 8


class Line:
    """Application, stock Collector, ``collect`` and backend, each a process on its own address.

    What is stopped comes back on the same address; ``config`` is the stock Collector's.
    """

    def __init__(self, otelcol: Path, folder: Path, config: str) -> None:
        self._otelcol = otelcol
        self._folder = folder
        self._config = config
        self._store = folder / "s.db"
        self._backend = f"127.0.0.1:{free_port()}"
        self.collect = f"127.0.0.1:{free_port()}"

    @contextmanager
    def backend(self) -> Iterator[Serving]:
        """The backend."""
        where = ("--insecure-no-auth", "--http", self._backend)
        with Serving(self._store, *where) as serving:
            yield serving

    @contextmanager
    def collector(self, *, spool: bool = False) -> Iterator[collecting.Process]:
        """``collect``, in front of the backend."""
        kept = self._folder / "spool" if spool else None
        config = collecting.configuration(f"http://{self._backend}", spool=kept)
        protocols = {
            "grpc": {"endpoint": self.collect},
            "http": {"endpoint": "127.0.0.1:0"},
        }
        config["receivers"] = {"otlp": {"protocols": protocols}}
        with collecting.process(config, self._folder) as made:
            yield made

    @contextmanager
    def stock(self) -> Iterator[Stock]:
        """The stock Collector, in front of that."""
        env = {"OTELCOL_NEXT": self.collect}
        with stock_collector.running(self._otelcol, self._config, self._folder, env) as made:
            yield made


@pytest.fixture
def synchronous(otelcol: Path, tmp_path: Path) -> Line:
    """A hop that answers when the next party did."""
    return Line(otelcol, tmp_path, "synchronous.yaml")


@pytest.fixture
def durable(otelcol: Path, tmp_path: Path) -> Line:
    """A hop that takes custody on disk."""
    return Line(otelcol, tmp_path, "durable.yaml")


def test_a_synchronous_hop_passes_failures_on(synchronous: Line) -> None:
    """A24: where collect or backend is away the stock exporter's request fails, and comes again."""
    line = synchronous
    [spans] = batches(1, 1)
    with line.stock() as stock:
        assert export(stock, spans).status_code == requests.codes.unavailable
        with line.collector():
            assert export(stock, spans).status_code == requests.codes.unavailable
            with line.backend() as serving:
                until(lambda: export(stock, spans).status_code == requests.codes.ok)
                assert states(serving, ids_of(spans)) == {names.STORED: 2 * SPANS}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_stock_application_is_recorded_through_it(synchronous: Line, protocol: str) -> None:
    """A24, D3: attempts of a stock SDK and a stock exporter, through a stock Collector."""
    attempt: dict[str, AttributeValue] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
    spans = finished_spans("push", attributes=attempt)
    with synchronous.backend() as serving, synchronous.collector(), synchronous.stock() as stock:
        exporter: Any = (
            GrpcExporter(endpoint=stock.grpc, insecure=True)
            if protocol == "grpc"
            else OTLPSpanExporter(endpoint=f"http://{stock.http}/v1/traces")
        )
        until(lambda: exporter.export(spans) is SpanExportResult.SUCCESS)
        exporter.shutdown()
        [run] = serving.get("/runs")["items"]
        counts = run["counts"]
        assert (counts["operations"], counts["attempts"]) == (1, 1)


def test_what_a_hop_adds_makes_no_conflict(synchronous: Line) -> None:
    """Row 13: the same events directly and through a hop that changes resources are duplicates."""
    [spans] = batches(2, 1)
    with synchronous.backend() as serving, synchronous.collector(), synchronous.stock() as stock:
        until(lambda: export(stock, spans).status_code == requests.codes.ok)
        direct = serving.post("traces", traces_protobuf(spans), TYPE["content-type"])
        assert direct.status_code == requests.codes.ok
        assert export(stock, spans).status_code == requests.codes.ok
        by_state = {row["state"]: row["count"] for row in serving.get("/ingest")["events"]}
        assert by_state[names.STORED] == 2 * SPANS
        assert by_state[names.DUPLICATE] == 4 * SPANS
        assert by_state.get(names.CONFLICT, 0) == 0


@pytest.mark.parametrize("victim", ["stock", "collector", "backend"])
def test_a_party_killed_under_traffic_loses_nothing_acknowledged(
    synchronous: Line, victim: str
) -> None:
    """Rows 1 and 2, I1, I2: whoever dies, what the application was told is there, once."""
    line = synchronous
    sent = batches(3, 40)
    acknowledged: list[list[Span]] = []
    with ExitStack() as parties:
        running: dict[str, Any] = {}
        for name in ("backend", "collector", "stock"):
            running[name] = parties.enter_context(getattr(line, name)())
        until(lambda: export(running["stock"], sent[0]).status_code == requests.codes.ok)
        halfway = threading.Event()

        def application() -> None:
            """Send each until it is acknowledged."""
            for number, spans in enumerate(sent):
                if number == len(sent) // 2:
                    halfway.set()
                until(partial(_is_taken, running, spans), 120)
                acknowledged.append(spans)

        thread = threading.Thread(target=application)
        thread.start()
        assert halfway.wait(120)
        process = running[victim].process
        process.kill()
        process.wait(30)
        running[victim] = parties.enter_context(getattr(line, victim)())
        thread.join(300)
        assert len(acknowledged) == len(sent)
        ids = all_ids(acknowledged)
        assert states(running["backend"], ids) == {names.STORED: len(ids)}
        assert sum(
            row["count"]
            for row in running["backend"].get("/ingest")["events"]
            if row["state"] == names.STORED
        ) == len(ids)


def _is_taken(running: dict[str, Any], spans: list[Span]) -> bool:
    """One try, at the stock Collector that runs now."""
    try:
        return export(running["stock"], spans).ok
    except requests.RequestException:
        return False


def test_a_durable_hop_keeps_what_it_answered_for(durable: Line) -> None:
    """Row 3: killed with its queue on disk, a stock Collector delivers after it; ids are once."""
    line = durable
    sent = batches(4, BATCHES)
    with line.stock() as stock:
        for spans in sent:
            assert export(stock, spans).status_code == requests.codes.ok
        stock.kill()
    ids = all_ids(sent)
    with line.backend() as serving, line.collector():
        assert states(serving, ids) == {names.STATE_UNKNOWN: len(ids)}
        with line.stock():
            until(lambda: states(serving, ids) == {names.STORED: len(ids)}, 120)


def test_a_hop_with_a_queue_in_memory_loses_what_it_answered_for(
    otelcol: Path, tmp_path: Path
) -> None:
    """Row 3: killed with its queue in memory, what it lost reads unknown, never stored."""
    config = yaml.safe_load((stock_collector.FOLDER / "synchronous.yaml").read_text())
    config["exporters"]["otlp_grpc"].pop("sending_queue")
    config["exporters"]["otlp_grpc"].pop("retry_on_failure")
    (tmp_path / "memory.yaml").write_text(yaml.safe_dump(config))
    line = Line(otelcol, tmp_path, str(tmp_path / "memory.yaml"))
    sent = batches(5, BATCHES)
    with line.stock() as stock:
        for spans in sent:
            assert export(stock, spans).status_code == requests.codes.ok  # honest to nobody
        stock.kill()
    ids = all_ids(sent)
    with line.backend() as serving, line.collector(), line.stock() as stock:
        [spans] = batches(6, 1)
        assert export(stock, spans).status_code == requests.codes.ok
        until(lambda: states(serving, ids_of(spans)) == {names.STORED: 2 * SPANS}, 60)
        assert states(serving, ids) == {names.STATE_UNKNOWN: len(ids)}


def test_the_stock_part_of_our_sample_is_the_collectors(otelcol: Path, tmp_path: Path) -> None:
    """Contract, section 9: without our components and keys the stock Collector takes the sample."""
    config = yaml.safe_load(SAMPLE)
    config.pop("connectors")
    exporters = {
        name: {key: value for key, value in options.items() if key not in {"on_error", "errors"}}
        for name, options in config["exporters"].items()
        if not name.startswith("flowmark")
    }
    pipelines = {
        name: {
            "receivers": pipeline["receivers"],
            "exporters": [each for each in pipeline["exporters"] if each in exporters],
        }
        for name, pipeline in config["service"]["pipelines"].items()
        if set(pipeline["receivers"]) <= config["receivers"].keys()
    }
    kept = {name: each for name, each in pipelines.items() if each["exporters"]}
    stripped = {
        "receivers": config["receivers"],
        "exporters": {each: exporters[each] for one in kept.values() for each in one["exporters"]},
        "service": {"pipelines": kept},
    }
    path = tmp_path / "stock.yaml"
    path.write_text(yaml.safe_dump(stripped))
    done = subprocess.run(
        [str(otelcol), "validate", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert kept
