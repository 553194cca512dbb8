"""The collector on a spool: what it says it has it keeps, whoever is killed, full or broken."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.collector.exporters.custody import Custody
from flowmark_otel.collector.meter import NodeState
from flowmark_otel.deliver.spool import spool as spools
from tests.support.answers import Reply, acknowledging, answering, stock
from tests.support.chaos import Chaos, chaos
from tests.support.collecting import (
    Collecting,
    Process,
    capable,
    collecting,
    configuration,
    node,
    process,
)
from tests.support.delivering import Under, attempts, delivering, ids
from tests.support.fleet import until
from tests.support.payloads import JSON, as_json, request, span
from tests.support.serving import Asking, Serving
from tests.support.spooling import segments

pytestmark = pytest.mark.timeout(180)  # up to six processes begin one after the other

NOWHERE: Final = "127.0.0.1:9"


def post(http: str, first: int, last: int, *, large: bool = False) -> requests.Response:
    """The answer to attempts of these numbers; ``large``: of some kilobytes each."""
    more = {f"{names.RUN_RESULT_PREFIX}r{n}": "x" * 1000 for n in range(8)} if large else {}
    spans = [
        span(
            number,
            {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: number, **more},
        )
        for number in range(first, last + 1)
    ]
    return Asking(http).post("traces", as_json(request(spans)), JSON)


def stored(store: Path) -> set[bytes]:
    """The span ids of attempts of which both events are stored."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        rows = connection.execute("select span_id, count(*) from events group by span_id")
        return {row[0] for row in rows if row[1] == 2}


def held(collector: Process | Collecting, numbers: range) -> int:
    """How many of the starts of these attempts are in custody."""
    asked = [f"op-{n:032x}-{n:016x}-start" for n in numbers]
    answer = requests.post(
        f"http://{collector.http}/v1/flowmark/status", json={"eventIds": asked}, timeout=20
    )
    return sum(each["state"] == names.CUSTODY for each in answer.json()["events"])


@contextmanager
def away(store: Path, folder: Path) -> Iterator[tuple[Chaos, Process, dict[str, Any]]]:
    """A collector whose backend was there when it started, and is gone."""
    with chaos(NOWHERE) as proxy:
        file = configuration(f"http://{proxy.address}", spool=folder / "spool")
        with Serving(store, "--insecure-no-auth") as backend:
            proxy.redirect(backend.http)
            with process(file, folder) as collector:
                backend.process.kill()
                backend.process.wait(20)
                proxy.redirect(NOWHERE)
                yield proxy, collector, file


def test_what_was_in_custody_survives_kills(tmp_path: Path) -> None:
    """Row 2, I1, I8: killed with a full spool, and again while it recovers: all of it is stored.

    Custody is told while the backend is away; a restart delivers, whatever was delivered before.
    """
    store = tmp_path / "s.db"
    total = 600
    with away(store, tmp_path) as (proxy, collector, file):
        for first in range(1, total, 50):
            told = post(collector.http, first, first + 49).json()
            assert (told["custody"], told["received"]) == ("100", "100")
        assert held(collector, range(1, 11)) == 10
        collector.kill()
        with Serving(store, "--insecure-no-auth") as backend:
            for _ in range(2):
                # It delivers at once what was left; it is killed after some of that, or all.
                proxy.redirect(backend.http)
                with process(file, tmp_path) as again:
                    seen = len(stored(store))
                    until(lambda seen=seen: len(stored(store)) > min(seen, total - 1))  # type: ignore[misc]
                    again.kill()
            with process(file, tmp_path):
                until(lambda: len(stored(store)) == total)
                until(lambda: not segments(tmp_path / "spool"))


def test_a_torn_tail_costs_only_itself(tmp_path: Path) -> None:
    """Row 27: a tail that a crash tore is set aside, all before it delivered, and that is said."""
    store = tmp_path / "s.db"
    with away(store, tmp_path) as (proxy, collector, file):
        assert post(collector.http, 1, 20).json()["custody"] == "40"
        collector.kill()
        (segment,) = segments(tmp_path / "spool")
        with segment.open("ab") as tail:
            tail.write(b"torn by a crash")
        with Serving(store, "--insecure-no-auth") as backend:
            proxy.redirect(backend.http)
            with process(file, tmp_path):
                until(lambda: len(stored(store)) == 20)
                until(lambda: "spool_damaged" in (tmp_path / "collector.log").read_text())
    assert list((tmp_path / "spool" / "quarantine").glob("*.torn"))


@pytest.mark.parametrize("on_spool", [True, False])
def test_an_orderly_end_under_load_loses_nothing(tmp_path: Path, on_spool: bool) -> None:  # noqa: FBT001
    """Row 26: SIGTERM with traffic: whatever was answered well is stored, or in the spool."""
    store = tmp_path / "s.db"
    answered: list[int] = []

    def send(http: str, numbers: range) -> None:
        for number in numbers:
            try:
                answer = post(http, number, number)
            except requests.RequestException:
                return
            if answer.status_code == requests.codes.ok:
                answered.append(number)

    with Serving(store, "--insecure-no-auth") as backend:
        spool = tmp_path / "spool" if on_spool else None
        file = configuration(backend.endpoint, spool=spool)
        with ThreadPoolExecutor(4) as senders:
            with process(file, tmp_path) as collector:
                sending = [
                    senders.submit(send, collector.http, range(k * 10_000 + 1, k * 10_000 + 2000))
                    for k in range(4)
                ]
                until(lambda: len(answered) > 60)
                assert collector.stop() == 0
            for each in sending:
                each.result(30)
        if on_spool:
            with process(file, tmp_path):
                until(lambda: not segments(tmp_path / "spool"))
        known = {int.from_bytes(each, "big") for each in stored(store)}
    assert set(answered) <= known


@pytest.mark.parametrize("on_spool", [False, True])
def test_killed_under_load_the_ledger_holds(tmp_path: Path, on_spool: bool) -> None:  # noqa: FBT001
    """Row 2, I1 to I4: a collector is killed while an SDK sends: what it counts is what is stored.

    End to end nothing but stored and duplicate is counted; on a spool custody, and then all of it
    is stored.
    """
    store = tmp_path / "s.db"
    with chaos(NOWHERE) as proxy, Serving(store, "--insecure-no-auth") as backend:
        file = configuration(backend.endpoint, spool=tmp_path / "spool" if on_spool else None)
        with delivering(f"http://{proxy.address}", timeout=5000) as delivery:
            sent = 0
            for _ in range(2):
                with process(file, tmp_path) as collector:
                    proxy.redirect(collector.http)
                    for _ in range(30):
                        delivery.record(*attempts(sent + 1, sent + 10))
                        sent += 10
                    until(partial(is_under_way, delivery, sent))
                    collector.kill()
                    delivery.record(*attempts(sent + 1, sent + 10))
                    sent += 10
            with process(file, tmp_path) as collector:
                proxy.redirect(collector.http)
                delivery.flush(40)
                if on_spool:
                    until(lambda: len(stored(store)) == delivery.recorded() // 2)
                counts = delivered(delivery)
                assert sum(counts.values()) == delivery.recorded() == 2 * sent
                allowed = {names.CUSTODY} if on_spool else {names.STORED, names.DUPLICATE}
                assert set(counts) <= allowed
        assert len(stored(store)) == sent


def is_under_way(delivery: Under, events: int) -> bool:
    """Whether more events than that are acknowledged."""
    return sum(delivered(delivery).values()) > events


def delivered(delivery: Under) -> dict[str, int]:
    """The events that were acknowledged, by state."""
    states = (names.STORED, names.DUPLICATE, names.CUSTODY)
    found = delivery.counts()
    return {state: found[state, ""] for state in states if (state, "") in found}


def test_a_full_spool_refuses_and_takes_again_once_it_drained(tmp_path: Path) -> None:
    """A24, I8: full is 503 with a time to wait, never a loss; after healing it takes again."""
    with answering(capable(acknowledging())) as server:
        file = configuration(server.endpoint, spool=tmp_path / "spool")
        file["exporters"]["flowmark"]["spool"]["max_bytes"] = 1 << 20
        with collecting(file) as found:
            server.script(capable(Reply(503)))
            taken = 0
            while (
                answer := post(found.http, taken + 1, taken + 20, large=True)
            ).status_code == 200:
                taken += 20
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert taken > 20
            assert node(found, "flowmark").refused[names.REASON_QUEUE_FULL] == 80
            assert held(found, range(taken - 19, taken + 1)) == 20
            server.script(capable(acknowledging()))
            assert until(
                lambda: post(found.http, taken + 1, taken + 20, large=True).status_code == 200
            )
            until(lambda: not held(found, range(1, taken + 21)))
            reading = node(found, "flowmark")
            assert reading.spool is not None
    delivered = {each for asked in server.exports for each in asked.event_ids}
    assert len(delivered) == 4 * (taken + 20)  # each span is a run and an operation


def test_the_counts_add_up_to_what_was_taken(tmp_path: Path) -> None:
    """I4: every event taken is stored, a duplicate, refused or still spooled; the sum is exact."""
    with (
        Serving(tmp_path / "s.db", "--insecure-no-auth") as backend,
        collecting(configuration(backend.endpoint, spool=tmp_path / "spool")) as found,
    ):
        custody = custody_of(found)
        post(found.http, 1, 10)
        post(found.http, 1, 10)
        with delivering(f"http://{found.http}") as delivery:
            delivery.record(*attempts(101, 105))
            delivery.flush(20)
            assert delivery.counts() == {(names.CUSTODY, ""): 10}
        until(lambda: not custody.counts()[1].get((names.SPOOLED, "")))
        recorded, counts = custody.counts()
        assert recorded == sum(counts.values()) == 50
        assert counts == {(names.STORED, ""): 30, (names.DUPLICATE, ""): 20}


def test_custody_passes_a_chain(tmp_path: Path) -> None:
    """A24: behind a collector that answers end to end custody is told as custody, and by whom.

    One that has a spool itself is done with what the next one took.
    """
    with (
        Serving(tmp_path / "s.db", "--insecure-no-auth") as backend,
        collecting(configuration(backend.endpoint, spool=tmp_path / "near")) as near,
        collecting(configuration(f"http://{near.http}")) as passing,
        collecting(
            configuration(f"http://{near.grpc}", spool=tmp_path / "far", protocol="grpc")
        ) as keeping,
    ):
        assert backend_id(passing) == backend_id(near)
        assert backend_id(keeping) != backend_id(near)
        told = post(passing.http, 1, 3).json()
        assert (told["custody"], told["backendId"]) == ("6", backend_id(near))
        assert post(keeping.http, 4, 6).json()["custody"] == "6"
        until(lambda: len(stored(tmp_path / "s.db")) == 6)
        custody = custody_of(keeping)
        until(lambda: custody.counts()[1] == {(names.CUSTODY, ""): 6})


def custody_of(found: Collecting) -> Custody:
    """The custody behind a collector's exporter."""
    made = [each for each in Custodies.made if each.custodian == backend_id(found)]
    return made[-1]


def backend_id(found: Collecting) -> str:
    """Whose receipts it gives."""
    answer = requests.get(f"http://{found.http}/v1/flowmark/capabilities", timeout=20)
    return str(answer.json()["backendId"])


class Custodies:
    """All that were made in this process."""

    made: Final[list[Custody]] = []


@pytest.fixture(autouse=True)
def _remember(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Custody.start

    def started(custody: Custody) -> None:
        Custodies.made.append(custody)
        start(custody)

    monkeypatch.setattr(Custody, "start", started)


def test_what_was_sent_without_a_receipt_waits_for_an_operator(tmp_path: Path) -> None:
    """Row 23: an entry answered without receipt goes to quarantine; the others wait for an upgrade.

    Nothing is sent twice, and nothing is taken meanwhile.
    """
    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint, spool=tmp_path / "spool")) as found,
    ):
        server.script(lambda asked: Reply(404) if "capab" in asked.path else stock(asked))
        assert post(found.http, 1, 1).json()["custody"] == "2"
        until(lambda: node(found, "flowmark").state is NodeState.WAITING)
        (aside,) = (tmp_path / "spool" / "quarantine").glob("*.unacknowledged")
        assert aside.stat().st_size
        assert post(found.http, 2, 2).status_code == 503
        assert len(server.exports) == 1
        server.script(capable(acknowledging()))
        until(lambda: node(found, "flowmark").state is NodeState.OK)
        assert post(found.http, 2, 2).json()["custody"] == "2"
        until(lambda: len(server.exports) == 2)


@pytest.mark.parametrize("fault", ["write", "sync"])
def test_what_is_not_on_disk_is_never_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Rows 4, 5: a disk that is full or does not sync is 503; all goes on once it is well."""

    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC if fault == "write" else errno.EIO, "no")

    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint, spool=tmp_path / "spool")) as found,
    ):
        server.script(capable(Reply(503)))
        with monkeypatch.context() as patched:
            if fault == "write":
                patched.setattr("flowmark_otel.deliver.spool.segment.Segment.append", broken)
            else:
                patched.setattr(spools, "sync", broken)
            assert post(found.http, 1, 1).status_code == 503
        assert post(found.http, 1, 1).json()["custody"] == "2"


def test_concurrent_requests_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group commit: while a sync is under way the next ones wait for one more, all together."""
    first = threading.Event()
    syncs: list[int] = []

    def slow(descriptor: int) -> None:
        syncs.append(descriptor)
        first.wait(20)
        os.fsync(descriptor)

    with (
        answering(capable(Reply(503))) as server,
        collecting(configuration(server.endpoint, spool=tmp_path / "spool")) as found,
    ):
        custody = custody_of(found)
        with monkeypatch.context() as patched, ThreadPoolExecutor(12) as senders:
            patched.setattr(spools, "sync", slow)
            sending = [senders.submit(post, found.http, n, n) for n in range(1, 13)]
            until(lambda: custody.counts()[0] == 24)
            first.set()
            assert {each.result(20).status_code for each in sending} == {200}
        # The keeper may sync once of its own accord.
        assert len(syncs) <= 3


def test_an_event_of_the_spool_is_in_custody_when_asked_for(tmp_path: Path) -> None:
    """A24: the status endpoint says custody with the digest, of what a dead process left too."""
    event = ids(attempts(1, 1))[0]
    with answering(capable(Reply(503))) as server:
        file = configuration(server.endpoint, spool=tmp_path / "spool")
        for _ in range(2):
            with collecting(file) as found, delivering(f"http://{found.http}") as delivery:
                delivery.record(*attempts(1, 1))
                delivery.flush(20)
                answer = requests.post(
                    f"http://{found.http}/v1/flowmark/status",
                    json={"eventIds": [event]},
                    timeout=20,
                )
                (told,) = answer.json()["events"]
                assert told["state"] == names.CUSTODY
                assert len(told["digest"]) == 64
