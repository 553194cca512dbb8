"""What the browser tests look at: a retry, an ugly run and a hostile one, from stock exporters."""

from __future__ import annotations

from typing import Final

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Span
from flowmark_otel.wire.encode import encode_logs
from tests.support.server import Running

SECOND: Final = 1_000_000_000
ZERO: Final = 1_773_234_004_740_000_000

HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</code></td></tr></table></main><h1>gone</h1>",
    "<svg/onload=alert(1)>",
    "<base href=https://evil.example>",
    "<meta http-equiv=refresh content=0;url=https://evil.example>",
    "<style>*{display:none}</style>",
    "javascript:alert(1)",
    "{{ 7*7 }}",
    "evil\u202egnp.exe",
    "zero\u200bwidth",
    "line\nbreak\ttab\x1b[31m",
    "W" * 100,
)


def tell(backend: Running) -> None:
    """Send all stories."""
    headers = {"authorization": backend.ingest}
    exporter = OTLPSpanExporter(f"http://{backend.http}/v1/traces", headers=headers)
    provider = TracerProvider(resource=Resource({"service.name": "crm-worker"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("story")
    _retry(tracer)
    _ugly(tracer, backend)
    _flood(tracer)
    _hostile(tracer)
    provider.shutdown()


def _operation(
    tracer: Tracer,
    name: str,
    times: tuple[float, float],
    attributes: dict[str, AttributeValue],
    code: str | None = None,
) -> None:
    start, end = (ZERO + round(time * SECOND) for time in times)
    span = tracer.start_span(name, start_time=start, attributes=attributes)
    if code is not None:
        span.set_status(Status(StatusCode.ERROR))
        span.set_attribute(names.ERROR_CODE, code)
    span.end(end)


def _attempt(run: str, group: str, number: int, limit: int = 8) -> dict[str, AttributeValue]:
    return {
        names.WORKFLOW_NAME: "crm.sync",
        names.RUN_ID: run,
        names.ATTEMPT_GROUP_ID: group,
        names.ATTEMPT_NUMBER: number,
        names.ATTEMPT_LIMIT: limit,
    }


def _run(run: str, outcome: str, **more: AttributeValue) -> dict[str, AttributeValue]:
    return {
        names.WORKFLOW_NAME: "crm.sync",
        names.RUN_ID: run,
        names.RUN_OUTCOME: outcome,
        f"{names.RUN_RESULT_PREFIX}imported": 50,
        **more,
    }


def _retry(tracer: Tracer) -> None:
    """Failed, tried again, completed."""
    push = "push-to-crm"
    _operation(tracer, push, (0, 0.6), _attempt("retried", "batch-1", 1), "CRM_UNAVAILABLE")
    _operation(tracer, push, (1.5, 2.2), _attempt("retried", "batch-1", 2))
    again = {names.RETRY_OF_WORKFLOW_NAME: "crm.sync", names.RETRY_OF_RUN_ID: "ugly"}
    _operation(tracer, "sync", (-1, 3), {**_run("retried", "complete"), **again})


def _ugly(tracer: Tracer, backend: Running) -> None:
    """Every mark in one group, and ordinary occurrences beside it."""
    push = "push-to-crm"
    _operation(tracer, push, (0, 0.6), _attempt("ugly", "batch-2", 1), "CRM_UNAVAILABLE")
    _operation(tracer, push, (1.05, 1.79), _attempt("ugly", "batch-2", 2), "CRM_TIMEOUT")
    _operation(tracer, push, (1.06, 1.66), _attempt("ugly", "batch-2", 2))
    _start_only(backend, _attempt("ugly", "batch-2", 5))
    _operation(tracer, push, (8.4, 9.24), _attempt("ugly", "batch-2", 6))
    _operation(tracer, push, (9.9, 10.21), _attempt("ugly", "batch-2", 7), "CRM_DUPLICATE_BATCH")
    _operation(tracer, push, (0, 0.4), _attempt("ugly", "batch-0", 1))
    named = {names.WORKFLOW_NAME: "crm.sync", names.RUN_ID: "ugly"}
    for at in (0.1, 0.7):
        ordinary: dict[str, AttributeValue] = {**named, names.OPERATION_NAME: "load-batch"}
        _operation(tracer, "load-batch", (at, at + 0.08), ordinary)
    before = {names.RETRY_OF_WORKFLOW_NAME: "crm.sync", names.RETRY_OF_RUN_ID: "never-seen"}
    _operation(tracer, "sync", (-1, 12), {**_run("ugly", "partial"), **before}, "BATCH_FAILED")


def _flood(tracer: Tracer) -> None:
    """More attempts than a strip draws."""
    for number in range(1, 31):
        at = number * 2.0
        code = None if number == 30 else "CRM_RATE_LIMITED"
        _operation(
            tracer, "push-to-crm", (at, at + 0.3), _attempt("flood", "batch-3", number, 40), code
        )


def _hostile(tracer: Tracer) -> None:
    """Every text that a sender can set, set by somebody who means no good."""
    for number, text in enumerate(HOSTILE, 1):
        run = {names.WORKFLOW_NAME: f"evil {text}", names.RUN_ID: f"{number} {text}"}
        attributes: dict[str, AttributeValue] = {
            **run,
            names.OPERATION_NAME: text,
            names.OPERATION_ID: f"id {text}",
            names.ATTEMPT_GROUP_ID: f"group {text}",
            names.ATTEMPT_SERIES_NAME: text,
            names.ATTEMPT_SYSTEM_NAME: text,
            names.ERROR_TYPE: text,
        }
        for attempt in (1, 3):
            numbered = {**attributes, names.ATTEMPT_NUMBER: attempt}
            numbered[names.OPERATION_ID] = f"{attempt} {text}"
            _operation(tracer, text, (attempt, attempt + 0.5), numbered, f"code {text}")
        ended: dict[str, AttributeValue] = {
            **run,
            names.RUN_OUTCOME: text,
            f"{names.RUN_RESULT_PREFIX}note": text,
            names.RETRY_OF_WORKFLOW_NAME: text,
            names.RETRY_OF_RUN_ID: text,
            names.PARENT_RUN_ID: text,
            names.CORRELATION_ID: text,
        }
        _operation(tracer, text, (0, 9), ended, f"run {text}")


def _start_only(backend: Running, attributes: dict[str, AttributeValue]) -> None:
    """A start whose end never comes, as the log record that an early start is."""
    span = Span(
        trace_id=b"\x07" * 16,
        span_id=b"\x07" * 8,
        name="push-to-crm",
        start_time_unix_nano=ZERO + round(5.31 * SECOND),
        end_time_unix_nano=ZERO + 6 * SECOND,
        failed=False,
        attributes=attributes,
    )
    start = fold_span(span)[0]
    assert isinstance(start, Envelope)
    answer = requests.post(
        f"http://{backend.http}/v1/logs",
        data=encode_logs([start], {"service.name": "crm-worker"}),
        headers={"authorization": backend.ingest, "content-type": "application/x-protobuf"},
        timeout=20,
    )
    assert answer.status_code == requests.codes.ok, answer.text
