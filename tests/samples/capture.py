"""Captures spans of real libraries under their real instrumentations, on loopback; see README.md.

python tests/samples/capture.py celery
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

HERE: Final = Path(__file__).parent
_BOOM: Final = ValueError("boom")
_IDS: Final = ("traceId", "spanId", "parentSpanId")


def celery(provider: TracerProvider) -> None:
    """A task that fails twice, then succeeds; the broker is in memory, the worker a thread."""
    from celery import Celery
    from celery.contrib.testing.worker import start_worker
    from opentelemetry.instrumentation.celery import CeleryInstrumentor

    CeleryInstrumentor().instrument(tracer_provider=provider)
    app = Celery("t", broker="memory://", backend="cache+memory://")

    @app.task(bind=True, name="t.fetch")
    def fetch(self: Any) -> int:
        if self.request.retries < 2:
            raise self.retry(exc=_BOOM, countdown=0, max_retries=5)
        return int(self.request.retries)

    with start_worker(app, perform_ping_check=False):
        fetch.delay().get(timeout=30)


def celery_links(provider: TracerProvider) -> None:
    """The same with ``use_span_links``: each try a trace of its own."""
    from opentelemetry.instrumentation.celery import CeleryInstrumentor

    CeleryInstrumentor().instrument(tracer_provider=provider, use_span_links=True)
    celery(provider)


def remoulade(provider: TracerProvider) -> None:
    """An actor that fails twice and then succeeds."""
    import remoulade
    from opentelemetry.instrumentation.remoulade import RemouladeInstrumentor
    from remoulade.brokers.stub import StubBroker

    broker = StubBroker()
    remoulade.set_broker(broker)
    RemouladeInstrumentor().instrument(tracer_provider=provider)
    from remoulade.middleware import Retries

    broker.add_middleware(Retries(max_retries=3, min_backoff=300, max_backoff=400))
    tries = []

    @remoulade.actor(max_retries=3)
    def fetch() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise _BOOM

    broker.declare_actor(fetch)
    broker.emit_after("process_boot")
    worker = remoulade.Worker(broker, worker_timeout=100)
    worker.start()
    fetch.send()
    broker.join(fetch.queue_name)
    worker.join()
    worker.stop()


def aws_headers(provider: TracerProvider) -> None:
    """boto3 against a server that records request headers: 503, 503, 200."""
    import os

    os.environ["OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST"] = "amz-sdk-.*"
    import boto3
    from botocore.config import Config
    from flask import Flask
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    app = Flask("t")
    answers = [503, 503, 200]

    @app.post("/")
    def table() -> tuple[dict[str, object], int]:
        return {"TableNames": []}, answers.pop(0)

    FlaskInstrumentor().instrument_app(app, tracer_provider=provider)
    with _Served(app) as port:
        client = boto3.client(
            "dynamodb",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="none",
            aws_secret_access_key="none",
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
        )
        client.list_tables()


def stainless(provider: TracerProvider) -> None:
    """The client of OpenAI against a server that records request headers: 500, 500, 200."""
    import os

    os.environ["OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST"] = "x-stainless-.*"
    from flask import Flask
    from openai import OpenAI
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    app = Flask("t")
    answers = [500, 500, 200]

    @app.get("/models")
    def models() -> tuple[dict[str, object], int]:
        return {"object": "list", "data": []}, answers.pop(0)

    FlaskInstrumentor().instrument_app(app, tracer_provider=provider)
    with _Served(app) as port:
        OpenAI(base_url=f"http://127.0.0.1:{port}", api_key="none", max_retries=3).models.list()


def azure(provider: TracerProvider, answers: Sequence[int] = (503, 503, 200)) -> None:
    """azure-core's pipeline with a request id, as its SDKs build it: 503, 503, 200."""
    from azure.core.pipeline import Pipeline
    from azure.core.pipeline.policies import (
        CustomHookPolicy,
        DistributedTracingPolicy,
        RedirectPolicy,
        RequestIdPolicy,
        RetryPolicy,
    )
    from azure.core.pipeline.transport import RequestsTransport
    from azure.core.rest import HttpRequest
    from azure.core.settings import settings
    from flask import Flask

    settings.tracing_enabled = True
    app = Flask("t")
    left = list(answers)

    @app.get("/x")
    def answer() -> tuple[str, int, dict[str, str]]:
        return "", left.pop(0), {"location": "/x"}

    del provider  # azure-core takes the global one
    with _Served(app) as port:
        policies = [
            RequestIdPolicy(),
            RedirectPolicy(),
            RetryPolicy(retry_backoff_factor=0.01),
            CustomHookPolicy(),
            DistributedTracingPolicy(),
        ]
        with Pipeline(RequestsTransport(), policies=policies) as pipeline:
            pipeline.run(HttpRequest("GET", f"http://127.0.0.1:{port}/x"))


def azure_redirect(provider: TracerProvider) -> None:
    """The same with a redirect before a try that fails: 302, 503, 200."""
    azure(provider, [302, 503, 200])


def hatchet(provider: TracerProvider) -> None:
    """Hatchet's own instrumentation around a step that fails twice; no engine hands them out."""
    import asyncio

    from hatchet_sdk.config import ClientConfig
    from hatchet_sdk.opentelemetry.instrumentor import HatchetInstrumentor
    from hatchet_sdk.runnables.action import Action, ActionPayload, ActionType
    from hatchet_sdk.worker.runner.runner import Runner

    async def step(_: object, action: Action) -> Exception | None:
        return ValueError("boom") if action.retry_count < 2 else None

    Runner.handle_start_step_run = step
    config = ClientConfig.model_construct()
    HatchetInstrumentor(
        tracer_provider=provider, config=config, enable_hatchet_otel_collector=False
    ).instrument()
    for count in range(3):
        action = Action(
            **dict.fromkeys(
                ("worker_id", "tenant_id", "workflow_run_id", "job_id", "job_run_id"), "x"
            ),
            job_name="job",
            step_id="step",
            step_run_id="6b1a1a52-3a3e-4c0d-9f0a-5b8c3f1e2d4c",
            action_id="job:step",
            action_type=ActionType.START_STEP_RUN,
            retry_count=count,
            action_payload=ActionPayload(),
        )
        asyncio.run(object.__new__(Runner).handle_start_step_run(action))


def gcp_pubsub(provider: TracerProvider) -> None:
    """The tracing of google-cloud-pubsub around three deliveries; no server hands them out."""
    from google.cloud.pubsub_v1.open_telemetry.subscribe_opentelemetry import (
        SubscribeOpenTelemetry,
    )
    from google.pubsub_v1.types import PubsubMessage

    del provider  # it takes the global one
    for delivery, result in ((0, "acked"), (1, "nacked"), (2, "acked")):
        tracing = SubscribeOpenTelemetry(PubsubMessage(data=b"x", message_id="4711"))
        tracing.start_subscribe_span("projects/p/subscriptions/s", False, "ack", delivery)
        tracing.set_subscribe_span_result(result)
        tracing.end_subscribe_span()


def envoy(provider: TracerProvider) -> None:
    """A server that records the header by which Envoy counts; a client of ours stands in for it."""
    import os
    from urllib.request import Request, urlopen

    os.environ["OTEL_INSTRUMENTATION_HTTP_CAPTURE_HEADERS_SERVER_REQUEST"] = "x-.*"
    from flask import Flask
    from opentelemetry.instrumentation.flask import FlaskInstrumentor

    app = Flask("t")
    app.get("/")(lambda: "")
    FlaskInstrumentor().instrument_app(app, tracer_provider=provider)
    with _Served(app) as port:
        for number in ("1", "2"):
            headers = {"x-envoy-attempt-count": number, "x-request-id": "4711"}
            with urlopen(Request(f"http://127.0.0.1:{port}/", headers=headers)):
                pass


def gcs(provider: TracerProvider) -> None:
    """google-cloud-storage with its retries and its own tracing: 503, 503, 200."""
    import os

    os.environ["ENABLE_GCS_PYTHON_CLIENT_OTEL_TRACES"] = "true"
    from flask import Flask
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    del provider  # it takes the global one
    app = Flask("t")
    left = [503, 503, 200]
    app.get("/<path:_>")(lambda _: ({"name": "b"}, left.pop(0)))
    with _Served(app) as port:
        client = storage.Client(
            project="p",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://127.0.0.1:{port}"},
        )
        client.get_bucket("b")


class _Served:
    """A WSGI application on a free port of loopback, in a thread."""

    def __init__(self, app: Any) -> None:
        from werkzeug.serving import make_server

        self._server = make_server("127.0.0.1", 0, app)

    def __enter__(self) -> int:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return int(self._server.server_port)

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


def _write(name: str, exporter: InMemorySpanExporter) -> None:
    message = encode_spans(exporter.get_finished_spans())
    (HERE / f"real_{name}.pb").write_bytes(message.SerializeToString())
    document = MessageToDict(message, use_integers_for_enums=True)
    for group in document["resourceSpans"]:
        for scope in group["scopeSpans"]:
            for span in scope["spans"]:
                for one in (span, *span.get("links", ())):
                    for key in _IDS:
                        if key in one:
                            one[key] = base64.b64decode(one[key]).hex()
    (HERE / f"real_{name}.json").write_text(json.dumps(document, indent=1) + "\n")


CAPTURES: Final[dict[str, Callable[[TracerProvider], None]]] = {
    each.__name__: each
    for each in (
        *(celery_links, remoulade, aws_headers, stainless),
        *(azure, azure_redirect, hatchet, gcp_pubsub, envoy, gcs),
    )
}

if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        memory = InMemorySpanExporter()
        tracing = TracerProvider(resource=Resource.create({"service.name": "t"}))
        tracing.add_span_processor(SimpleSpanProcessor(memory))
        trace.set_tracer_provider(tracing)
        CAPTURES[wanted](tracing)
        tracing.force_flush()
        _write(wanted, memory)
