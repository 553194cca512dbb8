"""Measures what passes on its way to delivery."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol

from opentelemetry.metrics import get_meter

from flowmark_otel import names
from flowmark_otel.deliver.metrics.instruments import Counted, Metrics
from flowmark_otel.deliver.spool.spool import Spool
from flowmark_otel.deliver.transports.headers import installed_version
from flowmark_otel.model import Diagnostic, Envelope, Refused


class _Delivering(Protocol):
    """A sink that can be flushed."""

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None: ...

    def diagnose(self, diagnostic: Diagnostic) -> None: ...

    def try_flush(self, timeout: float) -> bool: ...


class MeasuringSink:
    """Hands everything on as it came, and counts it in ``metrics``; any thread may call."""

    def __init__(self, sink: _Delivering, metrics: Metrics) -> None:
        self._put = sink.put
        self._metrics = metrics
        self._failed = False
        self.diagnose: Callable[[Diagnostic], None] = sink.diagnose
        self.try_flush: Callable[[float], bool] = sink.try_flush

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Take events of one resource; raises nothing."""
        self._put(events, resource)
        try:
            self._metrics.see(events)
        except Exception as error:  # noqa: BLE001 - a meter provider may be the application's own
            if not self._failed:
                self._failed = True
                message = f"metrics: {type(error).__name__}: {error}"
                self.diagnose(Diagnostic(names.DIAGNOSTIC_INTERNAL, message))


@cache
def _process_metrics() -> Metrics:
    """One set of instruments for the process: an observed one cannot be taken back."""
    return Metrics(get_meter(names.SCOPE, installed_version()))


def measuring(sink: _Delivering, delivery: Counted, spool: Spool | None = None) -> MeasuringSink:
    """A sink that measures what it hands to ``sink``, by the global meter provider.

    ``delivery`` is what ``sink`` ends in: it is observed, and its spool, for as long as it lives.
    """
    found = _process_metrics()
    found.watch(delivery, spool)
    return MeasuringSink(sink, found)
