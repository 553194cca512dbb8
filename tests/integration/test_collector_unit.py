"""``flowmark-otel-collect.service``: read by systemd, in step with the code (issue 10)."""

from __future__ import annotations

import configparser
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from flowmark_otel.collector.config.loading import load
from flowmark_otel.collector.run import STOP_SECONDS
from tests.support.collector_files import ENVIRONMENT

COLLECTOR: Final = Path(__file__).parents[2] / "collector"
UNIT: Final = COLLECTOR / "flowmark-otel-collect.service"
PROGRAM: Final = "/opt/flowmark-otel/bin/flowmark-otel"


def unit() -> configparser.SectionProxy:
    """The section of the service; of what is there more than once, the last."""
    parser = configparser.RawConfigParser(strict=False, delimiters="=", comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(UNIT.read_text("utf-8").replace("\\\n", " "))
    return parser["Service"]


@pytest.mark.needs("systemd-analyze")
def test_the_unit_is_verified(tmp_path: Path) -> None:
    """Issue 10, shapes: systemd reads the unit without a word, and calls its exposure OK."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text("utf-8").replace(PROGRAM, sys.executable))
    for command in (
        ("verify", "--man=no", copy),
        ("security", "--offline=true", "--threshold=20", "--no-pager", copy),
    ):
        found = subprocess.run(
            ["systemd-analyze", *command], capture_output=True, text=True, timeout=50, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
        assert command[0] == "security" or (found.stdout, found.stderr) == ("", "")


def test_the_unit_starts_what_there_is_and_waits_for_its_end() -> None:
    """Row 26: the command, the address that is asked and the time to drain are the code's."""
    service = unit()
    program, command, option, _ = shlex.split(service["ExecStart"])
    assert (program, command, option) == (PROGRAM, "collect", "--config")
    asked = shlex.split(service["ExecStartPost"])[-1]
    name, _, address = service["Environment"].partition("=")
    assert asked == f"http://${{{name}}}/healthz"
    assert address == load(COLLECTOR / "flowmark-otel-collect.yaml", ENVIRONMENT).telemetry
    assert int(service["TimeoutStopSec"]) > STOP_SECONDS
    assert service["WorkingDirectory"] == f"%S/{service['StateDirectory']}"
