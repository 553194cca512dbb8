"""``doctor``: whether a backend is reachable, lets us in, and its receipts come through (A22)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from platform import python_version
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click
import grpc
import requests

from flowmark_otel import names
from flowmark_otel.commands.console import NO, as_json, print_json, printable
from flowmark_otel.commands.remote import TIMEOUT_SECONDS, Backend, remote
from flowmark_otel.commands.root import DISTRIBUTION, installed_version
from flowmark_otel.config import split_address
from flowmark_otel.errors import FlowmarkError, Unparsable
from flowmark_otel.wire import receipt as receipts
from flowmark_otel.wire.pb import acceptance_pb2

OK: Final = "ok"
WARNING: Final = "warning"
FAILED: Final = "failed"

_HTTP_PORT: Final = 4318
_GRPC_PORT: Final = 4317
_CLOCK_SECONDS: Final = 5.0
_PACKAGES: Final = ("opentelemetry-sdk", "opentelemetry-exporter-otlp", "grpcio", "protobuf")
_GRPC_MEANS: Final = {
    grpc.StatusCode.UNAUTHENTICATED: "knows no such key; set FLOWMARK_API_KEY to an ingest key",
    grpc.StatusCode.PERMISSION_DENIED: "does not let this kind of key send; use an ingest key",
    grpc.StatusCode.UNIMPLEMENTED: "is no Flowmark backend",
}


class Finding(NamedTuple):
    """One question and its answer."""

    name: str
    state: str
    says: str


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        host, port = split_address(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error
    if port == 0 or any(character.isspace() or character == "/" for character in host):
        msg = f"must be HOST:PORT such as 127.0.0.1:{_GRPC_PORT}, found {value!r}"
        raise click.BadParameter(msg, context, parameter)
    return value


@click.command()
@remote
@click.option(
    "--grpc-endpoint",
    metavar="HOST:PORT",
    callback=_address,
    help="Address of OTLP over gRPC; by default one port below the HTTP one.",
)
@as_json
def command(backend: Backend, grpc_endpoint: str | None, *, json_output: bool) -> None:
    """Ask a backend whether spans with attempts would arrive, over HTTP and gRPC.

    Sends an empty request only. Use an ingest key. Exits with 1 if anything failed.
    """
    findings = [*_http(backend), _grpc(grpc_endpoint or _beside(backend.endpoint), backend)]
    if grpc_endpoint is None and findings[-1].state == FAILED:
        guessed = "; this address is a guess, name the right one with --grpc-endpoint"
        findings[-1] = findings[-1]._replace(says=findings[-1].says + guessed)
    if json_output:
        print_json({"findings": [found._asdict() for found in findings], "versions": versions()})
    else:
        for found in findings:
            click.echo(f"{found.state:8} {found.name}: {printable(found.says)}")
        click.echo("versions " + ", ".join(f"{name} {had}" for name, had in versions().items()))
    if any(found.state == FAILED for found in findings):
        sys.exit(NO)


def versions() -> dict[str, str]:
    """What is installed here, as far as sending depends on it."""
    found = {package: installed_version(package) for package in _PACKAGES}
    return {DISTRIBUTION: installed_version(), "python": python_version(), **found}


def _http(backend: Backend) -> Iterator[Finding]:
    asked_at = time.time()
    try:
        answer = backend.raw("/v1/flowmark/capabilities")
    except FlowmarkError as error:
        yield Finding("http", FAILED, str(error))
        return
    answered_at = time.time()
    yield Finding("http", OK, f"{backend.endpoint} answers")
    yield _clock(answer, asked_at, answered_at)
    if answer.status_code == requests.codes.not_found:
        says = f"{backend.endpoint} is no Flowmark backend; behind it nothing is acknowledged"
        yield Finding("acknowledgement", FAILED, says)
        return
    if answer.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
        means = (
            "knows no such key; set FLOWMARK_API_KEY to an ingest key"
            if answer.status_code == requests.codes.unauthorized
            else "does not let this kind of key send; use an ingest key"
        )
        yield Finding("authorisation", FAILED, f"{backend.endpoint} {means}")
        return
    may = "the key may send" if backend.api_key else "no key was given, and none is asked for"
    yield Finding("authorisation", OK, may)
    yield _acknowledgement(backend)


def _acknowledgement(backend: Backend) -> Finding:
    """Whether the receipt of a real, empty request comes through whatever stands between."""
    name = "acknowledgement"
    try:
        answer = backend.post("/v1/traces", b"", "application/x-protobuf")
        receipt = receipts.decode(answer.content, receipts.PROTOBUF)
    except (FlowmarkError, Unparsable) as error:
        return Finding(name, FAILED, str(error))
    if answer.status_code != requests.codes.ok:
        return Finding(name, FAILED, f"an empty request was answered with {answer.status_code}")
    if names.CAPABILITY not in receipt.capabilities:
        says = f"no receipt with {names.CAPABILITY}: an older server, or a hop that answers itself"
        return Finding(name, FAILED, says)
    return Finding(name, OK, f"{names.CAPABILITY}, backend {receipt.backend_id}")


def _clock(answer: requests.Response, asked_at: float, answered_at: float) -> Finding:
    """The Date header has whole seconds, so a second or less of difference cannot be seen."""
    try:
        theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return Finding("clock", WARNING, "the answer has no date, so clocks cannot be compared")
    off = max(asked_at - (theirs + 1), theirs - answered_at, 0.0)
    if off <= _CLOCK_SECONDS:
        return Finding("clock", OK, "the clocks agree to within a few seconds")
    direction = "ahead of" if theirs > answered_at else "behind"
    says = f"the backend's clock is {off:.0f} s {direction} this one; times are stored as sent"
    return Finding("clock", WARNING, says)


def _grpc(address: str, backend: Backend) -> Finding:
    channel = grpc.insecure_channel(address)
    if backend.endpoint.startswith("https:"):
        trusted = Path(backend.certificate).read_bytes() if backend.certificate else None
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted))
    with channel:
        ask = channel.unary_unary(
            "/flowmark.v1.Acceptance/Capabilities",
            request_serializer=acceptance_pb2.CapabilitiesRequest.SerializeToString,
            response_deserializer=acceptance_pb2.CapabilitiesResponse.FromString,
        )
        sent = (("authorization", f"Bearer {backend.api_key}"),) if backend.api_key else ()
        try:
            answer = ask(
                acceptance_pb2.CapabilitiesRequest(), metadata=sent, timeout=TIMEOUT_SECONDS
            )
        except grpc.RpcError as error:
            code = error.code()
            means = _GRPC_MEANS.get(code, f"cannot be asked ({code.name})")
            return Finding("grpc", FAILED, f"{address} {means}")
    if names.CAPABILITY not in answer.capabilities:
        return Finding("grpc", FAILED, f"{address} does not acknowledge {names.CAPABILITY}")
    return Finding("grpc", OK, f"{address} answers, {names.CAPABILITY}")


def _beside(endpoint: str) -> str:
    """The gRPC address that goes with an HTTP endpoint: ports come in pairs."""
    found = urlsplit(endpoint)
    host = found.hostname or "127.0.0.1"
    port = found.port or _HTTP_PORT
    bracketed = f"[{host}]" if ":" in host else host
    return f"{bracketed}:{port - 1 if port > 1 else _GRPC_PORT}"
