"""The metrics of attempts and operations, as one process has stored them (contract, section 10)."""

from __future__ import annotations

import threading
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from flowmark_otel import names
from flowmark_otel.backend.measured import Measured, Named
from flowmark_otel.server.naming import counter, labels, prometheus_name

MAX_NAMES: Final = 200
"""Pairs of workflow and operation name that a process tells apart; later ones are ``_other``."""

MAX_BROWSER_NAMES: Final = 20
"""The same of what came with browser keys: anybody may name that, and it must displace nobody."""

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_NANO: Final = 1_000_000_000


class Attempts:
    """Counters that only rise; any thread may call.

    ``registry`` is None where a supervisor sums up what workers wrote.
    """

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._attempts = counter(names.ATTEMPTS_METRIC, registry)
        self._operations = counter(names.OPERATIONS_METRIC, registry)
        self._lost = counter(names.TIME_LOST_METRIC, registry)
        self._diagnostics = counter(names.DIAGNOSTICS_METRIC, registry)
        metric = names.ATTEMPT_DURATION_METRIC
        self._durations = Histogram(
            *(prometheus_name(metric), metric.says, labels(metric)),
            buckets=_SECONDS,
            registry=registry,
        )
        self._lock = threading.Lock()
        self._names: dict[str, dict[Named, Named]] = {}  # by origin

    def add(self, measured: Measured) -> None:
        """Count what became durable."""
        named = self._known(measured)
        ended: dict[tuple[Named, names.Ended], list[int | None]] = {}
        for name, status, duration in measured.attempts:
            ended.setdefault((named[name], status), []).append(duration)
        for (name, status), durations in ended.items():
            self._attempts.labels(*name, status).inc(len(durations))
            observe = self._durations.labels(*name, status).observe
            for duration in durations:
                if duration is not None:
                    observe(duration / _NANO)
        for (name, verdict), number in measured.operations.items():
            self._operations.labels(*named[name], verdict).inc(number)
        for name, lost in measured.lost_ns.items():
            self._lost.labels(*named[name]).inc(lost / _NANO)
        for code, number in measured.diagnostics.items():
            self._diagnostics.labels(code).inc(number)

    def _known(self, measured: Measured) -> dict[Named, Named]:
        """The names as the labels have them."""
        wanted = {name for name, _, _ in measured.attempts}
        wanted.update(name for name, _ in measured.operations)
        wanted.update(measured.lost_ns)
        browser = measured.origin == names.ORIGIN_BROWSER
        most = MAX_BROWSER_NAMES if browser else MAX_NAMES
        with self._lock:
            known = self._names.setdefault(measured.origin, {})
            for name in sorted(wanted - known.keys()):
                if len(known) < most:
                    known[name] = name
            return {name: known.get(name, _OTHERS) for name in wanted}


_OTHERS: Final[Named] = (names.OTHER_NAMES, names.OTHER_NAMES)
