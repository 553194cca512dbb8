"""``serve --workers``: several processes that answer alike on one store (D5)."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.wire import receipt
from tests.support.fleet import Fleet, alive, children, until
from tests.support.killing import (
    SPANS,
    TYPE,
    Ledger,
    batch,
    ids_of,
    over_grpc,
    over_http,
    sending,
)
from tests.support.otlp import traces_protobuf
from tests.support.postgres import Cluster
from tests.support.serving import run_cli

PROTOBUF = TYPE["content-type"]
LAST = 2
HERE = {"sec-fetch-site": "same-origin"}
EVENTS = (names.DELIVERY_METRIC.name.replace(".", "_")) + "_total"
REQUESTS = (names.REQUESTS_METRIC.name.replace(".", "_")) + "_total"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two workers with keys, on a store that is new."""
    with Fleet(tmp_path_factory.mktemp("fleet") / "s.db", "--workers", "2") as found:
        yield found


def post(fleet: Fleet, body: bytes) -> requests.Response:
    """One export over HTTP, on a connection of its own."""
    key = fleet.keys[0] if fleet.keys else ""
    headers = {"authorization": f"Bearer {key}", "content-type": PROTOBUF}
    return requests.post(f"{fleet.endpoint}/v1/traces", data=body, headers=headers, timeout=30)


def replaced(fleet: Fleet, gone: int) -> list[int]:
    """The workers, once one that was killed has been replaced."""
    os.kill(gone, signal.SIGKILL)
    until(lambda: any(line["worker"] == gone for line in fleet.said("worker_died")))
    died = len(fleet.said("worker_died"))
    until(lambda: len(fleet.said("worker_replaced")) == died)
    return fleet.workers()


def test_keys_are_printed_once_and_every_worker_takes_them(fleet: Fleet) -> None:
    """D5: the ready line, the keys and what is answered are those of one process."""
    assert len(fleet.keys) == 2
    assert fleet.lines[-1] == f"ready grpc={fleet.grpc} http={fleet.http}"
    assert len(fleet.workers()) == 2
    before = fleet.samples().get((EVENTS, ("", "stored")), 0)
    body = traces_protobuf(batch(random.Random(1)))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: post(fleet, body), range(40)))
    found = [receipt.decode(answer.content, "protobuf") for answer in answers]
    assert sorted(each.stored for each in found) == [0] * 39 + [2 * SPANS]
    assert {each.stored + each.duplicate for each in found} == {2 * SPANS}
    assert len({each.backend_id for each in found}) == 1
    page = fleet.samples()
    assert page[EVENTS, ("", "stored")] - before == 2 * SPANS
    assert page[EVENTS, ("", "duplicate")] >= 39 * 2 * SPANS


def test_a_session_holds_whichever_worker_answers(fleet: Fleet) -> None:
    """D5: signed in once, each worker in its turn shows the pages; signed out, none does."""
    with requests.Session() as browser:
        form = {"key": fleet.keys[1]}
        url = fleet.endpoint
        assert browser.post(f"{url}/login", form, headers=HERE, timeout=30).status_code == 200
        cookies = dict(browser.cookies)
        assert {_page(url, cookies) for _ in range(10)} == {200}
        for gone in fleet.workers():  # in the end neither of those that signed it in is left
            replaced(fleet, gone)
            assert until(partial(_page, url, cookies)) == 200
        browser.post(f"{url}/logout", headers=HERE, timeout=30)
    assert {_page(url, cookies) for _ in range(10)} == {303}


def _page(url: str, cookies: dict[str, str]) -> int:
    """The status of the runs page on a connection of its own; 0 where that met a dead worker."""
    try:
        answer = requests.get(
            f"{url}/p/default/runs", cookies=cookies, timeout=30, allow_redirects=False
        )
    except requests.ConnectionError:
        return 0
    return answer.status_code


def test_a_dead_worker_is_replaced_and_said_so(fleet: Fleet) -> None:
    """Fault row 1: the log names who died and of what; what was counted stays counted."""
    gone, stays = fleet.workers()
    post(fleet, traces_protobuf(batch(random.Random(2))))
    before = fleet.samples()
    assert stays in replaced(fleet, gone)
    [said] = [line for line in fleet.said("worker_died") if line["worker"] == gone]
    assert (said["level"], said["reason"]) == ("error", "signal SIGKILL")
    after = fleet.samples()
    deaths = ("flowmark_server_worker_deaths_total", ())
    assert after[deaths] == before[deaths] + 1
    assert after[EVENTS, ("", "stored")] == before[EVENTS, ("", "stored")]
    assert after["flowmark_server_workers", ()] == 2
    assert after["flowmark_server_in_flight_bytes", ()] == 0


def test_a_taken_address_is_named_before_any_worker_starts(fleet: Fleet, tmp_path: Path) -> None:
    """Contract, section 7: an address that other workers share is as taken as any other."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        store = ("--db", f"sqlite:///{tmp_path}/s.db", "--workers", "2")
        answer = run_cli("serve", *store, "--grpc", address, "--http", fleet.http)
    assert answer.returncode == 2
    assert f"grpc {address} cannot be bound (Address already in use)" in answer.stderr
    assert f"http {fleet.http} cannot be bound (Address already in use)" in answer.stderr


def test_a_signal_drains_all_workers(tmp_path: Path) -> None:
    """Fault row 26, I1: SIGTERM under traffic ends all with 0; what was acknowledged is there."""
    ledger = Ledger()
    ledger.expect(20)
    with Fleet(tmp_path / "s.db", "--workers", "2", "--insecure-no-auth") as fleet:
        threads = _traffic(fleet, ledger)
        assert ledger.enough.wait(60)
        workers = fleet.workers()
        assert fleet.stop() == 0
        _join(threads)
        assert not any(alive(each) for each in workers)
    _check(tmp_path / "s.db", ledger)


def test_workers_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    """Fault row 1: SIGKILL of the supervisor ends the workers; the same addresses serve again."""
    store = tmp_path / "s.db"
    with Fleet(store, "--workers", "2", "--insecure-no-auth") as fleet:
        workers = fleet.workers()
        fleet.process.kill()
        until(lambda: not any(alive(each) for each in workers))
        again = ("--workers", "2", "--insecure-no-auth", "--grpc", fleet.grpc, "--http", fleet.http)
        with Fleet(store, *again) as second:
            assert (second.grpc, second.http) == (fleet.grpc, fleet.http)
            assert second.asked("/readyz").text == "ready\n"


@pytest.mark.timeout(120)
def test_nothing_acknowledged_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    """A8, D5 (row 1): workers killed under traffic, then all at once; I1 and I2 hold."""
    ledger = Ledger()
    chance = random.Random(4)
    store = tmp_path / "s.db"
    with Fleet(store, "--workers", "2", "--insecure-no-auth") as fleet:
        for turn in range(LAST + 1):
            ledger.expect(chance.randrange(4, 30))
            threads = _traffic(fleet, ledger, turn)
            assert ledger.enough.wait(60)
            workers = fleet.workers()
            if turn == LAST:
                for each in (fleet.process.pid, *workers):
                    os.kill(each, signal.SIGKILL)
            else:
                replaced(fleet, chance.choice(workers))
                ledger.stopping.set()
            _join(threads)
            ledger.stopping.clear()
    _check(store, ledger)


def _traffic(fleet: Fleet, ledger: Ledger, turn: int = 0) -> list[threading.Thread]:
    doors = [partial(over_http, fleet.http), partial(over_grpc, fleet.grpc)] * 2
    threads = [
        threading.Thread(target=sending, args=(ledger, door, 100 * turn + number))
        for number, door in enumerate(doors)
    ]
    for thread in threads:
        thread.start()
    return threads


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def _check(store: Path, ledger: Ledger) -> None:
    """What was acknowledged is stored, and what was not answered can be sent again (I1, I2)."""
    with Fleet(store, "--insecure-no-auth") as fleet:
        assert ledger.acknowledged
        assert len(ledger.acknowledged) == len(set(ledger.acknowledged))
        for start in range(0, len(ledger.acknowledged), 1000):
            asked = {"eventIds": ledger.acknowledged[start : start + 1000]}
            url = f"{fleet.endpoint}/v1/flowmark/status"
            events = requests.post(url, json=asked, timeout=30).json()["events"]
            assert {event["state"] for event in events} == {"stored"}
        for spans in ledger.unanswered:
            found = receipt.decode(post(fleet, traces_protobuf(spans)).content, "protobuf")
            assert found.stored + found.duplicate == len(ids_of(spans))


def test_a_refused_request_is_no_reason_to_mistrust(fleet: Fleet) -> None:
    """Section 4: bad input at any worker is 400 and counted so; the workers stay."""
    before = fleet.workers()
    answers = [post(fleet, b"\xff\xff").status_code for _ in range(8)]
    assert set(answers) == {http.client.BAD_REQUEST}
    assert fleet.samples()[REQUESTS, ("traces", "refused", "http")] >= 8
    assert fleet.workers() == before


STUCK = """
import sys
from flowmark_otel.config import ServeOptions
from flowmark_otel.server import running, workers

workers.STOP_SECONDS = workers.KILL_SECONDS = 0.1
options = ServeOptions(
    db=sys.argv[1], grpc="127.0.0.1:0", http="127.0.0.1:0", insecure_no_auth=True, workers=2
)
running.run(options, lambda started: None)
"""


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """Fault row 26, I7: after its bound a stop ends the workers that hang, and exits with 1."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, f"sqlite:///{tmp_path / 's.db'}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    workers = children(process.pid)
    os.kill(workers[0], signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    assert not any(alive(each) for each in workers)
    process.stdout.close()


def test_workers_that_cannot_start_are_tried_again_ever_less_eagerly(tmp_path: Path) -> None:
    """Fault row 1: where the store is gone the log says why, and a worker comes when it is back."""
    store = tmp_path / "s.db"
    with Fleet(store, "--workers", "2", "--insecure-no-auth") as fleet:
        store.rename(tmp_path / "away.db")
        store.mkdir()
        os.kill(fleet.workers()[0], signal.SIGKILL)
        said = until(lambda: fleet.said("worker_not_started"))
        assert str(store) in said[0]["reason"]
        assert len(fleet.workers()) <= 2
        store.rmdir()
        (tmp_path / "away.db").rename(store)
        until(lambda: fleet.said("worker_replaced"))
        assert fleet.asked("/readyz").text == "ready\n"


@pytest.mark.needs("psql")
def test_workers_on_postgresql_answer_alike(postgres: Cluster) -> None:
    """D5: one set of keys, one judgement and one session, on a database too; ready and measured."""
    with Fleet(postgres.database(), "--workers", "2") as fleet:
        assert len(fleet.keys) == 2
        body = traces_protobuf(batch(random.Random(1)))
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: post(fleet, body), range(20)))
        found = [receipt.decode(answer.content, "protobuf") for answer in answers]
        assert sum(each.stored for each in found) == 2 * SPANS
        assert {each.stored + each.duplicate for each in found} == {2 * SPANS}
        with requests.Session() as browser:
            form = {"key": fleet.keys[1]}
            browser.post(f"{fleet.endpoint}/login", form, headers=HERE, timeout=30)
            assert {_page(fleet.endpoint, dict(browser.cookies)) for _ in range(8)} == {200}
        page = fleet.samples()
        assert page[EVENTS, ("", "stored")] == 2 * SPANS
        assert page["flowmark_store_size_bytes", ()] > 0
        assert fleet.asked("/readyz", metrics=True).text == "ready\n"
        assert list(fleet.log()) == []
    with Fleet(fleet.url, "--workers", "2") as again:
        assert again.keys == []
