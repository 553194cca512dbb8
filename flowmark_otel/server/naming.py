"""OpenTelemetry's names of metrics as Prometheus has them, and counters made of them."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

from flowmark_otel import names

_UNITS: Final = {"s": "_seconds", "By": "_bytes"}


def prometheus_name(metric: names.Metric) -> str:
    """The name by Prometheus' rules, without the ``_total`` of a counter."""
    return metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")


def labels(metric: names.Metric) -> list[str]:
    """The names of its labels, in order."""
    return [name.replace(".", "_") for name in metric.attributes]


def counter(metric: names.Metric, registry: CollectorRegistry | None) -> Counter:
    """A counter of one process; without a registry one of those that are summed up."""
    return Counter(prometheus_name(metric), metric.says, labels(metric), registry=registry)
