"""What the demonstration's applications do, told in spans by the stock SDK and stock exporters.

The applications retry by themselves, in plain code; nothing here is ours but the attribute keys
(A1, D4). Each function returns what should be readable afterwards.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names

ANSWER_SECONDS: Final = 0.06
PAUSE_SECONDS: Final = 0.04
"""What the application waits before its second try; before its third twice as long."""

Attempts = tuple[tuple[int, str, str | None], ...]
"""Number, status and error code of each attempt."""


class ToldGroup(NamedTuple):
    """A group as it should read."""

    operation: str
    group_id: str
    attempts: Attempts
    gaps: tuple[tuple[int, int], ...]
    verdict: str


class ToldRun(NamedTuple):
    """A run as it should read; ``retry_of`` is the run id of its predecessor."""

    workflow: str
    run_id: str
    status: str
    outcome: str
    result: Mapping[str, int]
    groups: tuple[ToldGroup, ...] = ()
    retry_of: str | None = None
    ordinary: int = 0


class RemoteError(Exception):
    """A dependency that failed; ``code`` is the application's own name for it."""

    def __init__(self, code: str) -> None:
        super().__init__(f"{code}: the dependency did not answer")
        self.code = code


class Flaky:
    """A dependency that takes its time, and fails on the calls whose numbers, from 1, are given."""

    def __init__(self, code: str, *fails_on: int) -> None:
        self._code = code
        self._fails_on = fails_on
        self._calls = 0

    def call(self) -> None:
        """Succeed, or raise RemoteError."""
        self._calls += 1
        time.sleep(ANSWER_SECONDS)
        if self._calls in self._fails_on:
            raise RemoteError(self._code)


def tell(http: str, grpc: str) -> list[ToldRun]:
    """Tell the whole story; ``http`` and ``grpc`` are addresses, ``HOST:PORT``."""
    with _service("crm-sync", HttpExporter(endpoint=f"http://{http}/v1/traces")) as tracer:
        runs = [_crm_sync(tracer)]
    with _service("booking", GrpcExporter(endpoint=f"http://{grpc}", insecure=True)) as tracer:
        partial = _booking(tracer)
        runs += [partial, _recovery(tracer, partial)]
    with _service("billing", HttpExporter(endpoint=f"http://{http}/v1/traces")) as tracer:
        runs.append(_invoice(tracer))
    return runs


@contextmanager
def _service(name: str, exporter: SpanExporter) -> Iterator[trace.Tracer]:
    """The tracer of one service; what it recorded is sent before the block ends."""
    provider = TracerProvider(resource=Resource.create({names.SERVICE_NAME: name}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("flowmark-otel-demo")
    finally:
        provider.shutdown()


def _identity(workflow: str) -> dict[str, AttributeValue]:
    return {names.WORKFLOW_NAME: workflow, names.RUN_ID: str(uuid.uuid4())}


@contextmanager
def _operation(
    tracer: trace.Tracer, name: str, attributes: Mapping[str, AttributeValue]
) -> Iterator[None]:
    """A span of one operation; the exception that leaves it makes it failed."""
    with tracer.start_as_current_span(name, attributes=attributes) as span:
        try:
            yield
        except RemoteError as error:
            span.set_attribute(names.ERROR_CODE, error.code)
            span.set_attribute(names.ERROR_RETRYABLE, True)  # noqa: FBT003  (the attribute's value)
            raise


def _retrying(
    tracer_of: Callable[[int], trace.Tracer],
    name: str,
    attributes: Mapping[str, AttributeValue],
    work: Callable[[], None],
) -> None:
    """The application's own loop: up to three tries, each a span with its group and number."""
    limit = 3
    for number in range(1, limit + 1):
        attempt = {**attributes, names.ATTEMPT_NUMBER: number, names.ATTEMPT_LIMIT: limit}
        try:
            with _operation(tracer_of(number), name, attempt):
                work()
        except RemoteError:
            if number == limit:
                raise
            time.sleep(number * PAUSE_SECONDS)
        else:
            return


def _end(span: trace.Span, outcome: str, result: Mapping[str, int]) -> None:
    span.set_attribute(names.RUN_OUTCOME, outcome)
    for key, value in result.items():
        span.set_attribute(names.RUN_RESULT_PREFIX + key, value)


def _crm_sync(tracer: trace.Tracer) -> ToldRun:
    """An operation that failed, was tried again and succeeded."""
    identity = _identity("crm.sync")
    with tracer.start_as_current_span("crm.sync", attributes=identity) as run:
        for _page in range(2):
            with _operation(tracer, "read-customers", _named(identity)):
                pass
        batch = {**identity, names.ATTEMPT_GROUP_ID: "customer-batch-42"}
        crm = Flaky("CRM_UNAVAILABLE", 1)
        _retrying(lambda _: tracer, "push-to-crm", batch, crm.call)
        _end(run, "complete", {"imported": 3})
    attempts: Attempts = (
        (1, names.STATUS_FAILED, "CRM_UNAVAILABLE"),
        (2, names.STATUS_COMPLETED, None),
    )
    group = ToldGroup("push-to-crm", "customer-batch-42", attempts, (), names.VERDICT_AFTER_RETRY)
    return ToldRun(
        "crm.sync",
        str(identity[names.RUN_ID]),
        names.STATUS_COMPLETED,
        "complete",
        {"imported": 3},
        (group,),
        ordinary=2,
    )


def _booking(tracer: trace.Tracer) -> ToldRun:
    """A run that did two thirds of its work and failed."""
    identity = _identity("booking.confirm")
    provider = Flaky("PROVIDER_UNAVAILABLE", 3)
    result = {"confirmed": 2, "remaining": 1}
    with tracer.start_as_current_span("booking.confirm", attributes=identity) as run:
        try:
            for _reservation in range(3):
                with _operation(tracer, "confirm-reservation", _named(identity)):
                    provider.call()
        except RemoteError as error:
            run.set_attribute(names.ERROR_CODE, error.code)
            run.set_status(trace.StatusCode.ERROR, str(error))
            _end(run, "partial", result)
    return ToldRun(
        "booking.confirm",
        str(identity[names.RUN_ID]),
        names.STATUS_FAILED,
        "partial",
        result,
        ordinary=3,
    )


def _named(identity: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """An operation key makes a span an operation, also without an attempt (A4)."""
    return {**identity, names.RECORD_TYPE: names.RECORD_OPERATION}


def _recovery(tracer: trace.Tracer, partial: ToldRun) -> ToldRun:
    """A run of its own that does the rest (A12)."""
    identity = _identity("booking.confirm")
    retry = {
        **identity,
        names.RETRY_OF_WORKFLOW_NAME: partial.workflow,
        names.RETRY_OF_RUN_ID: partial.run_id,
    }
    result = {"confirmed": 1, "remaining": 0}
    with tracer.start_as_current_span("booking.confirm", attributes=retry) as run:
        remaining = {**identity, names.ATTEMPT_GROUP_ID: "remaining-reservation"}
        provider = Flaky("PROVIDER_UNAVAILABLE")
        _retrying(lambda _: tracer, "confirm-remaining", remaining, provider.call)
        _end(run, "complete", result)
    group = ToldGroup(
        "confirm-remaining",
        "remaining-reservation",
        ((1, names.STATUS_COMPLETED, None),),
        (),
        names.VERDICT_FIRST_TRY,
    )
    return ToldRun(
        "booking.confirm",
        str(identity[names.RUN_ID]),
        names.STATUS_COMPLETED,
        "complete",
        result,
        (group,),
        partial.run_id,
    )


def _invoice(tracer: trace.Tracer) -> ToldRun:
    """Three tries of which the second was sampled away: a gap, and nobody fills it (A10)."""
    unsampled = TracerProvider(sampler=ALWAYS_OFF).get_tracer("flowmark-otel-demo")
    identity = _identity("invoice.send")
    with tracer.start_as_current_span("invoice.send", attributes=identity) as run:
        invoice = {**identity, names.ATTEMPT_GROUP_ID: "invoice-1007"}
        mail = Flaky("MAIL_TIMEOUT", 1, 2)
        _retrying(
            lambda number: unsampled if number == 2 else tracer,  # noqa: PLR2004  (the second)
            "deliver-mail",
            invoice,
            mail.call,
        )
        _end(run, "complete", {"sent": 1})
    attempts: Attempts = (
        (1, names.STATUS_FAILED, "MAIL_TIMEOUT"),
        (3, names.STATUS_COMPLETED, None),
    )
    group = ToldGroup(
        "deliver-mail", "invoice-1007", attempts, ((2, 2),), names.VERDICT_AFTER_RETRY
    )
    return ToldRun(
        "invoice.send",
        str(identity[names.RUN_ID]),
        names.STATUS_COMPLETED,
        "complete",
        {"sent": 1},
        (group,),
    )
