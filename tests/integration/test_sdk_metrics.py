"""The client's metrics, read with the SDK's own reader (contract, section 10)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from flowmark_otel import names
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from flowmark_otel.deliver.metrics import MeasuringSink, Metrics
from flowmark_otel.deliver.spool.backlog import SpoolBacklog
from flowmark_otel.model import Diagnostic, Envelope, Refused
from flowmark_otel.testing import FakeClock, InMemoryBackend
from tests.support.envelopes import NOW, completed, failed, observed, run_event, started

RESOURCE: Final = {"service.name": "crm-sync"}
SECOND: Final = 1_000_000_000
PUSH: Final = {names.WORKFLOW_NAME: "crm.sync", names.OPERATION_NAME: "push-to-crm"}

Points = dict[frozenset[tuple[str, object]], Any]


class Measured:
    """A delivery into memory whose sink is measured."""

    def __init__(self, delivery: Delivery, *, max_names: int = 200) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.metrics = Metrics(self.provider.get_meter("test"), max_names=max_names)
        self.delivery = delivery
        self.sink = MeasuringSink(delivery, self.metrics)
        self.metrics.watch(delivery)

    def put(self, *events: Envelope | Refused) -> None:
        """Record, each event in a call of its own."""
        for event in events:
            self.sink.put([event], RESOURCE)

    def read(self) -> dict[str, tuple[str, Points]]:
        """Unit and points of each metric, by the attributes of the point."""
        data = self.reader.get_metrics_data()
        assert data is not None
        [resource] = data.resource_metrics
        [scope] = resource.scope_metrics
        return {
            metric.name: (
                metric.unit or "",
                {frozenset((p.attributes or {}).items()): p for p in metric.data.data_points},
            )
            for metric in scope.metrics
        }

    def value(self, metric: names.Metric, attributes: Mapping[str, object]) -> Any:
        """The value of one point, 0 if there is none."""
        _, points = self.read().get(metric.name, ("", {}))
        point = points.get(frozenset(attributes.items()))
        return 0 if point is None else point.value


@pytest.fixture
def measured() -> Iterator[Measured]:
    """A new one, ended after the test."""
    found = Measured(Delivery(ClientOptions(), transport=InMemoryBackend()))
    yield found
    found.delivery.try_flush(0)
    found.provider.shutdown()


def delivered(found: Measured) -> dict[tuple[str, str], int]:
    """``flowmark.delivery.events`` as counts by state and reason."""
    _, points = found.read()[names.DELIVERY_METRIC.name]
    return {
        (
            point.attributes[names.DELIVERY_STATE],
            point.attributes.get(names.DELIVERY_REASON, ""),
        ): point.value
        for point in points.values()
    }


def test_delivery_counts_are_the_deliverys_own(measured: Measured) -> None:
    """A22: every event in exactly one state, also while it waits; they equal Delivery.counts()."""
    backend = measured.delivery._transport
    assert isinstance(backend, InMemoryBackend)
    backend.available = False
    measured.put(completed(1, ("g", 1)), started(2), Refused(names.INVALID, "broken", "op-x"))
    assert delivered(measured) == dict(measured.delivery.counts())
    assert delivered(measured)[names.QUEUED, ""] == 2
    assert measured.value(names.QUEUE_SIZE_METRIC, {}) == 2
    backend.available = True
    assert not measured.delivery.try_flush(10)
    measured.put(failed(3, ("g", 1)))
    assert not measured.delivery.try_flush(10)
    expected = {
        (names.STORED, ""): 2,
        (names.INVALID, names.REASON_NOT_SENT): 1,
        (names.CONFLICT, names.REASON_REJECTED): 1,
    }
    assert delivered(measured) == dict(measured.delivery.counts()) == expected
    assert measured.value(names.QUEUE_SIZE_METRIC, {}) == 0
    assert sum(delivered(measured).values()) == measured.delivery.recorded() == 4


def test_diagnostics_are_counted_by_code(measured: Measured) -> None:
    """A22: each diagnostic is counted under its code, which is of a closed set."""
    for _ in range(3):
        measured.sink.diagnose(Diagnostic(names.DIAGNOSTIC_LATE_REPORT, "late"))
    attributes = {names.DIAGNOSTIC_CODE: names.DIAGNOSTIC_LATE_REPORT}
    assert measured.value(names.DIAGNOSTICS_METRIC, attributes) == 3


def test_attempts_and_durations(measured: Measured) -> None:
    """E4: attempts that ended, by status, and how long they took; only those with the pair."""
    measured.put(
        started(1, ("g", 1)),
        failed(1, ("g", 1), duration=SECOND // 2),
        completed(2, ("g", 2), duration=2 * SECOND),
        completed(3, ("g", 3)),  # no duration is known
        completed(4),
        observed(4, 1),
        run_event(names.RUN_COMPLETED, 5),
    )
    for status, count, total in (("failed", 1, 0.5), ("completed", 2, 2.0)):
        attributes = {**PUSH, names.ATTEMPT_STATUS: status}
        assert measured.value(names.ATTEMPTS_METRIC, attributes) == count
        unit, points = measured.read()[names.ATTEMPT_DURATION_METRIC.name]
        point = points[frozenset(attributes.items())]
        assert (unit, point.sum, point.count) == ("s", total, 1)


def verdicts(found: Measured) -> dict[str, int]:
    """``flowmark.operations`` by verdict."""
    every = (names.VERDICT_FIRST_TRY, names.VERDICT_AFTER_RETRY, names.VERDICT_FAILED)
    counts = {
        each: found.value(names.OPERATIONS_METRIC, {**PUSH, names.VERDICT: each}) for each in every
    }
    return {each: count for each, count in counts.items() if count}


def test_operations_are_counted_on_evidence(measured: Measured) -> None:
    """E4: a completed attempt decides its group, once; a failed one only at its limit."""
    measured.put(completed(1, ("first", 1)))
    assert verdicts(measured) == {names.VERDICT_FIRST_TRY: 1}
    measured.put(failed(2, ("second", 1), limit=3))
    assert verdicts(measured) == {names.VERDICT_FIRST_TRY: 1}
    measured.put(completed(3, ("second", 2), limit=3), completed(4, ("second", 3), limit=3))
    measured.put(failed(5, ("third", 2), limit=2), failed(6, ("fourth", 1)))
    assert verdicts(measured) == {
        names.VERDICT_FIRST_TRY: 1,
        names.VERDICT_AFTER_RETRY: 1,
        names.VERDICT_FAILED: 1,
    }
    measured.put(completed(7), failed(8))
    assert verdicts(measured) == {
        names.VERDICT_FIRST_TRY: 2,
        names.VERDICT_AFTER_RETRY: 1,
        names.VERDICT_FAILED: 2,
    }


def test_time_lost(measured: Measured) -> None:
    """E4: failed attempts with a higher number, and the idle time between consecutive ones."""
    measured.put(
        started(1, ("g", 1), at=NOW),
        failed(1, ("g", 1), at=NOW + 2 * SECOND, duration=2 * SECOND),
    )
    assert measured.value(names.TIME_LOST_METRIC, PUSH) == 0
    measured.put(started(2, ("g", 2), at=NOW + 5 * SECOND))
    assert measured.value(names.TIME_LOST_METRIC, PUSH) == 5
    measured.put(failed(2, ("g", 2), at=NOW + 6 * SECOND, duration=SECOND))
    measured.put(started(4, ("g", 4), at=NOW + 60 * SECOND))  # 3 is not known: no idle time
    assert measured.value(names.TIME_LOST_METRIC, PUSH) == 6
    measured.put(started(5, ("h", 1), at=NOW), started(6, ("h", 2), at=NOW + SECOND))
    measured.put(failed(5, ("h", 1), at=NOW + 3 * SECOND, duration=3 * SECOND))  # they overlap
    assert measured.value(names.TIME_LOST_METRIC, PUSH) == 9


def test_names_beyond_the_limit_are_other() -> None:
    """E4: cardinality is bounded: later names count under ``_other``."""
    found = Measured(Delivery(ClientOptions(), transport=InMemoryBackend()), max_names=2)
    for number, name in enumerate(("a", "b", "c", "d", "a"), 1):
        found.put(completed(number, (f"g{number}", 1), operation=name))
    _, points = found.read()[names.ATTEMPTS_METRIC.name]
    counts = {point.attributes[names.OPERATION_NAME]: point.value for point in points.values()}
    assert counts == {"a": 2, "b": 1, names.OTHER_NAMES: 2}
    found.delivery.shutdown(10)


def test_spool_size_and_age(tmp_path: Path) -> None:
    """E1: bytes on disk, and how old the oldest undelivered record is; 0 when nothing waits."""
    clock = FakeClock()
    backend = InMemoryBackend()
    backend.available = False
    backlog = SpoolBacklog(tmp_path / "spool", clock=clock, report=lambda _: None)
    delivery = Delivery(ClientOptions(), transport=backend, backlog=backlog)
    found = Measured(delivery)
    metrics = Metrics(found.provider.get_meter("spool"), clock)
    metrics.watch(delivery, backlog.spool)
    delivery.put([started(1, ("g", 1))], RESOURCE)
    clock.advance(90)

    def read() -> dict[str, float]:
        data = found.reader.get_metrics_data()
        assert data is not None
        [resource] = data.resource_metrics
        return {
            metric.name: point.value
            for scope in resource.scope_metrics
            if scope.scope.name == "spool"
            for metric in scope.metrics
            for point in metric.data.data_points
            if isinstance(point, NumberDataPoint) and not point.attributes
        }

    values = read()
    assert values[names.SPOOL_SIZE_METRIC.name] == backlog.spool.size() > 0
    assert values[names.SPOOL_AGE_METRIC.name] == 90
    assert values[names.QUEUE_SIZE_METRIC.name] == 0
    backend.available = True
    delivery.flush(20)
    assert read()[names.SPOOL_AGE_METRIC.name] == 0
    delivery.shutdown(10)


def test_every_metric_has_its_name_and_unit(measured: Measured, tmp_path: Path) -> None:
    """Contract, section 10: the table of names is what is exported, with units and attributes."""
    backlog = SpoolBacklog(tmp_path / "spool", clock=FakeClock(), report=lambda _: None)
    measured.metrics.watch(measured.delivery, backlog.spool)
    measured.put(
        failed(1, ("g", 1), duration=SECOND),
        started(2, ("g", 2)),
        completed(2, ("g", 2)),
        Refused(names.INVALID, "broken"),
    )
    measured.delivery.try_flush(10)
    found = measured.read()
    assert {name: unit for name, (unit, _) in found.items()} == {
        metric.name: metric.unit for metric in names.METRICS
    }
    for metric in names.METRICS:
        keys = {key for point in found[metric.name][1] for key, _ in point}
        assert keys == set(metric.attributes), metric.name
    backlog.close()


def test_a_broken_meter_provider_reaches_nobody(measured: Measured) -> None:
    """A26: what raises in metrics is reported once, and recording goes on."""

    class Broken:
        def record(self, *_: object) -> None:
            message = "no metrics today"
            raise OSError(message)

    measured.metrics._durations = Broken()  # type: ignore[assignment]
    measured.put(completed(1, ("g", 1), duration=1), completed(2, ("g", 2), duration=1))
    measured.delivery.flush(10)
    assert measured.delivery.counts() == {(names.STORED, ""): 2}
    assert measured.delivery.diagnostics() == {names.DIAGNOSTIC_INTERNAL: 1}


def test_the_clients_metrics_reach_the_global_provider() -> None:
    """Contract, section 10: a client is measured by the meter provider, also one that is set later.

    In a process of its own, since a global provider is set once.
    """
    program = """
import flowmark_otel as flowmark
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from flowmark_otel.testing import recording

reader = InMemoryMetricReader()
with recording() as backend:
    flow = flowmark.workflow("crm.sync")
    flow.operation("push-to-crm", attempt=flowmark.Attempt("g", 1)).fail(code="X")
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    flow.operation("push-to-crm", attempt=flowmark.Attempt("g", 2)).fail(code="X")
    flow.operation("push-to-crm", attempt=flowmark.Attempt("g", 3)).complete()
    flowmark.flush(10)
    for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            name = f"{metric.name}/{point.attributes.get('flowmark.attempt.status', '')}"
            print(name, getattr(point, "value", None))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found["flowmark.delivery.events/"] == "7"
    assert found["flowmark.attempts/failed"] == "1"  # the first ended before there was a provider
    assert found["flowmark.attempts/completed"] == "1"
    assert found["flowmark.operations/"] == "1"
    assert float(found["flowmark.operation.time_lost/"]) > 0
    assert found["flowmark.queue.size/"] == "0"
