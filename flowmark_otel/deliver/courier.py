"""Carries one batch: encodes it, tries as the policy says, and has the answer judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.deliver import policy
from flowmark_otel.deliver.batch import Batch
from flowmark_otel.deliver.judge import CONTENT_TYPES, Failed, Judgement, judge, resolve
from flowmark_otel.deliver.pace import Flags, Pace, Progress
from flowmark_otel.deliver.reporter import Reporter
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer, Transport
from flowmark_otel.deliver.transports.headers import installed_version
from flowmark_otel.model import Diagnostic, Envelope
from flowmark_otel.wire.encode import encode_framed, encode_logs
from flowmark_otel.wire.receipt import PROTOBUF

_TROUBLES: Final = (
    names.REASON_UNAVAILABLE,
    names.REASON_TIMEOUT,
    names.REASON_UNAUTHORIZED,
    names.REASON_QUEUE_FULL,
)
_DOUBTS: Final = (
    names.REASON_UNACKNOWLEDGED,
    names.REASON_MALFORMED_RECEIPT,
    names.REASON_COUNT_MISMATCH,
)


class Courier:
    """Belongs to the thread that sends."""

    def __init__(
        self,
        transport: Callable[[], Transport],
        reporter: Reporter,
        clock: Clock,
        pace: Pace,
        flags: Flags,
        progress: Progress,
    ) -> None:
        self._transport = transport
        self._reporter = reporter
        self._clock = clock
        self._pace = pace
        self._limits = pace.limits
        self._flags = flags
        self.progress = progress

    def carry(self, events: Sequence[Envelope], resource: Mapping[str, object]) -> Judgement | None:
        """What became of these events; None if they have to be halved, or on a halt."""
        transport = self._transport()
        body = self._encoded(events, resource, transport.encoding)
        if body is None:
            if len(events) > 1:
                return None
            failed = Failed(0, names.INVALID, names.REASON_NOT_SENT, "it cannot be encoded")
            self._report(failed, events)
            return Judgement(failures=(failed,))
        decision = self._try(transport, body, len(events))
        if isinstance(decision, policy.Judge):
            return self._judged(transport, decision.answer, events)
        if isinstance(decision, policy.GiveUp):
            self._reporter.condition(decision.reason, decision.detail)
            return given_up(len(events), decision.reason, decision.detail)
        return None

    def _try(
        self, transport: Transport, body: bytes, events: int
    ) -> policy.Judge | policy.GiveUp | policy.Halve | None:
        """Try until the policy has decided; None on a halt."""
        limits = self._limits
        content_type = CONTENT_TYPES[transport.encoding]
        began = self._clock.monotonic()
        number = 0
        while not self._flags.halted():
            number += 1
            self.progress.tried = events
            seen = self._flags.begun()
            timeout = policy.begin(self._clock.monotonic() - began, limits).timeout
            outcome = _asked(transport, body, content_type, self._flags.within(timeout))
            tried = policy.Try(number, self._clock.monotonic() - began, events, self._pace.jitter())
            decision = policy.decide(outcome, tried, limits, self._clock.now_ns())
            if not isinstance(decision, policy.Wait):
                return decision
            self.progress.trouble = decision.reason
            if number > 1 or decision.paused:  # once can be a connection that went stale
                self._reporter.condition(decision.reason, decision.detail)
                self._reporter.drain()
            if decision.paused:
                self.progress.refuse(seen)
                self._flags.wait_no_longer()
            self._flags.rest(decision.seconds, told=decision.told)
        return None

    def _judged(
        self, transport: Transport, answer: Answer, events: Sequence[Envelope]
    ) -> Judgement:
        judgement = judge(answer, transport.encoding, events)
        if judgement.unnamed:
            judgement = self._ask(transport, judgement, events)
        self.progress.trouble = ""
        self._reporter.over(*_TROUBLES)
        if judgement.receipt is not None:
            self._reporter.over(*_DOUBTS)
        if judgement.reason and judgement.failures:
            self._reporter.condition(judgement.reason, judgement.detail)
        for failed in judgement.failures:
            if failed.state != names.UNACKNOWLEDGED:
                self._report(failed, events)
        return judgement

    def _report(self, failed: Failed, events: Sequence[Envelope]) -> None:
        event_id = events[failed.position].event_id
        self._reporter.post(Diagnostic(failed.state, failed.message, event_id))

    def _ask(
        self, transport: Transport, judgement: Judgement, events: Sequence[Envelope]
    ) -> Judgement:
        """Learn from the status endpoint what the receipt had no room to say."""
        ids = list(dict.fromkeys(events[each].event_id for each in judgement.unnamed))
        statuses: list[EventStatus] = []
        try:
            statuses = transport.status(ids, self._flags.within(self._limits.timeout))
        except Exception as error:  # noqa: BLE001 - a transport may be the application's own
            self._reporter.condition(names.REASON_UNACKNOWLEDGED, f"no event status: {error}")
        return resolve(judgement, events, statuses)

    def _encoded(
        self, events: Sequence[Envelope], resource: Mapping[str, object], encoding: str
    ) -> bytes | None:
        """The request, without attributes of the resource that nothing can encode."""
        body = _encode(events, resource, encoding)
        if body is not None:
            return body
        bad = [key for key in resource if _encode((), {key: resource[key]}, encoding) is None]
        if bad:
            message = f"resource attributes that cannot be encoded are left out: {bad!r}"
            self._reporter.condition(names.DIAGNOSTIC_INVALID, message)
        kept = {key: value for key, value in resource.items() if key not in bad}
        return _encode(events, kept, encoding)


def _encode(
    events: Sequence[Envelope], resource: Mapping[str, object], encoding: str
) -> bytes | None:
    version = installed_version()
    try:
        if encoding == PROTOBUF and isinstance(events, Batch):
            return encode_framed(events.framed(), resource, scope_version=version)
        return encode_logs(events, resource, encoding=encoding, scope_version=version)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def given_up(events: int, reason: str, detail: str) -> Judgement:
    """None of so many events was acknowledged, and none will be sent again."""
    return Judgement(
        failures=tuple(
            Failed(position, names.UNACKNOWLEDGED, reason, detail) for position in range(events)
        )
    )


def _asked(
    transport: Transport, body: bytes, content_type: str, timeout: float
) -> Answer | NoAnswer:
    try:
        return transport.send(body, content_type, timeout)
    except NoAnswer as error:
        return error
    except Exception as error:  # noqa: BLE001 - a transport may be the application's own
        return NoAnswer(f"the transport raised {type(error).__name__}: {error}")
