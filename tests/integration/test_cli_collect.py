"""``collect --validate``: what would be built, or everything that is wrong with the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.collector_files import KEY, SAMPLE, changed
from tests.support.commands import invoke


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that the sample names."""
    monkeypatch.setenv("FLOWMARK_API_KEY", KEY)


def written(tmp_path: Path, text: str) -> str:
    """A configuration file of that text."""
    path = tmp_path / "collect.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def test_a_valid_file_is_shown_as_a_tree(tmp_path: Path) -> None:
    """Section 9: --validate says which pipelines would be built, and exits with 0."""
    answer = invoke("collect", "--config", written(tmp_path, SAMPLE), "--validate")
    assert answer.exit_code == 0
    assert answer.stdout.splitlines()[1:5] == [
        "acknowledge end_to_end: senders get the backend's receipt",
        "pipeline traces (all_success)",
        "  from otlp: grpc 127.0.0.1:4317, http 127.0.0.1:4318",
        "  to   otlp_http/tracing: http://127.0.0.1:14318, on_error continue, one try",
    ]
    assert "telemetry http://127.0.0.1:8888/metrics, /healthz, /readyz and /status" in answer.stdout
    assert KEY not in answer.output


def test_a_valid_file_is_one_document_for_programs(tmp_path: Path) -> None:
    """Section 7: --json prints the plan with its defaults, and no secret."""
    text = changed(
        {
            "extensions>bearertokenauth": {"token": KEY},
            "service>extensions": ["bearertokenauth"],
            "service>memory_limit_mib": 512,
        }
    )
    answer = invoke("collect", "--config", written(tmp_path, text), "--validate", "--json")
    document: dict[str, Any] = json.loads(answer.stdout)
    assert document["valid"] is True
    assert document["exporters"]["flowmark"]["headers"] == {"authorization": "[redacted]"}
    assert document["extensions"]["bearertokenauth"]["token"] == "[redacted]"
    assert document["exporters"]["file/letters"]["deadline_ms"] == 60_000
    assert document["memory_limit"] == 512 << 20
    assert KEY not in answer.output


@pytest.mark.parametrize("validate", [True, False], ids=["validate", "start"])
def test_every_fault_is_said_and_the_exit_is_1(tmp_path: Path, *, validate: bool) -> None:
    """Section 9: all faults at once, each a line with its path, exit 1, started or only asked."""
    text = changed({"exporters>flowmark>retry>max_attempts": 11, "service>acknowledge": "never"})
    arguments = ("--validate",) if validate else ()
    answer = invoke("collect", "--config", written(tmp_path, text), *arguments)
    assert answer.exit_code == 1
    assert [line.strip().partition(": ")[0] for line in answer.stderr.splitlines()[1:]] == [
        "exporters.flowmark.retry.max_attempts",
        "service.acknowledge",
    ]


def test_faults_are_one_document_for_programs(tmp_path: Path) -> None:
    """Section 7: --json prints the faults too."""
    path = written(tmp_path, SAMPLE.replace("${env:FLOWMARK_API_KEY}", "${env:NOT_SET_HERE}"))
    answer = invoke("collect", "--config", path, "--validate", "--json")
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert found["valid"] is False
    assert len(found["faults"]) == 1
    assert "NOT_SET_HERE is not set" in found["faults"][0]


def test_an_open_receiver_needs_the_switch(tmp_path: Path) -> None:
    """Reliability, "exposure": --insecure-no-auth is what lets anybody send."""
    path = written(tmp_path, SAMPLE.replace("127.0.0.1:4317", "0.0.0.0:4317"))
    assert invoke("collect", "--config", path, "--validate").exit_code == 1
    assert invoke("collect", "--config", path, "--validate", "--insecure-no-auth").exit_code == 0


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    """Section 9: a path that names no file is said, and exits with 1."""
    answer = invoke("collect", "--config", str(tmp_path / "absent.yaml"), "--validate")
    assert answer.exit_code == 1
    assert "absent.yaml cannot be read" in answer.stderr
