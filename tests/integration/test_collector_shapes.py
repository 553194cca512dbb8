"""``collector/shapes``: a sidecar with a spool, behind it a gateway that asks who sends."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml

from flowmark_otel import names
from flowmark_otel.collector.config.loading import load
from flowmark_otel.collector.run import STOP_SECONDS
from flowmark_otel.wire import receipt
from tests.support import certificates, collecting
from tests.support.answers import free_port
from tests.support.collector_files import ENVIRONMENT
from tests.support.fleet import until
from tests.support.killing import SPANS, TYPE, batch, ids_of
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving

SHAPES: Final = Path(__file__).resolve().parents[2] / "collector" / "shapes"
TOKEN: Final = "let-the-sidecars-in"
GIVEN: Final = "https://given.example:4318"
"""In place of what whoever starts the compose file has to give."""


def shape(name: str, folder: Path) -> dict[str, Any]:
    """A file as it is, but that what it keeps is in ``folder``."""
    folder.mkdir(exist_ok=True)
    text = (SHAPES / f"{name}.yaml").read_text("utf-8")
    config: dict[str, Any] = yaml.safe_load(text.replace("./", f"{folder}/"))
    return config


def states(http: str, ids: list[str]) -> Counter[str]:
    """What a party at ``HOST:PORT`` says of events."""
    url = f"http://{http}/v1/flowmark/status"
    answer = requests.post(url, json={"eventIds": ids}, timeout=30)
    return Counter(event["state"] for event in answer.json()["events"])


@pytest.mark.needs("openssl")
def test_what_a_sidecar_took_reaches_the_backend_through_the_gateway(tmp_path: Path) -> None:
    """A24, row 2: custody while the gateway is away, through SIGKILL; stored when it is back."""
    pair = certificates.make(tmp_path)
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    gateway, telemetry = f"127.0.0.1:{free_port()}", "127.0.0.1:0"
    chance = random.Random(11)
    before, spans = batch(chance), batch(chance)
    ids = ids_of(spans)
    with Serving(tmp_path / "s.db") as serving:
        of_gateway = {
            "FLOWMARK_API_KEY": serving.keys[0],
            "FLOWMARK_BACKEND": serving.endpoint,
            "GATEWAY_CERT": str(pair.certificate),
            "GATEWAY_GRPC": "127.0.0.1:0",
            "GATEWAY_HTTP": gateway,
            "GATEWAY_KEY": str(pair.key),
            "GATEWAY_TELEMETRY": telemetry,
            "GATEWAY_TOKENS": str(tmp_path / "tokens"),
        }
        of_sidecar = {
            "GATEWAY": f"https://{gateway}",
            "GATEWAY_CA": str(pair.certificate),
            "GATEWAY_TOKEN": TOKEN,
            "SIDECAR_GRPC": "127.0.0.1:0",
            "SIDECAR_HTTP": "127.0.0.1:0",
            "SIDECAR_TELEMETRY": telemetry,
        }
        at_gateway, at_sidecar = tmp_path / "gateway", tmp_path / "sidecar"
        config = shape("sidecar", at_sidecar)
        with collecting.process(shape("gateway", at_gateway), at_gateway, of_gateway) as first:
            refused = requests.post(
                f"https://{gateway}/v1/traces",
                b"",
                headers=TYPE,
                verify=str(pair.certificate),
                timeout=30,
            )
            assert refused.status_code == requests.codes.unauthorized
            with collecting.process(config, at_sidecar, of_sidecar) as sidecar:
                until(lambda: _taken(sidecar.http, before))
                first.kill()
                taken = until(lambda: _taken(sidecar.http, spans))
                assert (taken.custody, taken.received) == (2 * SPANS, 2 * SPANS)
                assert states(sidecar.http, ids) == {names.CUSTODY: 2 * SPANS}
                sidecar.kill()
        with (
            collecting.process(shape("gateway", at_gateway), at_gateway, of_gateway),
            collecting.process(config, at_sidecar, of_sidecar) as sidecar,
        ):
            ids += ids_of(before)
            until(lambda: states(sidecar.http, ids) == {names.STORED: 4 * SPANS})
        counts = serving.get("/ingest", serving.keys[1])["events"]
    found = {row["state"]: row["count"] for row in counts}
    assert found.pop(names.STORED) == 4 * SPANS
    assert set(found) <= {names.DUPLICATE}


def _taken(http: str, spans: list[Any]) -> Any:
    """The receipt of one export, None where it was not taken."""
    body = traces_protobuf(spans)
    answer = requests.post(f"http://{http}/v1/traces", data=body, headers=TYPE, timeout=30)
    return receipt.decode(answer.content, "protobuf") if answer.ok else None


@pytest.mark.needs("openssl")
def test_the_files_are_loaded_as_they_stand(tmp_path: Path) -> None:
    """Contract, section 9: each file of the folder is taken by collect, its variables set."""
    pair = certificates.make(tmp_path)
    (tmp_path / "tokens").write_text(TOKEN)
    environ = {
        **ENVIRONMENT,
        "GATEWAY_CA": str(pair.certificate),
        "GATEWAY_CERT": str(pair.certificate),
        "GATEWAY_KEY": str(pair.key),
        "GATEWAY_TOKEN": TOKEN,
        "GATEWAY_TOKENS": str(tmp_path / "tokens"),
    }
    readme = (SHAPES / "README.md").read_text("utf-8")
    files = sorted(SHAPES.glob("*.yaml"))
    assert [each.name for each in files] == ["compose.yaml", "gateway.yaml", "sidecar.yaml"]
    for each in files[1:]:
        assert load(each, environ).telemetry == "127.0.0.1:8888"
        assert f"({each.name})" in readme


def test_the_compose_file_is_valid() -> None:
    """Issue 10, shapes: the compose file fits the schema of the compose specification."""
    program = Path(sys.executable).with_name("check-jsonschema")
    found = subprocess.run(
        [program, "--builtin-schema", "vendor.compose-spec", SHAPES / "compose.yaml"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("name", ["sidecar", "gateway"])
def test_the_compose_file_starts_the_shapes(name: str, tmp_path: Path) -> None:
    """Issue 10, shapes: file, variables, memory and time to drain of a container are the code's."""
    compose = yaml.safe_load((SHAPES / "compose.yaml").read_text("utf-8"))
    service = compose["services"][name]
    [config] = service["configs"]
    assert service["command"] == ["collect", "--config", config["target"]]
    assert compose["configs"][config["source"]]["file"] == f"./{name}.yaml"
    assert {f"/run/secrets/{each}" for each in service["secrets"]} == {
        value for value in service["environment"].values() if value.startswith("/run/")
    }
    text = (SHAPES / f"{name}.yaml").read_text("utf-8")
    named = set(re.findall(r"\$\{env:(\w+)", text))
    assert set(service["environment"]) <= named
    pair = certificates.make(tmp_path)
    (tmp_path / "tokens").write_text(TOKEN)
    secrets = {
        "certificate": str(pair.certificate),
        "key": str(pair.key),
        "tokens": str(tmp_path / "tokens"),
    }
    environ = {
        key: secrets.get(value.removeprefix("/run/secrets/"), re.sub(r"\$\{.*", GIVEN, value))
        for key, value in service["environment"].items()
    }
    plan = load(SHAPES / f"{name}.yaml", environ)
    assert plan.memory_limit is not None
    assert int(service["mem_limit"].removesuffix("m")) << 20 >= plan.memory_limit * 1.2
    assert int(service["stop_grace_period"].removesuffix("s")) > STOP_SECONDS
    assert "http://127.0.0.1:8888/healthz" in service["healthcheck"]["test"][-1]
    assert plan.telemetry == "127.0.0.1:8888"
    [volume] = service["volumes"]
    assert volume.endswith(":/var/lib/flowmark-otel")  # where the image's user is, and may write


@pytest.mark.needs("systemd-analyze")
def test_the_drop_in_of_a_gateway_is_verified(tmp_path: Path) -> None:
    """Issue 10, shapes: systemd reads the unit with its drop-in without a word."""
    unit = tmp_path / "flowmark-otel-collect.service"
    text = (SHAPES.parent / unit.name).read_text("utf-8")
    unit.write_text(text.replace("/opt/flowmark-otel/bin/flowmark-otel", sys.executable))
    folder = tmp_path / f"{unit.name}.d"
    folder.mkdir()
    shutil.copy(SHAPES / "gateway.conf", folder)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
