"""Beside us: arize-phoenix, from PyPI and in an environment of its own, on the same spans.

No target: it is another product, and it answers before it stores. What is compared is how fast
spans are stored and, ten seconds after the first, what SIGTERM leaves of those acknowledged. Every
wait has an end; where it cannot be installed or started, the table says why. The environment is
kept in the folder for temporary files.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench import load
from tests.bench.report import Figure
from tests.support.fleet import alive, children

REQUESTS: Final = 40
INSTALL_SECONDS: Final = 900
START_SECONDS: Final = 300
SEND_SECONDS: Final = 30
WATCH_SECONDS: Final = 10  # from the first request to SIGTERM, unless all is stored before
STOP_SECONDS: Final = 60
REST_SECONDS: Final = 3  # after the start, before memory is looked at
HOME: Final = Path(tempfile.gettempdir()) / "flowmark-bench-phoenix"


class Subject(NamedTuple):
    """A server to be measured: how to start it, its address, where it stores how many spans."""

    command: list[str]
    environment: Mapping[str, str]
    address: str
    ready: str
    stored: Callable[[], int]


class Found(NamedTuple):
    """What was measured; seconds, bytes, spans."""

    start: float
    idle: int
    acknowledged: int
    durable: int
    seconds: float
    kept: int


def measure() -> list[Figure]:
    """Start, idle memory, spans made durable and what is lost at SIGTERM; theirs and ours."""
    try:
        program = _installed()
    except (OSError, subprocess.SubprocessError) as error:
        return [Figure("phoenix", 0, "spans/s", note=f"not installed: {error}"[:120])]
    figures: list[Figure] = []
    for name, made in (("phoenix", _phoenix), ("flowmark-otel", _ours)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = _measured(made(program, Path(folder)))
            except (AssertionError, OSError) as error:
                figures.append(Figure(name, 0, "spans/s", note=f"not measured: {error}"[:120]))
                continue
        lost = found.acknowledged - found.kept
        figures += [
            Figure(f"{name}, start", found.start, "s"),
            Figure(f"{name}, idle", found.idle / 1e6, "MB"),
            Figure(f"{name}, made durable", found.durable / found.seconds, "spans/s"),
            Figure(f"{name}, acknowledged", found.acknowledged, "spans"),
            Figure(f"{name}, of these lost at SIGTERM", lost, "spans"),
        ]
    return figures


def _installed() -> Path:
    """The program, installed if need be."""
    program = HOME / "bin" / "phoenix"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True, timeout=INSTALL_SECONDS)
        pip = [str(HOME / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "arize-phoenix"], check=True, timeout=INSTALL_SECONDS)
    return program


def _phoenix(program: Path, folder: Path) -> Subject:
    http_port, grpc_port = _port(), _port()
    environment = {
        "PYTHONPATH": "",  # its environment is its own
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(http_port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    return Subject(
        [str(program), "serve"],
        environment,
        f"127.0.0.1:{http_port}",
        "/healthz",
        lambda: _count(folder / "phoenix.db", "SELECT count(*) FROM spans"),
    )


def _ours(_program: Path, folder: Path) -> Subject:
    store, address = folder / "store.db", f"127.0.0.1:{_port()}"
    arguments = ["--db", f"sqlite:///{store}", "--http", address, "--grpc", "127.0.0.1:0"]
    return Subject(
        [sys.executable, "-m", "flowmark_otel.cli", "serve", *arguments, "--insecure-no-auth"],
        {},
        address,
        "/readyz",
        # A span is two events.
        lambda: _count(store, "SELECT count(*) / 2 FROM events"),
    )


def _measured(subject: Subject) -> Found:
    began = time.monotonic()
    process = subprocess.Popen(
        subject.command,
        env={**os.environ, **subject.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _answers(subject):
            assert process.poll() is None, f"it ended with {process.returncode}"
            assert time.monotonic() - began < START_SECONDS, "it did not start in time"
            time.sleep(0.1)
        start = time.monotonic() - began
        time.sleep(REST_SECONDS)
        idle = _memory(process.pid)
        began = time.monotonic()
        acknowledged = _send(subject, began + SEND_SECONDS)
        # It acknowledges faster than it stores: a rate needs a while.
        while (durable := subject.stored()) < acknowledged:
            if time.monotonic() - began > WATCH_SECONDS:
                break
            time.sleep(0.1)
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        msg = f"it did not end within {STOP_SECONDS} seconds of SIGTERM"
        raise AssertionError(msg) from None
    finally:
        if alive(process.pid):
            process.kill()
        process.wait()
    return Found(start, idle, acknowledged, durable, seconds, subject.stored())


def _send(subject: Subject, until: float) -> int:
    """Send all requests, or as many as there is time for; the spans that were acknowledged."""
    sent = 0
    with closing(http.client.HTTPConnection(subject.address, timeout=SEND_SECONDS)) as connection:
        for body in load.bodies(REQUESTS, 1.0, seed=11):
            if time.monotonic() > until:
                break
            headers = {"content-type": "application/x-protobuf"}
            connection.request("POST", "/v1/traces", body, headers)
            answer = connection.getresponse()
            answer.read()
            sent += load.BATCH if answer.status == http.client.OK else 0
    return sent


def _answers(subject: Subject) -> bool:
    try:
        with closing(http.client.HTTPConnection(subject.address, timeout=5)) as connection:
            connection.request("GET", subject.ready)
            return connection.getresponse().status == http.client.OK
    except OSError:
        return False


def _memory(process: int) -> int:
    """Resident bytes of a process and of what it started."""
    pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
    own = pages * os.sysconf("SC_PAGE_SIZE")
    return own + sum(_memory(child) for child in children(process))


def _count(database: Path, statement: str) -> int:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        connection.execute("PRAGMA busy_timeout = 10000")
        [found] = connection.execute(statement).fetchone()
    return int(found)


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
