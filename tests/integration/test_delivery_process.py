"""Delivery and the life of a process: forks, signals, threads, the end of the interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from flowmark_otel import names
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.model import Envelope, LogRecord
from flowmark_otel.wire.decode import decode_logs
from tests.support.answers import (
    Received,
    Reply,
    acknowledging,
    answering,
    free_port,
    grpc_acknowledging,
    grpc_answering,
)
from tests.support.delivering import attempts, delivering, ids

_AT_EXIT = """
import atexit, contextlib, sys
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from flowmark_otel.errors import DeliveryError
from tests.support.delivering import RESOURCE, attempts

delivery = Delivery(ClientOptions(endpoint=sys.argv[1], protocol=sys.argv[2]))

def end():
    try:
        delivery.shutdown(float(sys.argv[3]))
    except DeliveryError as error:
        print(error, flush=True)
    print(sorted(delivery.counts().items()), flush=True)

if sys.argv[3]:
    atexit.register(end)
if sys.argv[4] == "before":
    delivery.put(attempts(1, 2), RESOURCE)
else:
    atexit.register(delivery.put, attempts(1, 2), RESOURCE)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python program, to its end."""
    return subprocess.run(
        [sys.executable, "-c", _AT_EXIT, *arguments],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def event_ids(body: bytes) -> list[str]:
    """The ids in a request."""
    records = [each.record for each in decode_logs(body, "protobuf").marked]
    return [str(each.attributes[names.EVENT_ID]) for each in records if isinstance(each, LogRecord)]


def fork(
    endpoint: str, protocol: str, arrived: Callable[[], object], release: threading.Event
) -> dict[str, Any]:
    """Run the forking program; what each side says, by who says it."""
    command = [sys.executable, "-m", "tests.support.forking", endpoint, protocol]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        arrived()
        process.stdin.write("fork\n")
        process.stdin.flush()
        found = {}
        for line in process.stdout:
            said = json.loads(line)
            found[said["who"]] = said["counts"]
            if said["who"].startswith("child ended"):
                release.set()  # the parent's request is answered only now
        assert process.wait(30) == 0
    return found


EXPECTED = {
    "new child": {},
    "child": {"stored": 2},
    "child ended with 0": {"queued": 8},
    "parent": {"stored": 8},
}


def test_a_fork_with_a_request_under_way_over_http() -> None:
    """A22: parent and child each deliver what they recorded, once; neither waits for the other."""
    release = threading.Event()

    def held(request: Received) -> Reply:
        whole = acknowledging()(request)
        return Reply(body=whole.body, after=release)

    with answering(held, acknowledging()) as server:
        found = fork(server.endpoint, "http/protobuf", lambda: server.arrived.wait(20), release)
        arrived = [each for request in server.exports for each in request.event_ids]
    assert found == EXPECTED
    assert Counter(arrived) == Counter(ids([*attempts(1, 4), *attempts(101, 101)]))


def test_a_fork_with_a_request_under_way_over_grpc() -> None:
    """A22: the same over gRPC, whose channel the child neither uses nor closes."""
    release = threading.Event()
    arrived = threading.Event()

    def held(body: bytes) -> bytes:
        arrived.set()
        release.wait(20)
        return grpc_acknowledging(body)

    with grpc_answering(held, grpc_acknowledging) as server:
        found = fork(server.endpoint, "grpc", lambda: arrived.wait(20), release)
        got = [each for body in server.bodies for each in event_ids(body)]
    assert found == EXPECTED
    assert Counter(got) == Counter(ids([*attempts(1, 4), *attempts(101, 101)]))


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("hooked", ["0.5", ""])
def test_the_interpreter_ends_although_nobody_is_there(protocol: str, hooked: str) -> None:
    """A22: a dead endpoint holds up no exit; a hook at exit hears the truth in bounded time."""
    ended = run(f"http://127.0.0.1:{free_port()}", protocol, hooked, "before")
    assert ended.returncode == 0, ended.stderr
    if hooked:
        first, second = ended.stdout.splitlines()
        assert first.startswith("4 of 4 events were not acknowledged")
        assert second == "[(('unacknowledged', 'unavailable'), 4)]"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_the_interpreter_ends_although_nobody_answers(protocol: str) -> None:
    """A22: an endpoint that accepts and then says nothing holds up no exit either."""
    never = threading.Event()
    with answering(Reply(after=never)) as server:
        ended = run(server.endpoint, protocol, "0.5", "before")
        never.set()
    assert ended.returncode == 0, ended.stderr
    assert "4 of 4 events were not acknowledged" in ended.stdout


@pytest.mark.parametrize("when", ["before", "at exit"])
def test_what_was_recorded_last_is_delivered_at_exit(when: str) -> None:
    """A22: a flush at exit delivers, also what other exit hooks recorded before it."""
    with answering(acknowledging()) as server:
        ended = run(server.endpoint, "http/protobuf", "10", when)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == "[(('stored', ''), 4)]\n"
        assert len(server.exports) == 1


def test_without_a_thread_a_flush_sends_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A22: where no thread can be started any more, whoever flushes does the sending."""
    with (
        answering(Reply(503), acknowledging(), Reply(401)) as server,
        delivering(server.endpoint) as delivery,
        monkeypatch.context() as patched,
    ):
        patched.setattr(delivery, "_start", lambda: False)
        delivery.record(*attempts(1, 2))
        delivery.flush(10)
        assert delivery.counts() == {(names.STORED, ""): 4}
        delivery.record(*attempts(3, 3))
        error = delivery.lost(600)  # waits for no pause: nobody else would send meanwhile
        assert error.counts == {(names.QUEUED, names.REASON_UNAUTHORIZED): 2}
        assert len(server.exports) == 3


def test_a_signal_handler_may_record_and_flush() -> None:
    """A22, I9: a handler that records and flushes, wherever it is, blocks nobody; sums hold."""
    pace = Pace(queue=1_000_000)
    with (
        answering(acknowledging()) as server,
        delivering(server.endpoint, pace=pace) as delivery,
    ):
        flushed: list[bool] = []
        struck = 0

        def handle(*_: object) -> None:
            nonlocal struck
            struck += 1
            delivery.record(*late)
            if struck % 20 == 0:
                flushed.append(delivery.try_flush(60))

        made, late = attempts(1, 1), attempts(2, 2)
        before = signal.signal(signal.SIGVTALRM, handle)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
        recorded = 0
        try:
            while len(flushed) < 10:
                recorded += 1
                delivery.record(*made)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        assert all(flushed)
        delivery.flush(20)
        assert delivery.counts() == {(names.STORED, ""): 2 * (recorded + struck)}


def test_many_threads_record_and_every_event_is_answered_for() -> None:
    """A22: with threads that record and flush at once, each event is counted and sent once."""
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:

        def record(first: int) -> None:
            for number in range(first, first + 200):
                delivery.record(*attempts(number, number))
                if number % 40 == 0:
                    delivery.try_flush(20)

        threads = [threading.Thread(target=record, args=(n * 1000 + 1,)) for n in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        delivery.flush(20)
        assert delivery.counts() == {(names.STORED, ""): 1600}
        arrived = [each for request in server.exports for each in request.event_ids]
    expected: list[Envelope] = []
    for n in range(4):
        expected += attempts(n * 1000 + 1, n * 1000 + 200)
    assert Counter(arrived) == Counter(ids(expected))
    assert os.getpid() == delivery._process
