"""``serve``: the backend, its API and its pages (contract, sections 4 and 7)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from flowmark_otel import names
from flowmark_otel.backend.store import database_of
from flowmark_otel.config import ServeOptions, declared, resolve
from flowmark_otel.server import FIRST_PROJECT, Started, run

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_HELP: Final = {name: setting.help for name, setting in declared(ServeOptions).items()}
_FIRST_SPAN: Final = (
    "from opentelemetry.sdk.trace import TracerProvider as P;"
    "from opentelemetry.sdk.trace.export import SimpleSpanProcessor as S;"
    "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as E;"
    "p=P();p.add_span_processor(S(E()));"
    'p.get_tracer("first").start_span("say-hello",attributes='
    '{"%s":"hello","%s":1}).end();p.shutdown()'
)


def _text(flag: str, metavar: str) -> Callable[[Decorated], Decorated]:
    name = flag.removeprefix("--").replace("-", "_")
    return click.option(flag, metavar=metavar, help=_described(name))


def _switch(flag: str) -> Callable[[Decorated], Decorated]:
    """A switch that is None, not False, where it is not given: the environment may set it."""
    name = flag.removeprefix("--").replace("-", "_")
    return click.option(flag, is_flag=True, flag_value=True, default=None, help=_described(name))


def _described(name: str) -> str:
    text = _HELP[name]
    default = getattr(ServeOptions(), name)
    if isinstance(default, tuple):
        default = ",".join(default)
    shown = f" [default: {default}]" if default and not isinstance(default, bool) else ""
    return f"{text[:1].upper()}{text[1:]}.{shown}"


@click.command()
@_text("--db", "URL")
@_text("--grpc", "ADDR")
@_text("--http", "ADDR")
@_text("--tls-cert", "FILE")
@_text("--tls-key", "FILE")
@_switch("--insecure-no-auth")
@_text("--open-after", "TIME")
@_text("--max-request-bytes", "N")
@_switch("--migrate")
@_text("--workers", "N")
@_text("--metrics", "ADDR")
@_text("--log-level", "LEVEL")
@_text("--retain", "TIME")
@_text("--max-events", "N")
@_text("--max-workflows", "N")
@_text("--max-operations", "N")
@_text("--max-groups", "N")
@_text("--trace-url", "TEMPLATE")
@_text("--signals", "LIST")
@_text("--without", names.CAPABILITY)
def command(**arguments: str | bool | None) -> None:
    """Take OTLP over gRPC and HTTP, and serve the API and the pages.

    The store is SQLite in the user data folder unless --db names another. A new store gets an
    ingest and a read key, which are shown this once. FLOWMARK_SERVE_<OPTION> sets an option too.
    """
    options = resolve(ServeOptions, arguments, os.environ)

    def announce(started: Started) -> None:
        for line in (*lines_of(started, options.tls_cert), *_lines_without_keys(started, options)):
            click.echo(line)

    run(options, announce)


def lines_of(started: Started, certificate: Path | None) -> list[str]:
    """What is said before the ready line: of a new store its keys, and a command to try it."""
    metrics = [] if started.metrics is None else [f"Metrics at http://{started.metrics}/metrics"]
    if started.ingest_key is None or started.read_key is None:
        return metrics
    endpoint = f"{'https' if certificate else 'http'}://{started.http}"
    return [
        *metrics,
        "This store is new. These keys are shown this once:",
        f"  ingest key: {started.ingest_key}",
        f"  read key:   {started.read_key}",
        "A first span, sent by the stock exporter:",
        f"  {first_span(endpoint, started.ingest_key, certificate)}",
        f"Look at it at {endpoint}/ with the read key.",
    ]


def _lines_without_keys(started: Started, options: ServeOptions) -> list[str]:
    """What is said of a store in use that no key sends to or reads from: how to make them."""
    if not started.missing_kinds:
        return []
    kinds = " and no ".join(started.missing_kinds)
    store = shlex.quote(database_of(options.database_url).url)
    return [
        f"This store is not new and has no {kinds} key that is valid. Make what you need:",
        *(
            f"  flowmark-otel keys create --db {store} --project {FIRST_PROJECT} --kind {kind}"
            for kind in started.missing_kinds
        ),
    ]


def first_span(endpoint: str, ingest_key: str, certificate: Path | None) -> str:
    """A line for a POSIX shell that records one attempt with the stock SDK and exporter."""
    code = _FIRST_SPAN % (names.ATTEMPT_GROUP_ID, names.ATTEMPT_NUMBER)
    trusted = (
        f"OTEL_EXPORTER_OTLP_CERTIFICATE={shlex.quote(str(certificate))} " if certificate else ""
    )
    return (
        f"{trusted}"
        f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}"
        f" OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{ingest_key}"
        f" {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    )
