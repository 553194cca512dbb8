"""Two simulated days of three applications in a store: a store as people have it, the same always.

On the first day little is tried again; on the second one operation gets worse hour by hour. Every
kind of problem occurs. ``NOW`` is the time at which the story is looked at.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.fold import fold_span
from flowmark_otel.listen.protocol import Encoding, Signal
from flowmark_otel.model import Envelope, Principal, Span, Value
from flowmark_otel.testing import FakeClock
from flowmark_otel.wire.encode import encode_logs
from tests.support.loop import LoopThread
from tests.support.otlp import traces_json

SECOND: Final = 1_000_000_000
HOUR: Final = 3_600 * SECOND
NOW: Final = 1_773_235_497_000_000_000
"""2026-03-11 13:24:57Z."""

PROJECT: Final = "default"
_DAYS: Final = 2


class _Told(NamedTuple):
    """What arrives at once: spans, or early starts alone; ``browser``: with a publishable key."""

    at: int
    spans: tuple[Span, ...] = ()
    starts: tuple[Span, ...] = ()
    agent: str = "OTel-OTLP-Exporter-Python/1.40.0"
    browser: bool = False


class _Application:
    """One application: makes spans of one workflow, with ids of its own."""

    def __init__(self, chance: random.Random, workflow: str, service: str) -> None:
        self.chance = chance
        self._workflow = workflow
        self._service = service

    def span(
        self,
        run: str,
        name: str,
        begin: int,
        took: float,
        code: str | None = None,
        more: Mapping[str, Value] | None = None,
    ) -> Span:
        """A finished span of a run, an operation if nothing else; ``took`` in seconds."""
        return Span(
            self.chance.randbytes(16),
            self.chance.randbytes(8),
            name,
            begin,
            begin + round(took * SECOND),
            failed=code is not None,
            attributes={
                names.WORKFLOW_NAME: self._workflow,
                names.RUN_ID: run,
                **({names.ERROR_CODE: code} if code else {}),
                **({names.OPERATION_NAME: name} if more is None else more),
            },
            service_name=self._service,
        )

    def group(
        self, run: str, name: str, group: str, begin: int, codes: tuple[str | None, ...]
    ) -> Iterator[Span]:
        """The attempts of a group, one after the other with a pause that grows."""
        at = begin
        for number, code in enumerate(codes, 1):
            took = self.chance.uniform(0.15, 0.9)
            attempt: dict[str, Value] = {
                names.ATTEMPT_GROUP_ID: group,
                names.ATTEMPT_NUMBER: number,
                names.ATTEMPT_LIMIT: 20,
            }
            yield self.span(run, name, at, took, code, attempt)
            at += round((took + min(0.4 * 2 ** (number - 1), 3.2)) * SECOND)

    def run(self, run: str, begin: int, took: float, outcome: str, **result: Value) -> Span:
        """The span of the run itself."""
        code = "RUN_FAILED" if outcome == "failed" else None
        reported = {f"{names.RUN_RESULT_PREFIX}{key}": value for key, value in result.items()}
        more = {names.RUN_OUTCOME: outcome, **reported}
        return self.span(run, self._workflow, begin, took, code, more)


def _story() -> Iterator[_Told]:
    chance = random.Random(20260311)
    sync = _Application(chance, "crm.sync", "crm-worker")
    booking = _Application(chance, "booking.confirm", "booking-api")
    web = _Application(chance, "checkout", "web")
    for hour in range(24 * _DAYS):
        begin = NOW - NOW % HOUR - (24 * _DAYS - 1 - hour) * HOUR
        worse = max(0, hour - 24 * _DAYS + 6) / 6
        for number in range(4):
            yield from _sync(sync, begin + number * 900 * SECOND, 0.03 + 0.5 * worse)
        for number in range(15):
            yield from _booking(booking, begin + number * 240 * SECOND)
        for number in range(6):
            yield from _checkout(web, begin + (number * 600 + 40) * SECOND)


def _codes(chance: random.Random, odds: float, code: str, most: int) -> tuple[str | None, ...]:
    """Failures until the odds are with it, at most so many tries."""
    failed = 0
    while failed < most - 1 and chance.random() < odds:
        failed += 1
    last = code if failed == most - 1 and chance.random() < odds else None
    return (*(code for _ in range(failed)), last)


def _sync(app: _Application, begin: int, odds: float) -> Iterator[_Told]:
    run = f"sync-{begin // SECOND % 86_400 // 60:04d}-{begin // SECOND // 86_400 % 1000}"
    first = begin // SECOND // 900 % 10_000 * 4
    spans = [app.span(run, "load-batch", begin, 0.09)]
    for number in range(1, 5):
        codes = _codes(app.chance, odds, "CRM_RATE_LIMITED", 16)
        spans += app.group(
            run, "push-to-crm", f"customer-batch-{first + number}", begin + number * SECOND, codes
        )
    failed = sum(span.failed for span in spans[-1:])
    outcome = "failed" if failed else "complete"
    spans.append(app.run(run, begin, 41.4, outcome, imported=25 * (4 - failed), failed=25 * failed))
    odd = app.chance.random()
    attempts = [span for span in spans if names.ATTEMPT_NUMBER in span.attributes]
    retried = {
        span.attributes[names.ATTEMPT_GROUP_ID]
        for span in attempts
        if span.attributes[names.ATTEMPT_NUMBER] == 2
    }
    if odd < 0.1:  # an attempt of which nothing arrived
        spans = [span for span in spans if not _first_of(span, retried)]
    told = _Told(begin + 45 * SECOND, tuple(spans), agent="flowmark-otel-python/0.1.0")
    if 0.1 < odd < 0.12:  # killed in the middle
        yield told._replace(spans=tuple(spans[:2]), starts=tuple(spans[2:3]))
        return
    yield told
    if 0.12 < odd < 0.14:  # two records for one place
        place = (names.ATTEMPT_GROUP_ID, names.ATTEMPT_NUMBER)
        same: dict[str, Value] = {key: _value(attempts[0], key) for key in place}
        again = app.span(run, "push-to-crm", begin, 0.3, None, same)
        yield _Told(begin + 46 * SECOND, (again,))


def _first_of(span: Span, groups: set[object]) -> bool:
    attributes = span.attributes
    return attributes.get(names.ATTEMPT_GROUP_ID) in groups and _value(span) == 1


def _value(span: Span, key: str = names.ATTEMPT_NUMBER) -> Value:
    value = span.attributes[key]
    assert isinstance(value, (str, int))
    return value


def _booking(app: _Application, begin: int) -> Iterator[_Told]:
    run = f"bk-{begin // SECOND // 60 % 1_000_000}"
    spans: list[Span] = []
    codes = _codes(app.chance, 0.05, "PAYMENT_GATEWAY_TIMEOUT", 3)
    spans += app.group(run, "charge-card", run, begin, codes)
    spans += app.group(run, "reserve-slot", run, begin, _codes(app.chance, 0.015, "SLOT_LOCKED", 2))
    code = "SMTP_REFUSED" if app.chance.random() < 0.015 else None
    spans.append(app.span(run, "send-confirmation", begin + 4 * SECOND, 0.2, code))
    outcome = "failed" if codes[-1] else "complete"
    spans.append(app.run(run, begin, 5.2, outcome, confirmed=0 if codes[-1] else 1))
    yield _Told(begin + 6 * SECOND, tuple(spans))
    if codes[-1] or app.chance.random() < 0.01:  # by hand, once more
        before = run if codes[-1] else f"{run}-lost"
        retry = {
            names.RETRY_OF_WORKFLOW_NAME: "booking.confirm",
            names.RETRY_OF_RUN_ID: before,
            names.RUN_OUTCOME: "complete",
        }
        at = begin + 90 * SECOND
        second = [*app.group(f"{run}-r1", "charge-card", run, at, (None,))]
        second.append(app.span(f"{run}-r1", "booking.confirm", at, 3.4, None, retry))
        yield _Told(at + 5 * SECOND, tuple(second))
    if app.chance.random() < 0.003:  # a number as a text
        wrong: dict[str, Value] = {names.ATTEMPT_GROUP_ID: run, names.ATTEMPT_NUMBER: "2"}
        yield _Told(begin + 7 * SECOND, (app.span(run, "charge-card", begin, 0.2, None, wrong),))


def _checkout(app: _Application, begin: int) -> Iterator[_Told]:
    run = f"c-{begin // SECOND // 10 % 1_000_000:x}"
    codes = _codes(app.chance, 0.08, "NETWORK_ERROR", 2)
    spans = [*app.group(run, "submit-order", f"order-{run}", begin, codes)]
    code = "HTTP_503" if app.chance.random() < 0.02 else None
    spans.append(app.span(run, "load-quote", begin, 0.3, code))
    if app.chance.random() > 0.01:
        outcome = "failed" if codes[-1] else "complete"
        spans.append(app.run(run, begin, 5.5, outcome))
    agent = "@opentelemetry/otlp-exporter-base/0.210"
    yield _Told(begin + 4 * SECOND, tuple(spans), agent=agent, browser=True)


def fill(path: Path, loop: LoopThread, hours: int = 24 * _DAYS) -> str:
    """Fill a new store with the last hours of the story; its URL, everything summarised."""
    url = f"sqlite:///{path}"
    clock = FakeClock(NOW - _DAYS * 24 * HOUR)
    store = open_store(url, clock=clock)
    keys = Keys(store)
    acceptor = Acceptor(store, keys)
    project = keys.ensure_project(PROJECT)
    kinds = (names.KEY_INGEST, names.KEY_BROWSER)
    server, browser = (Principal(project, PROJECT, kind) for kind in kinds)
    for told in sorted(_story(), key=lambda each: each.at):
        if not NOW - hours * HOUR <= told.at < NOW:
            continue
        clock.set_wall(told.at)
        principal = browser if told.browser else server
        for signal, encoding, body in _bodies(told):
            loop.run(acceptor.accept(signal, encoding, body, principal, told.agent))
    fold_all(store)
    acceptor.close()
    store.close()
    return url


def _bodies(told: _Told) -> Iterator[tuple[Signal, Encoding, bytes]]:
    """The requests that carry what is told."""
    if told.spans:
        yield Signal.TRACES, Encoding.JSON, traces_json(told.spans)
    for span in told.starts:
        start = fold_span(span)[0]
        assert isinstance(start, Envelope)
        resource = {"service.name": str(span.service_name)}
        yield Signal.LOGS, Encoding.PROTOBUF, encode_logs([start], resource)
