"""Delivery to the real backend: killed, cut off and switched off, its ledger equals the store."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowmark_otel import names
from tests.support.chaos import Fault, chaos
from tests.support.delivering import RESOURCE, Under, attempts, delivering, ids, ordinary, reasons
from tests.support.envelopes import completed, started
from tests.support.server import Running, options, running
from tests.support.serving import Serving

PROTOCOLS = ("http/protobuf", "http/json", "grpc")
REQUEST_CLASSES = (0, 1, 20, 150, 300, 500, 1000)
"""Bytes of a request after which it is cut: within request line, headers, and body."""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend with keys."""
    with running(options(tmp_path / "s.db")) as found:
        yield found


def to(backend: Running, protocol: str) -> dict[str, str]:
    """How a delivery reaches it."""
    address = backend.grpc if protocol == "grpc" else backend.http
    return {
        "endpoint": f"http://{address}",
        "protocol": protocol,
        "api_key": backend.ingest_key,
    }


def rows(store: Path) -> int:
    """How many events the store holds."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        return int(connection.execute("select count(*) from events").fetchone()[0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_event_gets_its_own_state(backend: Running, protocol: str, tmp_path: Path) -> None:
    """A23: one batch with new, known, other and too many rejected events: each is told right."""
    with delivering(**to(backend, protocol)) as delivery:
        delivery.record(*attempts(1, 40))
        delivery.flush(20)
        # 40 ends with another payload: more than a receipt has room to name.
        changed = [completed(n, ("g", n), at=5) for n in range(1, 41)]
        delivery.record(*attempts(41, 50), *attempts(1, 5), *changed)
        error = delivery.lost()
        assert error.counts == {(names.CONFLICT, names.REASON_REJECTED): 40}
        assert {each.event_id for each in delivery.seen} == set(ids(changed))
        assert delivery.counts() == {
            (names.STORED, ""): 100,
            (names.DUPLICATE, ""): 10,
            (names.CONFLICT, names.REASON_REJECTED): 40,
        }
    assert rows(tmp_path / "s.db") == 100


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_key_loses_nothing_until_a_flush(backend: Running, protocol: str) -> None:
    """A22: with a key that may not send, events wait; a flush says they are unauthorized."""
    wrong = to(backend, protocol) | {"api_key": backend.read_key}
    with delivering(**wrong) as delivery:
        delivery.record(*attempts(1, 1))
        error = delivery.lost()
        assert reasons(error) == {(names.QUEUED, names.REASON_UNAUTHORIZED)}


def test_without_the_capability(tmp_path: Path) -> None:
    """A21 (row 23): our backend without the capability accepts ordinary events alone."""
    served = options(tmp_path / "s.db", without=(names.CAPABILITY,))
    with running(served) as backend:
        for protocol in PROTOCOLS:
            with delivering(**to(backend, protocol)) as delivery:
                delivery.record(*ordinary(1, 2), *attempts(3, 3))
                error = delivery.lost()
                assert reasons(error) == {(names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED)}
                assert delivery.counts() == {
                    (names.ACCEPTED, ""): 4,
                    (names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED): 2,
                }


@pytest.mark.parametrize("reset", [True, False])
def test_a_request_cut_at_each_class_of_byte(
    backend: Running,
    tmp_path: Path,
    reset: bool,  # noqa: FBT001
) -> None:
    """A22: wherever a connection breaks in the request, the same ids arrive, and once."""
    for number, place in enumerate(REQUEST_CLASSES, start=1):
        with (
            chaos(backend.http) as proxy,
            delivering(f"http://{proxy.address}", api_key=backend.ingest_key) as delivery,
        ):
            proxy.faults.append(Fault(request_bytes=place, reset=reset))
            delivery.record(*attempts(number, number))
            delivery.flush(20)
            assert delivery.counts() == {(names.STORED, ""): 2}
            assert proxy.connections == 2
    assert rows(tmp_path / "s.db") == 2 * len(REQUEST_CLASSES)


@pytest.mark.parametrize("place", [0, 1, 15, 40, 110, 150])
def test_an_answer_cut_at_each_class_of_byte(backend: Running, tmp_path: Path, place: int) -> None:
    """A22: an answer that is lost after the commit makes duplicates, counted as such."""
    with (
        chaos(backend.http) as proxy,
        delivering(f"http://{proxy.address}", api_key=backend.ingest_key) as delivery,
    ):
        proxy.faults.append(Fault(answer_bytes=place))
        delivery.record(*attempts(1, 3))
        delivery.flush(20)
        assert delivery.counts() == {(names.DUPLICATE, ""): 6}
    assert rows(tmp_path / "s.db") == 6


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_killed_and_restarted_the_counts_equal_the_ledger(tmp_path: Path, protocol: str) -> None:
    """A22: a backend killed under load and started again: stored + duplicate is what it holds."""
    store = tmp_path / "s.db"
    recorded: list[str] = []
    with chaos("127.0.0.1:9") as proxy:
        ended = threading.Event()

        def record(delivery: Under) -> None:
            number = 0
            while not ended.is_set():
                number += 1
                made = attempts(number, number)
                recorded.extend(ids(made))
                delivery.put(made, RESOURCE)
                ended.wait(0.001)

        with delivering(
            f"http://{proxy.address}", protocol=protocol, api_key="", timeout=2000
        ) as delivery:
            recording = threading.Thread(target=record, args=(delivery,))
            recording.start()
            for _ in range(3):
                with Serving(store, "--insecure-no-auth") as served:
                    proxy.redirect(served.grpc if protocol == "grpc" else served.http)
                    taken = delivery.counts().get((names.STORED, ""), 0)
                    wait_for(delivery, taken + 200)
                    served.process.kill()
                    served.process.wait(20)
                assert sum(delivery.counts().values()) >= taken
            ended.set()
            recording.join()
            with Serving(store, "--insecure-no-auth") as served:
                proxy.redirect(served.grpc if protocol == "grpc" else served.http)
                delivery.flush(30)
            counts = Counter(delivery.counts())
    assert counts.total() == delivery.recorded() == len(recorded)
    assert set(counts) <= {(names.STORED, ""), (names.DUPLICATE, "")}
    with sqlite3.connect(store) as connection:
        found = connection.execute("select count(*) from events").fetchone()[0]
    assert found == len(recorded)


def wait_for(delivery: Under, stored: int) -> None:
    """Flush until so many are stored."""
    for _ in range(200):
        if delivery.counts().get((names.STORED, ""), 0) >= stored:
            return
        delivery.try_flush(1)
    msg = f"not {stored} stored: {delivery.counts()}"
    raise AssertionError(msg)


def test_two_starts_of_one_span_are_a_duplicate(backend: Running) -> None:
    """A8: an event recorded twice, by two processors, is one row and one duplicate."""
    with delivering(**to(backend, "http/protobuf")) as delivery:
        delivery.record(started(1, ("g", 1)), started(1, ("g", 1)))
        delivery.flush(20)
        assert delivery.counts() == {(names.STORED, ""): 1, (names.DUPLICATE, ""): 1}
