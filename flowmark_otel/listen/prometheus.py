"""OpenTelemetry's names of metrics as Prometheus has them."""

from __future__ import annotations

from typing import Final

from flowmark_otel import names

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of a page of metrics."""

_UNITS: Final = {"s": "_seconds", "By": "_bytes"}


def prometheus_name(metric: names.Metric) -> str:
    """The name by Prometheus' rules, without the ``_total`` of a counter."""
    return metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")


def label(name: str) -> str:
    """The name of a label, of that of an attribute."""
    return name.replace(".", "_")


def labels(metric: names.Metric) -> list[str]:
    """The names of a metric's labels, in order."""
    return [label(name) for name in metric.attributes]
