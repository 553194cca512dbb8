"""The client's metrics, by the OpenTelemetry metrics API (contract, section 10; E4, E7)."""

from flowmark_otel.deliver.metrics.instruments import Counted, Metrics
from flowmark_otel.deliver.metrics.sink import MeasuringSink, measuring

__all__ = ["Counted", "MeasuringSink", "Metrics", "measuring"]
