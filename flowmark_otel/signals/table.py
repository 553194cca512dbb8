"""The table of signals: conventions by which others mark tries, with their counting bases.

A convention is ``safe`` where group and number are facts on the span itself. The docs print it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from flowmark_otel import names
from flowmark_otel.signals.convention import BY_STATUS, UNSAID, Convention, Outcome, by_state
from flowmark_otel.signals.reading import NO_SIGNALS, Signals
from flowmark_otel.signals.values import number_of
from flowmark_otel.validate import BrokenRule

_HEADER: Final = "http.request.header."
_STATUS_KEYS: Final = ("http.response.status_code", "http.status_code")
_NO_GROUP: Final = (
    "no attribute says which sends belong together: set flowmark.attempt.group_id and"
    " flowmark.attempt.number where the call is made, or use the adapter of its library"
)
_NOT_SEEN: Final = "this was read in its source and never seen running, so it is not read"
_FAILED_FROM: Final = 400
_AWS_REQUEST: Final = (
    r"(?:.*; ?)?attempt=(?P<number>[0-9]{1,9})(?:; ?max=(?P<limit>[0-9]{1,9}))?(?:;.*)?"
)


def _by_http_status() -> Outcome:
    def of(attributes: Mapping[str, object]) -> bool | None:
        for key in _STATUS_KEYS:
            if key in attributes:
                try:
                    return number_of(attributes[key]) >= _FAILED_FROM
                except BrokenRule:
                    return None
        return None

    return Outcome("HTTP status: 400 and above failed, below completed", _STATUS_KEYS, of)


ATTEMPTS: Final[tuple[Convention, ...]] = (
    Convention(
        names.SIGNAL_CELERY,
        "Celery, by opentelemetry-instrumentation-celery",
        marks=("celery.action",),
        number=("celery.retries",),
        absent=1,  # the instrumentation leaves 0 out
        group=(("messaging.message.id",),),
        where=("celery.action", ("run",)),
        others="it is the message on its way, not a try of the task",
        operation=("celery.task_name",),
        outcome=by_state("celery.state", ("SUCCESS",), ("RETRY", "FAILURE")),
    ),
    Convention(
        names.SIGNAL_REMOULADE,
        "Remoulade, by opentelemetry-instrumentation-remoulade",
        marks=("remoulade.retry_count",),
        number=("remoulade.retry_count",),
        group=(("messaging.message.id",),),
        where=("remoulade.action", ("run",)),
        others="it is the message on its way, not a try of the actor",
        operation=("remoulade.actor_name",),  # the span's name has the count in it
        outcome=UNSAID,
    ),
    Convention(
        names.SIGNAL_AWS_HEADERS,
        "a server that records the request headers of AWS SDKs",
        marks=(f"{_HEADER}amz-sdk-invocation-id", f"{_HEADER}amz_sdk_invocation_id"),
        number=(f"{_HEADER}amz-sdk-request", f"{_HEADER}amz_sdk_request"),
        base=1,
        pattern=_AWS_REQUEST,
        group=((f"{_HEADER}amz-sdk-invocation-id", f"{_HEADER}amz_sdk_invocation_id"),),
        outcome=_by_http_status(),
    ),
    Convention(
        names.SIGNAL_AZURE_CORE,
        "Azure SDKs for Python, by azure-core's own tracing",
        marks=("az.client_request_id",),
        number=("http.request.resend_count",),
        absent=1,  # it is known to leave the count out on the first send
        group=(("az.client_request_id",),),
        outcome=_by_http_status(),
        statuses=_STATUS_KEYS,
        doubt="an application may give the client request id, and give it again",
    ),
    Convention(
        names.SIGNAL_HATCHET,
        "Hatchet's own instrumentation",
        marks=("hatchet.step_run_id",),
        number=("hatchet.retry_count",),  # left out as 0 in Python, and where it is excluded
        group=(("hatchet.step_run_id",),),
        where=("", ("hatchet.start_step_run",)),
        others="it belongs to a step and is not the try of one",
        operation=("hatchet.action_name",),
        outcome=BY_STATUS,
        doubt="one try of a durable task may be several spans of one number",
    ),
    Convention(
        names.SIGNAL_GCP_PUBSUB,
        "google-cloud-pubsub's own tracing",
        marks=("messaging.gcp_pubsub.message.delivery_attempt",),
        number=("messaging.gcp_pubsub.message.delivery_attempt",),
        base=1,
        zero_unknown=True,
        group=(("messaging.message.id",),),
        outcome=by_state("messaging.gcp_pubsub.result", ("acked",), ("nacked",)),
        doubt="the service counts deliveries approximately",
    ),
)
"""Conventions that name number and group."""

OTHERS: Final[tuple[Convention, ...]] = (
    Convention(
        "http_resend",
        "HTTP semantic conventions; OkHttp, Apache HttpClient, Reactor Netty, Ktor, azure-core",
        marks=("http.request.resend_count", "http.resend_count", "http.retry_count"),
        number=("http.request.resend_count", "http.resend_count", "http.retry_count"),
        never=f"redirects and challenges count too, and {_NO_GROUP}",
    ),
    Convention(
        "gcp_resend",
        "Google client libraries",
        marks=("gcp.grpc.resend_count",),
        number=("gcp.grpc.resend_count",),
        never=f"on a span of kind INTERNAL it is a total, and {_NO_GROUP}",
    ),
    Convention(
        "grpc_attempts",
        "gRPC's own tracing (A72)",
        marks=("previous-rpc-attempts",),
        number=("previous-rpc-attempts",),
        unnumbered=("transparent-retry",),
        never=_NO_GROUP,
    ),
    Convention(
        "envoy",
        "a server behind Envoy or Istio that records request headers",
        marks=(f"{_HEADER}x-envoy-attempt-count", f"{_HEADER}x_envoy_attempt_count"),
        number=(f"{_HEADER}x-envoy-attempt-count", f"{_HEADER}x_envoy_attempt_count"),
        base=1,
        never=f"x-request-id names the whole request, not one call of it, and {_NO_GROUP}",
    ),
    Convention(
        "stainless",
        "a server that records the request headers of OpenAI's and Anthropic's SDKs",
        marks=(f"{_HEADER}x-stainless-retry-count", f"{_HEADER}x_stainless_retry_count"),
        number=(f"{_HEADER}x-stainless-retry-count", f"{_HEADER}x_stainless_retry_count"),
        never=_NO_GROUP,
    ),
    Convention(
        "botocore",
        "botocore and boto3, by opentelemetry-instrumentation-botocore",
        marks=("retry_attempts",),
        number=("retry_attempts",),
        total=True,
        never="one span for all of them is no attempt; use the adapter for botocore",
    ),
    Convention(
        "servicebus",
        "messaging semantic conventions, Azure Service Bus",
        marks=("messaging.servicebus.message.delivery_count",),
        number=(),
        never="from where messaging.servicebus.message.delivery_count counts is not established",
    ),
    Convention(
        "durabletask",
        "Azure Durable Functions",
        marks=("durabletask.attempt",),
        number=(),
        never="from where durabletask.attempt counts is not established",
    ),
    Convention(
        "temporal",
        "Temporal activities",
        marks=("temporalActivityAttempt", "temporalActivityID"),
        number=("temporalActivityAttempt",),
        base=1,
        never=_NOT_SEEN,
    ),
    Convention(
        "airflow",
        "Airflow tasks",
        marks=("airflow.task_instance.try_number",),
        number=("airflow.task_instance.try_number",),
        base=1,
        never=_NOT_SEEN,
    ),
    Convention(
        "trigger_dev",
        "Trigger.dev",
        marks=("ctx.attempt.number",),
        number=("ctx.attempt.number",),
        base=1,
        never=f"it is copied to every span below, and {_NOT_SEEN}",
    ),
    Convention(
        "inngest",
        "Inngest",
        marks=("sys.step.attempt", "_inngest.step.attempt"),
        number=("sys.step.attempt", "_inngest.step.attempt"),
        never=_NOT_SEEN,
    ),
    Convention(
        "bullmq",
        "BullMQ",
        marks=("bullmq.job.attempts.made",),
        number=("bullmq.job.attempts.made",),
        base=1,
        never=_NOT_SEEN,
    ),
    Convention(
        "ruby_jobs",
        "Delayed Job and Que",
        marks=("messaging.delayed_job.attempts", "messaging.que.attempts"),
        number=("messaging.delayed_job.attempts", "messaging.que.attempts"),
        never=_NOT_SEEN,
    ),
)
"""Conventions of which no span becomes an attempt; ``check`` says why."""

EVERY: Final = Signals.of((*ATTEMPTS, *OTHERS))
SAFE: Final = tuple(row.name for row in ATTEMPTS if row.is_safe)
ANY: Final = Signals.of(ATTEMPTS)
"""All that any setting can read: who lets requests through has to know all of it."""


@lru_cache(maxsize=64)
def signals_of(words: tuple[str, ...]) -> Signals:
    """What a setting reads: names of conventions, ``safe`` for all that are, or ``none``."""
    wanted: Collection[str] = {
        name for word in words for name in (SAFE if word == names.SIGNALS_SAFE else (word,))
    }
    found = [row for row in ATTEMPTS if row.name in wanted]
    return Signals.of(found) if found else NO_SIGNALS
