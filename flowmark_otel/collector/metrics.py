"""The collector's metrics as Prometheus text; declared in ``names.COLLECTOR_METRICS``.

Labels are ids of the configuration file and closed sets: nothing that is sent makes a series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from flowmark_otel import names
from flowmark_otel.collector.meter import Meter, NodeReading
from flowmark_otel.listen.prometheus import label, prometheus_name

_COUNTERS: Final[tuple[tuple[names.Metric, Callable[[NodeReading], int]], ...]] = (
    (names.NODE_RECEIVED_METRIC, lambda node: node.received),
    (names.NODE_MESSAGES_METRIC, lambda node: node.messages),
    (names.NODE_FAILED_METRIC, lambda node: node.failed_messages),
    (names.NODE_FOLDED_METRIC, lambda node: node.folded),
    (names.NODE_FORWARDED_METRIC, lambda node: node.forwarded),
    (names.NODE_DROPPED_METRIC, lambda node: node.dropped),
    (names.NODE_LETTERS_METRIC, lambda node: node.letters),
    (names.NODE_RETRIES_METRIC, lambda node: node.retries),
)


def page_of(meter: Meter, *, in_flight: int, ready: bool) -> bytes:
    """The page. ``in_flight``: bytes of requests that are being worked on."""
    registry = CollectorRegistry()
    registry.register(_Reading(meter, in_flight=in_flight, ready=ready))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Reading(Collector):
    def __init__(self, meter: Meter, *, in_flight: int, ready: bool) -> None:
        self._meter = meter
        self._in_flight = in_flight
        self._ready = ready

    def collect(self) -> Iterable[Family]:
        """The families, of one look at every node."""
        nodes = list(self._meter.nodes())
        for metric, count in _COUNTERS:
            family = Family(prometheus_name(metric), metric.says, "counter")
            for node in nodes:
                _total(family, _labels(node), count(node))
            yield family
        yield self._refused(nodes)
        yield from _gauges(nodes)
        yield self._pipelines()
        yield _alone(names.READY_METRIC, int(self._ready))
        yield _alone(names.IN_FLIGHT_METRIC, self._in_flight)

    def _refused(self, nodes: list[NodeReading]) -> Family:
        metric = names.NODE_REFUSED_METRIC
        family = Family(prometheus_name(metric), metric.says, "counter")
        reason_label = label(names.DELIVERY_REASON)
        for node in nodes:
            for reason, items in sorted(node.refused.items()):
                _total(family, {**_labels(node), reason_label: reason}, items)
        return family

    def _pipelines(self) -> Family:
        metric = names.PIPELINE_MESSAGES_METRIC
        family = Family(prometheus_name(metric), metric.says, "counter")
        for pipeline in self._meter.pipelines():
            for outcome, count in (
                (names.STATUS_COMPLETED, pipeline.completed),
                (names.STATUS_FAILED, pipeline.failed),
            ):
                labels = {label(names.PIPELINE): pipeline.id}
                _total(family, {**labels, label(names.PIPELINE_OUTCOME): outcome}, count)
        return family


def _gauges(nodes: list[NodeReading]) -> Iterator[Family]:
    ready, size, age = (
        Family(prometheus_name(metric), metric.says, "gauge")
        for metric in (
            names.NODE_READY_METRIC,
            names.NODE_SPOOL_SIZE_METRIC,
            names.NODE_SPOOL_AGE_METRIC,
        )
    )
    for node in nodes:
        labels = _labels(node)
        ready.add_sample(ready.name, labels, int(node.state.ready))
        if node.spool is not None:
            size.add_sample(size.name, labels, node.spool.size)
            age.add_sample(age.name, labels, node.spool.oldest_seconds)
    yield from (ready, size, age)


def _alone(metric: names.Metric, value: float) -> Family:
    family = Family(prometheus_name(metric), metric.says, "gauge")
    family.add_sample(family.name, {}, value)
    return family


def _total(family: Family, labels: dict[str, str], value: float) -> None:
    family.add_sample(f"{family.name}_total", labels, value)


def _labels(node: NodeReading) -> dict[str, str]:
    return {label(names.NODE_KIND): node.kind.name.lower(), label(names.NODE): node.id}
