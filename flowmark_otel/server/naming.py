"""Counters of the backend, by OpenTelemetry's names as Prometheus has them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from flowmark_otel import names
from flowmark_otel.listen.prometheus import labels, prometheus_name

__all__ = ["counter", "labels", "prometheus_name"]


def counter(metric: names.Metric, registry: CollectorRegistry | None) -> Counter:
    """A counter of one process; without a registry one of those that are summed up."""
    return Counter(prometheus_name(metric), metric.says, labels(metric), registry=registry)
