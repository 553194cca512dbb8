"""The instruments: what is observed of deliveries, and what is recorded of attempts.

Without a meter provider they cost one question a record; one that is set later is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol
from weakref import WeakSet

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from flowmark_otel import names
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.deliver import forks
from flowmark_otel.deliver.metrics.attempts import MAX_NAMES, Attempts, Named
from flowmark_otel.deliver.spool.spool import Spool
from flowmark_otel.model import Envelope, Refused

_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_NANO: Final = 1_000_000_000

Callback = Callable[[CallbackOptions], Iterable[Observation]]


class Counted(Protocol):
    """What is asked of a delivery."""

    def counts(self) -> Mapping[tuple[str, str], int]:
        """The events by (state, reason)."""
        ...

    def diagnostics(self) -> Mapping[str, int]:
        """How often each diagnostic code was met."""
        ...


class Metrics:
    """The metrics of section 10 that a client has evidence for; made once for one meter.

    ``flowmark.delivery.events`` goes up and down: an event that is delivered leaves its state for
    another, so that at every moment the points add up to what was recorded. It equals
    ``Delivery.counts()``, over all watched deliveries. States, reasons and codes are closed sets.

    ``flowmark.attempts`` and ``flowmark.attempt.duration`` are of attempts that ended in this
    process, as it recorded them, whatever became of their delivery; they begin when there is a
    meter provider. ``flowmark.operations`` counts what ended for certain: an occurrence without
    attempt at its end; a group when an attempt of it completed, or failed with the number of its
    limit. A group that was given up without a limit is in no count here, the backend decides it.
    ``flowmark.operation.time_lost`` is the part of the backend's figure that attempts made in this
    process show.
    """

    def __init__(
        self, meter: Meter, clock: Clock | None = None, max_names: int = MAX_NAMES
    ) -> None:
        self._clock = clock or SystemClock()
        self._attempts = Attempts(max_names)
        self._deliveries: WeakSet[Counted] = WeakSet()
        self._spools: WeakSet[Spool] = WeakSet()
        self._durations = meter.create_histogram(
            *_of(names.ATTEMPT_DURATION_METRIC), explicit_bucket_boundaries_advisory=_SECONDS
        )
        counters: tuple[tuple[names.Metric, Callback], ...] = (
            (names.ATTEMPTS_METRIC, self._ended_attempts),
            (names.OPERATIONS_METRIC, self._ended_operations),
            (names.TIME_LOST_METRIC, self._time_lost),
            (names.DIAGNOSTICS_METRIC, self._diagnostics),
        )
        for metric, callback in counters:
            name, unit, says = _of(metric)
            meter.create_observable_counter(name, [callback], unit, says)
        sums: tuple[tuple[names.Metric, Callback], ...] = (
            (names.DELIVERY_METRIC, self._events),
            (names.QUEUE_SIZE_METRIC, self._queued),
            (names.SPOOL_SIZE_METRIC, self._spool_bytes),
        )
        for metric, callback in sums:
            name, unit, says = _of(metric)
            meter.create_observable_up_down_counter(name, [callback], unit, says)
        name, unit, says = _of(names.SPOOL_AGE_METRIC)
        meter.create_observable_gauge(name, [self._spool_age], unit, says)
        forks.register(self)

    def see(self, events: Iterable[Envelope | Refused]) -> None:
        """Count recorded events, unless nobody could read the counts."""
        # An instrument of the API has none of the provider's behind it while there is no provider.
        if getattr(self._durations, "_real_instrument", self) is None:
            return
        for (workflow, operation), status, duration in self._attempts.see(events):
            labels = {
                names.WORKFLOW_NAME: workflow,
                names.OPERATION_NAME: operation,
                names.ATTEMPT_STATUS: status,
            }
            self._durations.record(duration / _NANO, labels)

    def after_fork(self) -> None:
        """In a child: nothing was recorded."""
        self._attempts.begin_anew()

    def watch(self, delivery: Counted, spool: Spool | None = None) -> None:
        """Observe a delivery, and its spool if it has one, for as long as they live."""
        self._deliveries.add(delivery)
        if spool is not None:
            self._spools.add(spool)

    def _totals(self) -> Counter[tuple[str, str]]:
        totals: Counter[tuple[str, str]] = Counter()
        for delivery in list(self._deliveries):
            totals.update(delivery.counts())
        return totals

    def _ended_attempts(self, _: CallbackOptions) -> Iterator[Observation]:
        for (named, status), count in self._attempts.attempts().items():
            yield Observation(count, {**_labels(named), names.ATTEMPT_STATUS: status})

    def _ended_operations(self, _: CallbackOptions) -> Iterator[Observation]:
        for (named, verdict), count in self._attempts.operations().items():
            yield Observation(count, {**_labels(named), names.VERDICT: verdict})

    def _time_lost(self, _: CallbackOptions) -> Iterator[Observation]:
        for named, lost_ns in self._attempts.lost_ns().items():
            yield Observation(lost_ns / _NANO, _labels(named))

    def _events(self, _: CallbackOptions) -> Iterator[Observation]:
        for (state, reason), count in self._totals().items():
            attributes = {names.DELIVERY_STATE: state}
            if reason:
                attributes[names.DELIVERY_REASON] = reason
            yield Observation(count, attributes)

    def _queued(self, _: CallbackOptions) -> Iterator[Observation]:
        yield Observation(self._totals()[names.QUEUED, ""])

    def _diagnostics(self, _: CallbackOptions) -> Iterator[Observation]:
        totals: Counter[str] = Counter()
        for delivery in list(self._deliveries):
            totals.update(delivery.diagnostics())
        for code, count in totals.items():
            yield Observation(count, {names.DIAGNOSTIC_CODE: code})

    def _spool_bytes(self, _: CallbackOptions) -> Iterator[Observation]:
        spools = list(self._spools)
        if spools:
            yield Observation(sum(spool.size() for spool in spools))

    def _spool_age(self, _: CallbackOptions) -> Iterator[Observation]:
        """The age of the oldest record; nothing undelivered has the age 0."""
        spools = list(self._spools)
        if spools:
            now = self._clock.now_ns()
            oldest = [written for spool in spools if (written := spool.shelf.oldest()) is not None]
            yield Observation(max(now - min(oldest, default=now), 0) / _NANO)


def _of(metric: names.Metric) -> tuple[str, str, str]:
    return metric.name, metric.unit, metric.says


def _labels(named: Named) -> dict[str, str]:
    return {names.WORKFLOW_NAME: named[0], names.OPERATION_NAME: named[1]}
