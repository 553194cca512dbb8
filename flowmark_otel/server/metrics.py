"""The backend's metrics as Prometheus text; declared in ``names.SERVER_METRICS``.

Labels take their values from closed sets, but for the names of workflows and operations: of these
each process tells apart a bounded number, so what is sent can make no more series than that. Under
several workers each writes its values to files of a folder that the supervisor owns, and the page
is their sum; the library decides so when it is imported, by ``counting.FOLDER_VARIABLE``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from flowmark_otel import names
from flowmark_otel.backend.measured import Measured
from flowmark_otel.backend.settling import Waiting
from flowmark_otel.backend.store import Verdict
from flowmark_otel.server.attempts import Attempts
from flowmark_otel.server.naming import counter, prometheus_name
from flowmark_otel.server.readiness import Readiness, Watch

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter that nobody asks for


class Instruments(Watch):
    """What one process counts; ``registry`` is None where the supervisor sums up."""

    def __init__(
        self, registry: CollectorRegistry | None, readiness: Readiness, waiting: Waiting
    ) -> None:
        super().__init__(readiness)
        self._clock = readiness.clock
        self._waiting = waiting
        self._attempts = Attempts(registry)
        self._events = counter(names.DELIVERY_METRIC, registry)
        self._requests = counter(names.REQUESTS_METRIC, registry)
        self._in_flight = _gauge(names.IN_FLIGHT_METRIC, registry)
        self._queue = _gauge(names.QUEUE_SIZE_METRIC, registry)
        metric = names.STORE_WRITE_METRIC
        self._written = Histogram(
            prometheus_name(metric), metric.says, buckets=_SECONDS, registry=registry
        )

    def request(self, transport: str, kind: str, outcome: str) -> None:
        """A request that was answered."""
        self._requests.labels(transport, kind, outcome).inc()

    def body(self, octets: int) -> None:
        """Bytes that began, or with a minus ended, to be judged."""
        self._in_flight.inc(octets)

    def waiting(self, events: int) -> None:
        """Events that began, or with a minus ended, to wait for the store."""
        self._queue.inc(events)

    def measure(self, origin: str) -> Measured | None:
        """To be filled by the judge."""
        return Measured(origin)

    def measured(self, measured: Measured) -> None:
        """Attempts and operations of a durable request, or that were decided since."""
        self._attempts.add(measured)
        self._waiting.see(measured, self._clock.monotonic())

    def judged(self, verdict: Verdict, seconds: float) -> None:
        """A verdict that is durable, and how long the store took for it."""
        self._written.observe(seconds)
        for state, reason, events in (
            (names.STORED, "", verdict.stored),
            (names.DUPLICATE, "", verdict.duplicate - verdict.expired),
            (names.DUPLICATE, names.REASON_EXPIRED, verdict.expired),
        ):
            if events:
                self._events.labels(state, reason).inc(events)
        for rejection in verdict.rejections:
            self._events.labels(rejection.code, names.REASON_REJECTED).inc()
        super().judged(verdict, seconds)

    def limited(self, events: int) -> None:
        """Events over the quota of a browser key."""
        self._events.labels(names.LIMIT, names.REASON_REJECTED).inc(events)

    def unacknowledged(self, events: int) -> None:
        """Events that were submitted and not acknowledged."""
        self._events.labels(names.UNACKNOWLEDGED, names.REASON_UNAVAILABLE).inc(events)


class State(Collector):
    """What is read when the page is made: size of the store, readiness, workers."""

    def __init__(self, size: int | None, *, ready: bool, workers: int, deaths: int) -> None:
        self._size = size
        self._ready = ready
        self._workers = workers
        self._deaths = deaths

    def collect(self) -> Iterable[Family]:
        """The families."""
        if self._size is not None:
            yield _read(names.STORE_SIZE_METRIC, self._size)
        yield _read(names.READY_METRIC, int(self._ready))
        yield _read(names.WORKERS_METRIC, self._workers)
        metric = names.WORKER_DEATHS_METRIC
        family = Family(prometheus_name(metric), metric.says, "counter")
        family.add_sample(f"{prometheus_name(metric)}_total", {}, self._deaths)
        yield family


def page_of(*collectors: Collector | CollectorRegistry, folder: Path | None = None) -> bytes:
    """The page: what the collectors give, and the sum of what the workers wrote to a folder."""
    registry = CollectorRegistry()
    if folder is not None:
        MultiProcessCollector(registry, path=str(folder))  # type: ignore[no-untyped-call]
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


def forget(process: int, folder: Path) -> None:
    """A worker ended: what it had in flight is no longer; what it counted stays counted."""
    mark_process_dead(process, str(folder))  # type: ignore[no-untyped-call]


def _gauge(metric: names.Metric, registry: CollectorRegistry | None) -> Gauge:
    return Gauge(
        prometheus_name(metric), metric.says, registry=registry, multiprocess_mode="livesum"
    )


def _read(metric: names.Metric, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(prometheus_name(metric), metric.says, value)
