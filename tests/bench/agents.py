"""The collectors that are compared, each as a process that forwards OTLP to one sink."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.bench.sink import Sink

ROOT: Final = Path(__file__).parents[2]
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START_SECONDS: Final = 60.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

PROCESSOR: Final = """
def process_spans(resource_spans):
    for scope in resource_spans.scope_spans:
        for span in scope.spans:
            for attribute in span.attributes:
                if attribute.key.startswith("flowmark."):
                    break
"""
"""What a Rotel processor that looks for our attributes does at least."""


class Agent(NamedTuple):
    """A collector under measurement: ``HOST:PORT`` of each transport."""

    grpc: str
    http: str
    process: int

    def address(self, transport: str) -> str:
        """Where one transport listens."""
        return self.grpc if transport == "grpc" else self.http

    def seconds(self) -> float:
        """User and system time of the process so far, all its threads."""
        text = Path(f"/proc/{self.process}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak(self) -> int:
        """Bytes of memory that the process has held at most."""
        text = Path(f"/proc/{self.process}/status").read_text()
        [line] = [each for each in text.splitlines() if each.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def resident(self) -> int:
        """Bytes of memory that the process holds."""
        return int(Path(f"/proc/{self.process}/statm").read_text().split()[1]) * _PAGE


@contextmanager
def flowmark(sink: Sink, transport: str, folder: Path, *, fold: bool = True) -> Iterator[Agent]:
    """``flowmark-otel collect``: traces as they are to the sink, and with ``fold`` envelopes."""
    tracing = f"otlp_{transport}"
    exporters: dict[str, Any] = {tracing: {"endpoint": f"http://{_of(sink, transport)}"}}
    pipelines: dict[str, Any] = {"traces": {"receivers": ["otlp"], "exporters": [tracing]}}
    connectors: dict[str, Any] = {}
    if fold:
        protocol = "grpc" if transport == "grpc" else "http/protobuf"
        exporters["flowmark"] = {
            "endpoint": f"http://{_of(sink, transport)}",
            "protocol": protocol,
        }
        connectors["flowmark/fold"] = {}
        pipelines["traces"]["exporters"].append("flowmark/fold")
        pipelines["logs"] = {"receivers": ["flowmark/fold"], "exporters": ["flowmark"]}
    ports = {kind: {"endpoint": "127.0.0.1:0"} for kind in ("grpc", "http")}
    document = {
        "receivers": {"otlp": {"protocols": ports}},
        "connectors": connectors,
        "exporters": exporters,
        "service": {"pipelines": pipelines},
    }
    with _collecting(document, folder, {}) as agent:
        yield agent


@contextmanager
def shape(name: str, sink: Sink, folder: Path) -> Iterator[Agent]:
    """A file of ``collector/shapes``, ``sidecar`` or ``gateway``, over plain HTTP to the sink.

    It is the file but for TLS and tokens, which the load generator does not speak.
    """
    text = (ROOT / "collector" / "shapes" / f"{name}.yaml").read_text("utf-8")
    document = yaml.safe_load(text.replace("./", f"{folder}/"))
    for options in document["receivers"]["otlp"]["protocols"].values():
        options.pop("tls", None)
        options.pop("auth", None)
    document.pop("extensions", None)
    document["service"].pop("extensions", None)
    document["exporters"]["flowmark"].pop("tls", None)
    prefix = name.upper()
    env = {
        f"{prefix}_GRPC": "127.0.0.1:0",
        f"{prefix}_HTTP": "127.0.0.1:0",
        f"{prefix}_TELEMETRY": "127.0.0.1:0",
        "FLOWMARK_API_KEY": "none",
        "FLOWMARK_BACKEND": f"http://{sink.http}",
        "GATEWAY": f"http://{sink.http}",
        "GATEWAY_TOKEN": "none",
    }
    with _collecting(document, folder, env) as agent:
        yield agent


@contextmanager
def _collecting(document: object, folder: Path, env: Mapping[str, str]) -> Iterator[Agent]:
    path = folder / "collector.yaml"
    path.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "flowmark_otel.cli", "collect", "--config", str(path)]
    with (folder / "flowmark.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env},
        )
    with _ended(process):
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert line[:1] == ["ready"], (folder / "flowmark.log").read_text()
        places = dict(part.split("=") for part in line[1:])
        yield Agent(places["grpc"], places["http"], process.pid)


@contextmanager
def rotel(
    agent: Path, sink: Sink, transport: str, folder: Path, *, processor: bool = False
) -> Iterator[Agent]:
    """Rotel: traces to the sink, batched as it does by itself, through Python where asked."""
    grpc, web = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
    command = [str(agent), "start", "--exporter", "otlp", "--otlp-exporter-compression", "none"]
    command += ["--otlp-grpc-endpoint", grpc, "--otlp-http-endpoint", web]
    command += ["--otlp-exporter-protocol", transport]
    command += ["--otlp-exporter-endpoint", f"http://{_of(sink, transport)}"]
    if processor:
        path = folder / "processor.py"
        path.write_text(PROCESSOR)
        command += ["--otlp-with-trace-processor", str(path)]
    with _started(command, folder / "rotel.log", grpc, web) as process:
        yield Agent(grpc, web, process)


@contextmanager
def otelcol(program: Path, sink: Sink, transport: str, folder: Path) -> Iterator[Agent]:
    """A stock OpenTelemetry Collector that answers when the sink did."""
    grpc, web = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
    endpoint = _of(sink, transport)
    exporter: dict[str, Any] = {
        "endpoint": endpoint if transport == "grpc" else f"http://{endpoint}",
        "compression": "none",
        "sending_queue": {"enabled": False},
        "retry_on_failure": {"enabled": False},
    }
    if transport == "grpc":
        exporter["tls"] = {"insecure": True}
    document = {
        "receivers": {
            "otlp": {"protocols": {"grpc": {"endpoint": grpc}, "http": {"endpoint": web}}}
        },
        "exporters": {f"otlp_{transport}": exporter},
        "service": {
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": [f"otlp_{transport}"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "error"}},
        },
    }
    path = folder / "otelcol.yaml"
    path.write_text(yaml.safe_dump(document))
    command = [str(program), "--config", str(path)]
    with _started(command, folder / "otelcol.log", grpc, web) as process:
        yield Agent(grpc, web, process)


def built_otelcol() -> Path | None:
    """The stock Collector that ``make otelcol`` built, None where it did not."""
    program = ROOT / ".tools" / "otelcol"
    return program if program.exists() else None


def install_rotel(folder: Path) -> Path | None:
    """Rotel's agent in an environment of its own, None where it cannot be had.

    It is linked to the system's libpython, so that it is run by none of ours.
    """
    place = folder / "rotel"
    if not place.exists():
        venv.create(place, with_pip=True)
        command = [str(place / "bin" / "pip"), "install", "--quiet", "--pre", "rotel"]
        if subprocess.run(command, check=False).returncode:
            shutil.rmtree(place)
            return None
    return next(place.glob("lib/python*/site-packages/rotel/rotel-agent"), None)


def _of(sink: Sink, transport: str) -> str:
    return sink.grpc if transport == "grpc" else sink.http


@contextmanager
def _started(command: Sequence[str], log: Path, *addresses: str) -> Iterator[int]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    with _ended(process):
        until = time.monotonic() + _START_SECONDS
        for address in addresses:
            while not _listens(address):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
        yield process.pid


@contextmanager
def _ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
