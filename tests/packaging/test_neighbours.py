"""Beside vendors' SDKs, distros and exporters, installed from the index (D2)."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from flowmark_otel import names
from tests.support.answers import PROTOBUF, Received, Reply, answering
from tests.support.instrumented import (
    EXPECTED,
    INSTRUMENT,
    SCRIPT,
    attempts,
    environment,
    evidence,
    needs_entry_points,
)
from tests.support.serving import Serving

ROOT = Path(__file__).resolve().parents[2]
WANTED = Path(__file__).with_name("neighbours.txt")
UNREACHABLE = ("connection", "resolve", "timed out", "no matching distribution", "unreachable")

pytestmark = pytest.mark.timeout(300)  # an environment is made and filled


class Neighbour(NamedTuple):
    """How a vendor is set up: by its distro, or by a call in the program; where it exports to."""

    set_up: str
    flush: str
    path: str
    distro: str = "none"
    configurator: str = "none"
    exporter: str = "none"


AZURE = "azure_monitor_opentelemetry"
NEIGHBOURS = {
    "logfire": Neighbour(
        "import logfire\n"
        "logfire.configure(token='t', send_to_logfire=True, console=False, metrics=False,\n"
        "    advanced=logfire.AdvancedOptions(base_url=os.environ['NEIGHBOUR']))\n",
        "logfire.force_flush()",
        "/v1/traces",
    ),
    "phoenix": Neighbour(
        "from phoenix.otel import register\n"
        "register(endpoint=os.environ['NEIGHBOUR'] + '/v1/traces', protocol='http/protobuf',\n"
        "    batch=True, verbose=False)\n",
        "trace.get_tracer_provider().force_flush()",
        "/v1/traces",
    ),
    "azure": Neighbour(
        "",
        "trace.get_tracer_provider().force_flush()",
        "/v2.1/track",
        f"{AZURE}_distro",
        f"{AZURE}_configurator",
        f"{AZURE}_exporter",
    ),
}
LOOK = """
provider = trace.get_tracer_provider()
provider = getattr(provider, "provider", provider)
known = [type(each).__name__ for each in provider._active_span_processor._span_processors]
print(known.count("FlowmarkSpanProcessor"))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the vendors, which sees what this one has installed."""
    needs_entry_points()
    folder = tmp_path_factory.mktemp("neighbours")
    venv.create(folder, with_pip=False)
    inside = folder / "bin" / "python"
    [packages] = folder.glob("lib/*/site-packages")
    own = sysconfig.get_paths()["purelib"]
    (packages / "beside.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(inside), "install", "--quiet"),
            *("--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")),
            *("-r", str(WANTED)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and any(word in done.stderr.lower() for word in UNREACHABLE):
        pytest.skip("the package index cannot be reached; the vendors are installed from it")
    assert done.returncode == 0, done.stderr
    return inside


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path / "s.db") as found:
        yield found


def answer(request: Received) -> Reply:
    """What each vendor's own service answers."""
    if request.path == "/v1/traces":
        return Reply(body=ExportTraceServiceResponse().SerializeToString(), content_type=PROTOBUF)
    if request.path == "/v2.1/track":
        count = len(json.loads(request.body))
        told = {"itemsReceived": count, "itemsAccepted": count, "errors": []}
    else:
        told = {"project_name": "p", "project_url": "http://127.0.0.1/p"}
    return Reply(body=json.dumps(told).encode(), content_type="application/json")


def run(python: Path, folder: Path, neighbour: Neighbour, **more: str) -> tuple[str, list[Any]]:
    """What the program printed, and what the vendor's service was sent of its spans."""
    program = f"import os\nfrom opentelemetry import trace\n{neighbour.set_up}{SCRIPT}{LOOK}"
    (folder / "program.py").write_text(program + neighbour.flush + "\n")
    with answering(answer) as service:
        env = environment(
            OTEL_TRACES_EXPORTER=neighbour.exporter,
            OTEL_PYTHON_DISTRO=neighbour.distro,
            OTEL_PYTHON_CONFIGURATOR=neighbour.configurator,
            OTEL_RESOURCE_ATTRIBUTES="service.instance.id=one",
            APPLICATIONINSIGHTS_CONNECTION_STRING=(
                "InstrumentationKey=00000000-0000-0000-0000-000000000001;"
                f"IngestionEndpoint={service.endpoint}"
            ),
            APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL="true",
            NEIGHBOUR=service.endpoint,
            HOME=str(folder),
            **more,
        )
        done = subprocess.run(
            [str(python), str(INSTRUMENT), str(python), "program.py"],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        received = [each.body for each in service.received if each.path == neighbour.path]
    return done.stdout, sorted(
        _telemetry(received) if "track" in neighbour.path else _otlp(received)
    )


def _otlp(bodies: Sequence[bytes]) -> Iterator[Any]:
    """Name, kind, status and attributes of each span, without what differs from run to run."""
    for body in bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            of = sorted(each.key for each in resource.resource.attributes)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    said = [(each.key, str(each.value)) for each in span.attributes]
                    kept = _unstamped(said)
                    yield span.name, span.kind, span.status.code, span.flags, kept, of


def _telemetry(bodies: Sequence[bytes]) -> Iterator[Any]:
    """Name, outcome and properties of each item of a span, without what differs."""
    for body in bodies:
        for item in json.loads(body):
            data = item["data"]["baseData"]
            if item["data"]["baseType"] == "RemoteDependencyData":
                kept = _unstamped(list(data.get("properties", {}).items()))
                yield data["name"], data["success"], data["resultCode"], kept, sorted(item["tags"])


def _unstamped(attributes: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Attributes without the operation name, which an early start writes (section 1)."""
    varying = ("logfire.", "code.")
    return sorted(
        (key, value)
        for key, value in attributes
        if key != names.OPERATION_NAME and not key.startswith(varying)
    )


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_beside_a_vendor_both_have_all(
    name: str, python: Path, serving: Serving, tmp_path: Path
) -> None:
    """D2: without code beside a vendor's: its export is as without us, ours complete, and once."""
    neighbour = NEIGHBOURS[name]
    printed, alone = run(python, tmp_path, neighbour)
    assert printed == "0\n"
    assert sum(span[0] == "renamed" for span in alone) == 2
    ours = {"FLOWMARK_ENDPOINT": serving.endpoint, "FLOWMARK_API_KEY": serving.keys[0]}
    printed, beside = run(python, tmp_path, neighbour, **ours)
    assert printed == "1\n"
    assert beside == alone
    assert attempts(serving) == EXPECTED
    assert evidence(serving) == ["stored"] * 4
