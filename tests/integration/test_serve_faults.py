"""``serve`` on a disk that is full, fails or is damaged, and on a store that others hold."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
import pytest
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc

from flowmark_otel.wire import receipt
from tests.support.disks import empty, failing, fill, may_mount, small_disk
from tests.support.fleet import Fleet, until
from tests.support.killing import SPANS, TYPE, batch, ids_of
from tests.support.otlp import traces_protobuf
from tests.support.serving import run_cli

PROTOBUF = TYPE["content-type"]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
OPEN = "--insecure-no-auth"
PAGE = 4096


def send(fleet: Fleet, seed: int) -> requests.Response:
    """One request of attempts; the same seed gives the same events."""
    return fleet.post("traces", traces_protobuf(batch(random.Random(seed))), PROTOBUF)


def states(fleet: Fleet, seed: int) -> set[str]:
    """What became of the events of a seed."""
    asked = {"eventIds": ids_of(batch(random.Random(seed)))}
    answer = requests.post(f"{fleet.endpoint}/v1/flowmark/status", json=asked, timeout=30)
    assert answer.status_code == 200, answer.text
    return {event["state"] for event in answer.json()["events"]}


def health(fleet: Fleet) -> int:
    """What the gRPC health service says."""
    with grpc.insecure_channel(fleet.grpc) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return int(stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=30).status)


def refused(answer: requests.Response) -> str:
    """The text of a 503 that says when to come back; fails for any other answer."""
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    return answer.text


def test_a_full_disk_is_503_reading_goes_on_and_space_heals_it(tmp_path: Path) -> None:
    """Fault row 4: never acknowledged, never 500; not ready, and ready by itself again."""
    log = tmp_path / "log"
    if may_mount(tmp_path / "tried"):
        with small_disk(tmp_path / "disk", 4096) as disk:
            _fills_up(log, disk / "s.db", lambda _: fill(disk), lambda _: empty(disk))
    else:
        store = tmp_path / "s.db"
        journal = tmp_path / "s.db-wal"
        _fills_up(
            log,
            store,
            lambda fleet: _limit_files(fleet, journal.stat().st_size),
            lambda fleet: _limit_files(fleet, resource.RLIM_INFINITY),
        )


def _limit_files(fleet: Fleet, size: int) -> None:
    """No file of the server may grow beyond so many bytes; -1 for no limit."""
    _, hard = resource.prlimit(fleet.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(fleet.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def _fills_up(
    log: Path, store: Path, spoil: Callable[[Fleet], None], heal: Callable[[Fleet], None]
) -> None:
    with Fleet(store, OPEN, errors=log) as fleet:
        assert send(fleet, 1).status_code == 200
        spoil(fleet)
        lost = 2
        while send(fleet, lost).status_code == 200:  # until the log has no room of its own left
            lost += 1
        refused(send(fleet, lost))
        assert states(fleet, 1) == {"stored"}
        assert states(fleet, lost) == {"unknown"}
        assert fleet.get("/runs")["items"]
        assert fleet.asked("/runs").status_code == 200
        assert fleet.asked("/healthz").text == "ok\n"
        reason = until(lambda: _unready(fleet))
        assert reason == "not ready: the store cannot be written"
        assert fleet.asked("/readyz", metrics=True).text.startswith("not ready: ")
        assert health(fleet) == NOT_SERVING
        assert fleet.samples()["flowmark_server_ready", ()] == 0
        heal(fleet)
        until(lambda: fleet.asked("/readyz").text == "ready\n")
        found = receipt.decode(send(fleet, lost).content, "protobuf")
        assert (found.stored, found.received) == (2 * SPANS, 2 * SPANS)
        assert health(fleet) == SERVING
        page = fleet.samples()
        assert page["flowmark_delivery_events_total", ("unavailable", "unacknowledged")] > 0
        assert page["flowmark_server_requests_total", ("traces", "unavailable", "http")] > 0
        [said] = fleet.said("store_unavailable")
        assert said["level"] == "error"
    with Fleet(store, OPEN, errors=log) as fleet:
        for seed in range(1, lost + 1):
            assert states(fleet, seed) == {"stored"}


def _unready(fleet: Fleet) -> str:
    """What ``/readyz`` says is wrong, empty where nothing is."""
    answer = fleet.asked("/readyz")
    return "" if answer.status_code == 200 else refused(answer).strip()


@pytest.mark.needs("fiu-run", "fiu-ctrl")
@pytest.mark.parametrize("call", ["sync/fdatasync", "rw/pwrite"])
def test_what_does_not_reach_the_disk_is_never_acknowledged(tmp_path: Path, call: str) -> None:
    """Fault row 5: while fsync or write fails every answer is 503; reading and healing as row 4."""
    control = tmp_path / "control"
    under = ("fiu-run", "-x", "-f", str(control))
    with Fleet(tmp_path / "s.db", OPEN, under=under) as fleet:
        assert send(fleet, 1).status_code == 200
        with failing(call, fleet.process.pid, control):
            for seed in (2, 3):
                assert "disk I/O error" in refused(send(fleet, seed))
            assert states(fleet, 1) == {"stored"}
            assert states(fleet, 2) == {"unknown"}
            assert until(lambda: _unready(fleet)) == "not ready: the store cannot be written"
            assert health(fleet) == NOT_SERVING
        until(lambda: fleet.asked("/readyz").text == "ready\n")
        found = receipt.decode(send(fleet, 2).content, "protobuf")
        assert found.stored + found.duplicate == found.received == 2 * SPANS
        fleet.process.kill()
    with Fleet(tmp_path / "s.db", OPEN) as fleet:
        assert states(fleet, 1) == states(fleet, 2) == {"stored"}


def test_a_store_that_another_process_holds_is_503_after_a_bounded_wait(tmp_path: Path) -> None:
    """Fault row 7: the lock of another process is waited for, not for ever; reading goes on."""
    with Fleet(tmp_path / "s.db", OPEN) as fleet:
        assert send(fleet, 1).status_code == 200
        with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            said = refused(send(fleet, 2))  # by whichever bound ends first on this machine
            assert "locked" in said or "did not answer in time" in said
            assert states(fleet, 1) == {"stored"}
            assert fleet.get("/runs")["items"]
        assert send(fleet, 2).status_code == 200
        until(lambda: fleet.asked("/readyz").text == "ready\n")
        assert fleet.said("store_unavailable")


def damaged(store: Path, first: int, count: int) -> None:
    """Overwrite pages of a store, counted from 0, with what is no page."""
    with store.open("r+b") as file:
        file.seek(first * PAGE)
        file.write(b"\xa5" * PAGE * count)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with some evidence, as a file."""
    store = tmp_path_factory.mktemp("sound") / "s.db"
    with Fleet(store, OPEN) as fleet:
        for seed in range(20):
            assert send(fleet, seed).status_code == 200
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store.read_bytes()


@pytest.mark.parametrize(("where", "workers"), [("head", "1"), ("tail", "1"), ("middle", "2")])
def test_a_damaged_store_is_refused_with_what_to_do(
    tmp_path: Path, sound: bytes, where: str, workers: str
) -> None:
    """Fault row 27: damage found at the start is named, with the mend; nothing is served."""
    store = tmp_path / "s.db"
    store.write_bytes(sound)
    pages = len(sound) // PAGE
    if where == "tail":
        os.truncate(store, (pages - 8) * PAGE)
    else:
        damaged(store, 0 if where == "head" else pages // 2, 4)
    before = store.read_bytes()
    ports = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--workers", workers)
    answer = run_cli("serve", "--db", f"sqlite:///{store}", OPEN, *ports)
    assert answer.returncode == 2
    assert answer.stdout == ""
    words = " ".join(answer.stderr.split())
    assert f"{store} is damaged: " in words
    assert "Restore a backup" in words
    assert "Traceback" not in answer.stderr
    assert store.read_bytes() == before


def test_damage_while_it_runs_is_503_and_said(tmp_path: Path, sound: bytes) -> None:
    """Fault row 27: a page that goes bad under a server is 503 with its reason, never 500."""
    store = tmp_path / "s.db"
    store.write_bytes(sound)
    with Fleet(store, OPEN) as fleet:
        damaged(store, 1, len(sound) // PAGE - 1)
        for seed in range(4):
            refused(send(fleet, seed))
        assert fleet.asked("/api/v1/runs").status_code == 503
        assert fleet.asked("/healthz").status_code == 200
        assert "malformed" in fleet.said("store_unavailable")[0]["reason"]
