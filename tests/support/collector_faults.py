"""Changes to the collector's sample that break one rule each, and what is said of them."""

from __future__ import annotations

from typing import Final

from tests.support.collector_files import ABSENT

OPEN_DOOR: Final = "receivers>otlp>protocols>grpc>endpoint"

_LETTERS: Final = {"receivers": ["errors/letters"], "exporters": ["file/letters"]}

BROKEN: Final[list[tuple[dict[str, object], str]]] = [
    (
        {"connectors>flowmark/fold>errors": ABSENT},
        "connectors.flowmark/fold.errors: is missing; name the errors connector to route to",
    ),
    (
        {"connectors>flowmark/fold>errors": "errors/letter"},
        (
            "connectors.flowmark/fold.errors: 'errors/letter' is no errors connector;"
            " did you mean errors/letters?"
        ),
    ),
    (
        {"connectors>errors/more": {}, "exporters>flowmark>errors": "errors/more"},
        (
            "exporters.flowmark.errors: no pipeline receives from errors/more, so letters"
            " would be lost; add logs/letters: {receivers: [errors/more], exporters:"
            " [file/letters]}"
        ),
    ),
    (
        {"exporters>flowmark>on_error": "continue"},
        (
            "exporters.flowmark.errors: is not used under on_error: continue;"
            " set on_error: route, or leave it out"
        ),
    ),
    (
        {"exporters>file/letters>failure_budget": {"max_failures": 1, "window_ms": 1}},
        (
            "exporters.file/letters.failure_budget: needs on_error: route or continue;"
            " under fail every failure is told to its sender"
        ),
    ),
    (
        {"exporters>flowmark>retry>max_attempts": 11},
        "exporters.flowmark.retry.max_attempts: 11 is over 10; set 1 to 10",
    ),
    (
        {"exporters>flowmark>retry>max_attempts": 0},
        "exporters.flowmark.retry.max_attempts: 0 is below 1; set 1 to 10",
    ),
    (
        {"exporters>flowmark>retry>max_attempts": True},
        "exporters.flowmark.retry.max_attempts: is true; set an integer",
    ),
    (
        {"exporters>flowmark>retry>backoff_ms": 20_000},
        (
            "exporters.flowmark.retry: max_backoff_ms 10000 is below backoff_ms 20000;"
            " raise the one or lower the other"
        ),
    ),
    (
        {"exporters>flowmark>retry>retry_on": ["InvalidEnvelope"]},
        (
            "exporters.flowmark.retry: InvalidEnvelope is in retry_on and in no_retry_on;"
            " leave it in one of them"
        ),
    ),
    (
        {"exporters>flowmark>retry>retry_on": ["Timeouts"]},
        "exporters.flowmark.retry.retry_on: 'Timeouts' is no error name; did you mean Timeout?",
    ),
    (
        {"exporters>flowmark>deadline": 3},
        "exporters.flowmark.deadline: there is no such key; did you mean deadline_ms?",
    ),
    (
        {"exporters>flowmark>endpoint": "127.0.0.1:5318"},
        (
            "exporters.flowmark: has an endpoint without a scheme;"
            " write http:// or https:// before it"
        ),
    ),
    (
        {"exporters>flowmark>tls": {"ca_file": __file__}},
        (
            "exporters.flowmark: has certificates in tls, and an endpoint without TLS;"
            " set https:// or no tls"
        ),
    ),
    (
        {"exporters>kafka": {}},
        (
            "exporters.kafka: there is no exporter 'kafka' here;"
            " there is file, flowmark, otlp, otlp_grpc, otlp_http, otlphttp"
        ),
    ),
    (
        {"processors": {"batch": {}}},
        (
            "processors.batch: there are no processors here;"
            " process in an OpenTelemetry Collector in front"
        ),
    ),
    ({"receiver": {}}, "receiver: there is no such section; did you mean receivers?"),
    (
        {"service>pipelines>traces>processors": ["batch"]},
        (
            "service.pipelines.traces.processors: has processors, and there are none here;"
            " leave the key out, and process in an OpenTelemetry Collector in front"
        ),
    ),
    (
        {"service>pipelines>traces>receivers": ["otpl"]},
        "service.pipelines.traces.receivers.0: 'otpl' is not declared; did you mean otlp?",
    ),
    (
        {"service>pipelines>traces>receivers": ["otlp", "otlp"]},
        "service.pipelines.traces.receivers.1: 'otlp' stands twice; leave one of them",
    ),
    (
        {"service>pipelines>traces>trigger": "any"},
        (
            "service.pipelines.traces.trigger: 'any' is none of its values;"
            " set all_success, all_done or one_success"
        ),
    ),
    (
        {"service>pipelines>metrics": {"receivers": ["otlp"], "exporters": ["flowmark"]}},
        (
            "service.pipelines.metrics: metrics are not taken here;"
            " send them to an OpenTelemetry Collector"
        ),
    ),
    (
        {"service>pipelines>traces>exporters": ["flowmark", "flowmark/fold"]},
        (
            "service.pipelines.traces.exporters.0: exporter flowmark takes no spans;"
            " put a connector flowmark between them"
        ),
    ),
    (
        {"service>pipelines>logs/letters>exporters": ["flowmark"]},
        (
            "service.pipelines.logs/letters.exporters.0: exporter flowmark takes no dead"
            " letters; export them to a file exporter"
        ),
    ),
    (
        {"service>pipelines>logs/envelopes>exporters": ["flowmark", "flowmark/fold"]},
        (
            "service.pipelines.logs/envelopes.exporters.1: connector flowmark/fold takes no"
            " envelopes; they are folded already; export them to a flowmark exporter"
        ),
    ),
    (
        {"service>pipelines>traces/letters": _LETTERS},
        (
            "service.pipelines.traces/letters.receivers.0: errors/letters gives dead"
            " letters, which are logs; name the pipeline logs/…"
        ),
    ),
    (
        {"service>pipelines>logs/envelopes": ABSENT},
        (
            "service.pipelines.traces.exporters.1: flowmark/fold leads nowhere: no pipeline"
            " receives from it; add logs/envelopes: {receivers: [flowmark/fold], exporters:"
            " [flowmark]}"
        ),
    ),
    (
        {"service>pipelines>traces>exporters": ["otlp_http/tracing"]},
        (
            "service.pipelines.logs/envelopes.receivers.0: flowmark/fold gives nothing: no"
            " pipeline exports to it; add it to the exporters of a traces pipeline"
        ),
    ),
    (
        {"service>pipelines>logs/envelopes>exporters": ["flowmark", "errors/letters"]},
        (
            "service.pipelines.logs/envelopes.exporters.1: takes what nodes route to it,"
            " not what a pipeline exports; leave it out here and set errors: errors/letters"
            " on a node"
        ),
    ),
    (
        {
            "exporters>file/letters>on_error": "route",
            "exporters>file/letters>errors": "errors/letters",
        },
        (
            "service.pipelines.logs/letters: is part of a cycle, logs/letters → logs/letters;"
            " take one edge of it away"
        ),
    ),
    (
        {"service>acknowledge": "on_spool", "exporters>flowmark>spool": ABSENT},
        (
            "exporters.flowmark.spool: is missing, and service.acknowledge is on_spool;"
            " set spool: {directory: ./spool}"
        ),
    ),
    (
        {"exporters>file/more": {"path": "./x/../dead-letters.jsonl"}},
        (
            "exporters.file/more.path: is the file of exporters.file/letters.path too;"
            " give each its own"
        ),
    ),
    (
        {
            "exporters>flowmark/more": {
                "endpoint": "http://h:1",
                "spool": {"directory": "spool"},
            }
        },
        (
            "exporters.flowmark/more.spool.directory: is the folder of"
            " exporters.flowmark.spool.directory too; give each its own"
        ),
    ),
    (
        {"service>telemetry>metrics>address": "127.0.0.1:4318"},
        (
            "service.telemetry.metrics.address: is the address of"
            " receivers.otlp.protocols.http.endpoint too; give each its own"
        ),
    ),
    (
        {"exporters>flowmark>endpoint": "http://localhost:4318"},
        (
            "exporters.flowmark.endpoint: is this collector's own"
            " receivers.otlp.protocols.http.endpoint: what it sends would come back for ever; set"
            " the address of the next party"
        ),
    ),
    (
        {"connectors>flowmark/fold>signals": ["celery", "selery"]},
        (
            "connectors.flowmark/fold.signals: can be none alone, or any of safe, celery,"
            " remoulade, hatchet, aws_headers, azure_core, gcp_pubsub, found 'selery'"
        ),
    ),
    (
        {OPEN_DOOR: "0.0.0.0:4317"},
        (
            "receivers.otlp.protocols.grpc.endpoint: others can reach it and nothing says"
            " who may send; set auth: {authenticator: bearertokenauth}, listen on"
            " 127.0.0.1, or give --insecure-no-auth"
        ),
    ),
    (
        {"receivers>otlp>protocols>grpc>auth": {"authenticator": "bearertokenauth"}},
        "receivers.otlp.protocols.grpc.auth.authenticator: 'bearertokenauth' is no extension",
    ),
    (
        {
            "receivers>otlp>protocols>grpc>auth": {"authenticator": "bearertokenauth"},
            "extensions>bearertokenauth": {"token": "secret-token"},
        },
        (
            "receivers.otlp.protocols.grpc.auth.authenticator: bearertokenauth is not in"
            " service.extensions; add it there"
        ),
    ),
    (
        {"extensions>bearertokenauth": {"token": "secret-token", "tokens": ["another"]}},
        "extensions.bearertokenauth: needs exactly one of token, tokens and filename",
    ),
    (
        {"extensions>memory_limiter": {"limit_mib": 512}},
        (
            "extensions.memory_limiter: there is no extension memory_limiter here;"
            " set service.memory_limit_mib"
        ),
    ),
    ({"service": ABSENT}, "service: is missing; write the pipelines there"),
    ({"service>pipelines": {}}, "service.pipelines: is empty; write one pipeline at least"),
    (
        {"exporters>file/ ": {"path": "x"}},
        ("exporters.file/ : 'file/ ' has no name after the slash that can be used; write letters"),
    ),
]
