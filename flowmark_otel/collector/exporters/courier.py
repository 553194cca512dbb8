"""The client's courier, and what a collector does about events that were refused (C6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector.element import ElementError, Outcome, error_name
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.node import Taking
from flowmark_otel.collector.payload import Letter, Letters, Telemetry
from flowmark_otel.deliver.courier import Courier
from flowmark_otel.deliver.judge import Failed, Judgement
from flowmark_otel.deliver.pace import Flags, Pace, Progress
from flowmark_otel.deliver.reporter import Reporter
from flowmark_otel.deliver.transport import Transport
from flowmark_otel.model import Envelope
from flowmark_otel.wire.encode import encode_logs

_REFUSED: Final = frozenset((names.CONFLICT, names.INVALID, names.LIMIT))
_FOR_ITSELF: Final = frozenset((names.REASON_REJECTED, names.REASON_TOO_LARGE))
_LETTER_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 1.0


class Routing(NamedTuple):
    """Who is told of refused events: the watch, the meter, and a port on a loop, None for none."""

    watch: Watch
    meter: NodeMeter
    port: Taking | None
    loop: asyncio.AbstractEventLoop


class SpoolCourier(Courier):
    """Writes letters of what the other side refused before it leaves the spool.

    Belongs to the thread that sends.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        reporter: Reporter,
        clock: Clock,
        pace: Pace,
        flags: Flags,
        progress: Progress,
        *,
        routing: Routing,
    ) -> None:
        super().__init__(transport, reporter, clock, pace, flags, progress)
        self._routing = routing

    def carry(self, events: Sequence[Envelope], resource: Mapping[str, object]) -> Judgement | None:
        """As the base; what was dead-lettered is said to be so. None on a halt, too."""
        judgement = super().carry(events, resource)
        if judgement is None:
            return None
        failures, meter = judgement.failures, self._routing.meter
        if judgement.reason == names.REASON_UNACKNOWLEDGED and failures:
            self._routing.watch.lost(judgement.detail)
        for each in failures:
            meter.refused(each.state if each.state in _REFUSED else each.reason, 1)
        meter.forwarded(len(events) - len(failures))
        if self._routing.port is None or not failures:
            return judgement
        return self._routed(judgement, events, resource)

    def _routed(
        self, judgement: Judgement, events: Sequence[Envelope], resource: Mapping[str, object]
    ) -> Judgement | None:
        lost = {
            each.position: each
            for each in judgement.failures
            if each.state in _REFUSED or each.reason in _FOR_ITSELF
        }
        letters = tuple(
            self._letter(each, events[position], resource) for position, each in lost.items()
        )
        if letters and not self._written(letters):
            return None
        failures = tuple(
            each._replace(state=names.DEAD_LETTERED)
            if each.position in lost and each.state not in _REFUSED
            else each
            for each in judgement.failures
        )
        return Judgement(judgement.states, failures, receipt=judgement.receipt)

    def _letter(self, failed: Failed, event: Envelope, resource: Mapping[str, object]) -> Letter:
        source = Telemetry("logs", "protobuf", encode_logs([event], resource))
        name = error_name(names.REASON_REJECTED)
        message = f"{failed.state}: {failed.message}"
        return Letter(1, name, message, self._routing.meter.id, self._clock.now_ns(), source)

    def _written(self, letters: tuple[Letter, ...]) -> bool:
        """Hand letters to the port until it takes them; False on a halt."""
        while not self._flags.halted():
            if self._handed(Letters(letters)):
                self._routing.meter.letters(len(letters))
                return True
            self._flags.rest(_AGAIN_SECONDS, told=True)
        return False

    def _handed(self, letters: Letters) -> bool:
        port = self._routing.port
        if port is None:
            return True

        async def take() -> Outcome:
            return await port.take(letters)

        taking: Future[Outcome] = asyncio.run_coroutine_threadsafe(take(), self._routing.loop)
        try:
            taking.result(_LETTER_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever it is, the event stays in the spool
            taking.cancel()
            name = error.name if isinstance(error, ElementError) else type(error).__name__
            self._routing.meter.failed(name, f"letters are not taken: {error}")
            return False
        return True
