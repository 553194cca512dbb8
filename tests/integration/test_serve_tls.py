"""TLS from end to end: stock exporters and our own client, both transports, several workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support import certificates
from tests.support.certificates import Pair
from tests.support.commands import cli
from tests.support.serving import Serving

STOCK = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.{transport}.trace_exporter import OTLPSpanExporter
provider = TracerProvider()
exporter = OTLPSpanExporter()
given = {{"flowmark.attempt.group_id": sys.argv[1], "flowmark.attempt.number": 1}}
span = provider.get_tracer("tls").start_span("push", attributes=given)
span.end()
sys.exit(0 if exporter.export([span]).name == "SUCCESS" else 1)
"""
OURS = """
import sys
import flowmark_otel as flowmark
flow = flowmark.workflow("tls")
flow.call("push", lambda: 1, attempt=flowmark.Attempt(sys.argv[1], 1))
flow.done()
flowmark.flush(timeout=20)
"""
PROTOCOLS = ("http/protobuf", "http/json", "grpc")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The server's certificate."""
    return certificates.make(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Serving]:
    """Two workers under TLS, with keys."""
    store = tmp_path_factory.mktemp("tls") / "s.db"
    with Serving(store, "--workers", "2", *pair.options) as found:
        yield found


def ran(code: str, group: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A program with settings of its own; bundles that the machine names would replace them."""
    env = {name: value for name, value in os.environ.items() if "CA_BUNDLE" not in name}
    return subprocess.run(
        [sys.executable, "-c", code, group],
        env=env | settings,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def ours(serving: Serving, pair: Pair, protocol: str) -> dict[str, str]:
    """The settings of our client."""
    address = serving.grpc if protocol == "grpc" else serving.http
    return {
        "FLOWMARK_ENDPOINT": f"https://{address}",
        "FLOWMARK_PROTOCOL": protocol,
        "FLOWMARK_API_KEY": serving.keys[0],
        "FLOWMARK_CERTIFICATE": str(pair.certificate),
    }


def groups(serving: Serving, pair: Pair) -> set[str]:
    """All groups that were recorded, asked over TLS."""
    where = ("--endpoint", f"https://{serving.http}", "--certificate", str(pair.certificate))
    key = ("--api-key", serving.keys[1])
    found: set[str] = set()
    for run in cli("runs", "list", *where, *key)["items"]:
        shown = cli("runs", "show", run["key"], *where, *key)
        found |= {group["group_id"] for group in shown["attempts"]}
    return found


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_stock_exporters_deliver_over_tls(serving: Serving, pair: Pair, transport: str) -> None:
    """D1, D4: with OpenTelemetry's own settings, to whichever worker answers."""
    address = serving.grpc if transport == "grpc" else serving.http
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://{address}",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(pair.certificate),
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{serving.keys[0]}",
    }
    sent = ran(STOCK.format(transport=f"{transport}"), f"stock-{transport}", **settings)
    assert sent.returncode == 0, sent.stderr
    assert f"stock-{transport}" in groups(serving, pair)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_client_delivers_over_tls(serving: Serving, pair: Pair, protocol: str) -> None:
    """D1, A22: flush is quiet because every event was acknowledged."""
    sent = ran(OURS, protocol, **ours(serving, pair, protocol))
    assert sent.returncode == 0, sent.stderr
    assert protocol in groups(serving, pair)


@pytest.mark.needs("openssl")
def test_who_cannot_trust_the_server_tells_it_nothing(
    serving: Serving, pair: Pair, tmp_path: Path
) -> None:
    """A22: another authority's certificate, or none of TLS, is a delivery failure."""
    other = certificates.make(tmp_path, "other")
    settings = ours(serving, pair, "grpc") | {"FLOWMARK_CERTIFICATE": str(other.certificate)}
    refused = ran(OURS.replace("timeout=20", "timeout=1"), "untrusted", **settings)
    assert refused.returncode == 1
    assert "DeliveryError" in refused.stderr
    assert serving.keys[0] not in refused.stderr
    assert "untrusted" not in groups(serving, pair)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://{serving.http}/healthz", timeout=20)
