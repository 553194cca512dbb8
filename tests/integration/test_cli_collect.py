"""``collect --validate``: what would be built, or everything that is wrong with the file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.collector_files import ABSENT, KEY, SAMPLE, changed
from tests.support.commands import invoke
from tests.support.serving import run_cli

EXTRAS = ("server", "collector")
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import flowmark_otel.collector.run
from flowmark_otel.cli import main
main()
"""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that the sample names."""
    monkeypatch.setenv("FLOWMARK_API_KEY", KEY)


def written(tmp_path: Path, text: str) -> str:
    """A configuration file of that text."""
    path = tmp_path / "collect.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def extra(name: str) -> str:
    """The packages of an extra, as pyproject.toml lists them."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    (found,) = re.findall(rf"^{name} = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    return str(found)


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


@pytest.mark.parametrize("command", ["collect", "replay"])
def test_the_collector_extra_is_enough(command: str, tmp_path: Path) -> None:
    """Architecture, dependencies: collect and replay need nothing that only the backend needs."""
    wanted = {
        name: set(re.findall(r'^    "([\w-]+)', extra(name), re.MULTILINE)) for name in EXTRAS
    }
    missing = {each.replace("-", "_") for each in wanted["server"] - wanted["collector"]}
    assert "sqlalchemy" in missing
    letters = tmp_path / "letters.jsonl"
    letters.touch()
    arguments = {
        "collect": ("--config", written(tmp_path, SAMPLE), "--validate"),
        "replay": (str(letters),),
    }
    program = WITHOUT.format(missing=missing | {"psycopg"})
    done = subprocess.run(
        [sys.executable, "-c", program, command, *arguments[command]],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_cannot_be_started_is_said_with_its_place(tmp_path: Path) -> None:
    """Section 9: what only the start can find out is a fault of the file too, exit 1."""
    text = changed(
        {
            "exporters>file/letters>path": str(tmp_path / "nowhere" / "letters.jsonl"),
            "receivers>otlp>protocols": {"http": {"endpoint": "127.0.0.1:0"}},
            "service>telemetry": ABSENT,
        }
    )
    done = run_cli("collect", "--config", written(tmp_path, text))
    assert done.returncode == 1
    said = "  exporters.file/letters: path: "
    assert [line[: len(said)] for line in done.stderr.splitlines() if line[0] == " "] == [said]
