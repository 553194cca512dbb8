"""``doctor``: whether a backend is reachable, lets us in, and acknowledges (A21, A22)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import cli, invoke
from tests.support.server import options, running
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend with keys, on a store that is new."""
    with Serving(tmp_path_factory.mktemp("doctor") / "s.db") as found:
        yield found


def test_doctor_finds_a_backend_well(serving: Serving) -> None:
    """A22: doctor says that both transports answer, the key may send, the receipt comes back."""
    where = ("--endpoint", serving.endpoint, "--grpc-endpoint", serving.grpc)
    found = cli("doctor", *where, "--api-key", serving.keys[0])
    states = {finding["name"]: finding["state"] for finding in found["findings"]}
    assert states == dict.fromkeys(
        ("http", "clock", "authorisation", "acknowledgement", "grpc"), "ok"
    )
    assert found["versions"]["grpcio"]


def test_doctor_says_no(serving: Serving) -> None:
    """A22: a read key, no key and a dead address are told apart, each with exit code 1."""
    where = ("--endpoint", serving.endpoint, "--grpc-endpoint", serving.grpc)
    reading = invoke("doctor", *where, "--api-key", serving.keys[1])
    assert reading.exit_code == 1
    assert reading.stdout.count("use an ingest key") == 2
    nobody = invoke("doctor", *where)
    assert nobody.exit_code == 1
    assert nobody.stdout.count("to an ingest key") == 2
    dead = invoke("doctor", "--endpoint", "http://127.0.0.1:9", "--grpc-endpoint", "127.0.0.1:9")
    assert dead.exit_code == 1
    assert "cannot be reached" in dead.stdout


def test_doctor_says_what_it_knows(tmp_path: Path) -> None:
    """D5: without a key nothing is said of a key, and a guessed address is called one."""
    with running(options(tmp_path / "s.db", insecure_no_auth=True)) as backend:
        guessing = invoke("doctor", "--endpoint", f"http://{backend.http}", "--json")
        keyed = invoke("doctor", "--endpoint", f"http://{backend.http}", "--api-key", "fmk_a_b\n")
        where = ("--grpc-endpoint", backend.grpc)
        named = cli("doctor", "--endpoint", f"http://{backend.http}", *where)
    says = {each["name"]: each["says"] for each in json.loads(guessing.stdout)["findings"]}
    assert guessing.exit_code == 1
    assert says["authorisation"] == "no key was given, and none is asked for"
    assert says["grpc"].endswith("name the right one with --grpc-endpoint")
    assert "the key may send" in keyed.stdout
    assert "--grpc-endpoint" not in json.dumps(named)


def test_doctor_names_a_backend_that_does_not_acknowledge(tmp_path: Path) -> None:
    """A21: a backend with the capability switched off is found out, over both transports."""
    arguments = ("--insecure-no-auth", "--without", "attempts-v1")
    with Serving(tmp_path / "s.db", *arguments) as older:
        answer = invoke(
            "doctor", "--endpoint", older.endpoint, "--grpc-endpoint", older.grpc, "--json"
        )
    assert answer.exit_code == 1
    found = {each["name"]: each["state"] for each in json.loads(answer.stdout)["findings"]}
    assert found["acknowledgement"] == found["grpc"] == "failed"
