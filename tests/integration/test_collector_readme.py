"""``collector/README.md``, followed step by step with real processes (issue 9)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import requests

from flowmark_otel import names
from tests.support.payloads import JSON, as_json, request, span
from tests.support.serving import CLI, Serving, run_cli

COLLECTOR: Final = Path(__file__).resolve().parents[2] / "collector"
README: Final = (COLLECTOR / "README.md").read_text("utf-8")
FILE: Final = (COLLECTOR / "flowmark-otel-collect.yaml").read_text("utf-8")


class Steps(NamedTuple):
    """The backend and the collector of the README, on ports of their own.

    ``http`` and ``telemetry`` are ``HOST:PORT`` of the collector, ``folder`` is where it runs.
    """

    backend: Serving
    http: str
    telemetry: str
    folder: Path

    def status(self) -> Any:
        """What /status says to programs."""
        return requests.get(f"http://{self.telemetry}/status", timeout=20).json()


@contextmanager
def following(backend: Serving, folder: Path) -> Iterator[tuple[str, str]]:
    """``collect`` with the file as it is, but for its ports; where it listens."""
    text = re.sub(r"127\.0\.0\.1:(4317|4318|8888)", "127.0.0.1:0", FILE)
    logs = 'telemetry: {logs: {level: info}, metrics: {address: "127.0.0.1:0"}}'
    text = text.replace('telemetry: {metrics: {address: "127.0.0.1:0"}}', logs)
    file = folder / "flowmark-otel-collect.yaml"
    file.write_text(text, "utf-8")
    keys = {"FLOWMARK_API_KEY": backend.keys[0], "FLOWMARK_BACKEND": backend.endpoint}
    command = [*CLI, "collect", "--config", str(file)]
    validated = run_cli(*command[3:], "--validate", env=os.environ | keys)
    assert validated.returncode == 0, validated.stderr
    log = folder / "collect.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | keys,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            ready = re.fullmatch(r"ready grpc=\S+ http=(\S+)\n", process.stdout.readline())
            assert ready, log.read_text("utf-8")
            lines = map(json.loads, log.read_text("utf-8").splitlines())
            telemetry = next(line["telemetry"] for line in lines if line["event"] == "collecting")
            yield ready[1], telemetry
        finally:
            process.terminate()
            assert process.wait(30) == 0, log.read_text("utf-8")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    """Everything that the README starts."""
    folder = tmp_path_factory.mktemp("collector")
    with (
        Serving(folder / "store.db") as backend,
        following(backend, folder) as (http, telemetry),
    ):
        yield Steps(backend, http, telemetry, folder)


def test_the_first_steps_record_two_attempts(steps: Steps) -> None:
    """Issue 9: a reader of the README has attempts in the backend, through the collector."""
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{steps.http}"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | endpoint,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    key = steps.backend.keys[1]
    (run,) = steps.backend.get("/runs", key, run_id="2026-03-01")["items"]
    (group,) = steps.backend.get(f"/runs/{run['key']}/attempts", key)["items"]
    assert [attempt["status"] for attempt in group["attempts"]] == ["failed", "completed"]
    ready = requests.get(f"http://{steps.telemetry}/readyz", timeout=20)
    assert (ready.status_code, ready.text) == (200, "ready\n")
    (exporter,) = (each for each in steps.status()["nodes"] if each["id"] == "flowmark")
    assert (exporter["state"], exporter["forwarded"], exporter["failed_messages"]) == ("ok", 4, 0)


def test_what_breaks_a_rule_is_a_letter_that_replay_reads(steps: Steps) -> None:
    """C6, C7: the collector's dead letter is what replay takes, and its rule is named again."""
    bad = {names.ATTEMPT_GROUP_ID: " ", names.ATTEMPT_NUMBER: 1}
    answer = requests.post(
        f"http://{steps.http}/v1/traces",
        data=as_json(request([span(7, bad), span(8, {**bad, names.ATTEMPT_GROUP_ID: "g"})])),
        headers={"content-type": JSON},
        timeout=20,
    )
    assert answer.status_code == 200
    assert (answer.json()["stored"], answer.json()["rejected"]) == ("2", "2")
    (line,) = (steps.folder / "dead-letters.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)[names.FAILURE_NODE] == "flowmark/fold"
    again = run_cli(
        *("replay", "--json", "--endpoint", steps.backend.endpoint),
        *("--api-key", steps.backend.keys[0], str(steps.folder / "dead-letters.jsonl")),
    )
    found = json.loads(again.stdout)
    assert (again.returncode, found["letters"], found["left"]) == (1, 1, [])
    assert [each["code"] for each in found["failed"][0]["rejections"]] == ["invalid", "invalid"]
    pipelines = {each["id"]: each for each in steps.status()["pipelines"]}
    nodes = {each["id"]: each for each in steps.status()["nodes"]}
    assert pipelines["traces"]["failed"] == 0
    assert nodes["flowmark/fold"]["letters"] == 2
    assert nodes["flowmark/fold"]["last_failure"]["exception"] == "InvalidEnvelope"
