"""The loop of the one thread that sends: takes batches and settles every event in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from flowmark_otel import names
from flowmark_otel.deliver.backlog import Backlog, Handout
from flowmark_otel.deliver.counts import Ledger
from flowmark_otel.deliver.courier import Courier, given_up
from flowmark_otel.deliver.judge import Failed, Judgement
from flowmark_otel.deliver.pace import Flags, Pace
from flowmark_otel.deliver.reporter import Reporter
from flowmark_otel.model import Diagnostic, Unacknowledged

_LOOK_AGAIN: Final = 30.0
"""Seconds after which a durable backlog is looked at again: another process may have ended."""


class Sender:
    """Empties a backlog, batch by batch in the order recorded."""

    def __init__(
        self,
        backlog: Backlog,
        courier: Courier,
        ledger: Ledger,
        reporter: Reporter,
        pace: Pace,
        flags: Flags,
    ) -> None:
        self._backlog = backlog
        self._courier = courier
        self._ledger = ledger
        self._reporter = reporter
        self._pace = pace
        self._flags = flags

    def run(self) -> None:
        """Send until halted."""
        token = _without_instrumentation()
        longest = _LOOK_AGAIN if self._backlog.durable else None
        self._flags.hurry()  # the start of this thread took longer than a batch gathers
        try:
            while not self._flags.halted():
                self._reporter.drain()
                self._flags.gather(self._backlog.waiting, longest)
                if not self._flags.halted():
                    self._next()
        finally:
            otel_context.detach(token)

    def run_until(self, settled: Callable[[], bool], deadline: float) -> None:
        """Send on the caller's thread: at the end of the interpreter there can be no other."""
        token = _without_instrumentation()
        self._flags.until(deadline)
        try:
            while not (settled() or self._flags.halted()) and self._next():
                self._reporter.drain()
        finally:
            self._flags.until(None)
            otel_context.detach(token)

    def _next(self) -> bool:
        """Deliver one batch; False if none waits."""
        handout = self._backlog.take(self._pace.batch)
        if handout is None:
            return False
        left = list(range(len(handout.events)))
        try:
            self._deliver(handout, left)
        except Exception as error:  # noqa: BLE001 - a defect of ours must not stop what follows
            message = f"{type(error).__name__}: {error}"
            self._reporter.post(Diagnostic(names.DIAGNOSTIC_INTERNAL, message))
            lost = given_up(len(left), names.REASON_UNACKNOWLEDGED, message)
            self._settle(handout, lost, left)
        except BaseException:  # a callback that exits its thread; the next event starts another
            handout.again()
            raise
        return True

    def _deliver(self, handout: Handout, left: list[int]) -> None:
        """Send a handout, in halves where something spoils it; what is settled leaves ``left``."""
        self._flags.begin()
        whole = handout.events
        parts = [tuple(left)]
        while parts:
            part = parts.pop()
            events = whole if len(part) == len(whole) else [whole[each] for each in part]
            judgement = self._courier.carry(events, handout.resource)
            if judgement is not None:
                self._settle(handout, judgement, part)
                del left[: len(part)]
            elif self._flags.halted():
                handout.again()
                return
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]

    def _settle(self, handout: Handout, judgement: Judgement, part: Sequence[int]) -> None:
        failures = [
            Unacknowledged(
                handout.event_id(part[failed.position]),
                failed.state,
                failed.reason,
                failed.message,
            )
            for failed in judgement.failures
        ]
        lost = [part[each.position] for each in judgement.failures if _is_lost(each)]
        handout.set_aside(lost)
        handout.done(part)
        settle = self._ledger.inherit if handout.adopted else self._ledger.settle
        settle(judgement.states, failures)
        self._courier.progress.tried = 0


def _is_lost(failed: Failed) -> bool:
    """Whether nobody has judged the event: it may be worth to be looked at and sent again."""
    return failed.state == names.UNACKNOWLEDGED


def _without_instrumentation() -> Token[Context]:
    """Instrumentations of HTTP and gRPC clients must not record our own requests."""
    found = otel_context.get_current()
    for name in ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY"):
        key = getattr(otel_context, name, None)
        if isinstance(key, str):
            found = otel_context.set_value(key, value=True, context=found)
    found = otel_context.set_value("suppress_instrumentation", value=True, context=found)
    return otel_context.attach(found)
