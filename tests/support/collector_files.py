"""Configuration files of the collector for tests: the contract's sample, and changes to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from flowmark_otel.collector.config.loading import plan_of
from flowmark_otel.errors import ConfigurationError

KEY: Final = "fmk_abcdefgh01234567_" + "9f" * 32
ENVIRONMENT: Final = {"FLOWMARK_API_KEY": KEY}

SAMPLE: Final = """\
receivers:
  otlp: {protocols: {grpc: {endpoint: "127.0.0.1:4317"}, http: {endpoint: "127.0.0.1:4318"}}}
connectors:
  flowmark/fold:                   # validate and fold
    signals: safe
    on_error: route                # fail | continue | route
    errors: errors/letters
    failure_budget: {max_failures: 100, window_ms: 60000}
  errors/letters: {}               # the error port: what nodes route to it
exporters:
  flowmark:                        # envelopes to the backend, receipt checked
    endpoint: "http://127.0.0.1:5318"
    headers: {authorization: "Bearer ${env:FLOWMARK_API_KEY}"}
    retry: {max_attempts: 5, backoff_ms: 200, max_backoff_ms: 10000, no_retry_on: [InvalidEnvelope]}
    element_timeout_ms: 10000
    deadline_ms: 60000
    spool: {directory: ./spool, max_bytes: 1073741824}
    on_error: route
    errors: errors/letters
  otlp_http/tracing: {endpoint: "http://127.0.0.1:14318", on_error: continue}
  file/letters: {path: ./dead-letters.jsonl}
service:
  acknowledge: end_to_end          # or on_spool
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp_http/tracing, flowmark/fold], trigger: all_success}
    logs/envelopes: {receivers: [flowmark/fold], exporters: [flowmark]}
    logs/letters: {receivers: [errors/letters], exporters: [file/letters]}
  telemetry: {metrics: {address: "127.0.0.1:8888"}}
"""
"""The sample of section 9 of the contract, as it stands there."""

ABSENT: Final = object()
"""As a value: the key is taken away."""


def changed(changes: Mapping[str, object]) -> str:
    """The sample with values set; keys are paths, ``exporters>flowmark>spool``."""
    document: dict[str, Any] = yaml.safe_load(SAMPLE)
    for path, value in changes.items():
        *way, last = path.split(">")
        here = document
        for part in way:
            here = here.setdefault(part, {})
        if value is ABSENT:
            del here[last]
        else:
            here[last] = value
    return yaml.safe_dump(document, sort_keys=False)


def faults(
    text: str, environ: Mapping[str, str] = ENVIRONMENT, *, no_auth: bool = False
) -> list[str]:
    """What is wrong with a file; empty if nothing is."""
    try:
        plan_of(text, environ, no_auth=no_auth)
    except ConfigurationError as error:
        return error.faults
    return []
