"""Ten times what the backend can take: how much of its capacity is left as goodput (row 25).

Capacity is what four connections that never wait get stored. Then the same batches are offered by
many senders, on the clock, at ten times that rate; one that is refused is offered again later.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

from flowmark_otel.wire import receipt
from tests.bench import load
from tests.bench.report import Figure
from tests.support.serving import Serving

REQUESTS = 160
TENFOLD = 10
SECONDS = 6.0
SENDERS = 160
PATIENCE = 10.0
LEAST = 0.8


def measure() -> list[Figure]:
    """Goodput under overload over HTTP, and what a sender meets right after it."""
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder) / "requests"
        load.write(requests, load.bodies(REQUESTS, 1.0, seed=1))
        with Serving(Path(folder) / "capacity.db", "--insecure-no-auth") as serving:
            sent = load.send(requests, serving.http, "http")
        capacity = sent["stored"] / sent["seconds"]
        rate = TENFOLD * REQUESTS / sent["seconds"]
        load.write(requests, load.bodies(round(rate / TENFOLD * SECONDS * 2), 1.0, seed=2))
        with Serving(Path(folder) / "overload.db", "--insecure-no-auth") as serving:
            found = _offer(requests, serving.http, rate)
    goodput = found["stored"] / SECONDS
    note = f"{found['offered']:.0f} offered, {found['refused']:.0f} refused"
    return [
        Figure("capacity", capacity, "events/s"),
        Figure("tenfold overload, goodput", goodput, "events/s", note=note),
        Figure("tenfold overload, of capacity", goodput / capacity, "ratio", least=LEAST),
        Figure("refused without a time to wait", found["silent"], "requests", most=0),
        Figure("slowest that was taken", found["slowest"], "s", most=PATIENCE),
        Figure("taken again after overload", found["recovery"], "s"),
    ]


def _offer(path: Path, address: str, rate: float) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.overload", str(path), address, str(rate)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    found: dict[str, float] = json.loads(done.stdout)
    return found


class _Offering:
    """The senders of one process; they share the clock, the bodies and the counts."""

    def __init__(self, path: Path, address: str, rate: float) -> None:
        self._address = address
        self._waiting: SimpleQueue[bytes] = SimpleQueue()
        for body in load.read(path):
            self._waiting.put(body)
        self._pause = SENDERS / rate
        self._lock = threading.Lock()
        self._found = dict.fromkeys(("stored", "offered", "refused", "silent", "slowest"), 0.0)

    def run(self) -> dict[str, float]:
        began = time.perf_counter()
        senders = [
            threading.Thread(target=self._send, args=(began, index)) for index in range(SENDERS)
        ]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        ended = time.perf_counter()
        while not self._one(self._connect(), b"", began):
            time.sleep(0.05)
        return self._found | {"recovery": time.perf_counter() - ended}

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, timeout=60)

    def _send(self, began: float, index: int) -> None:
        connection = self._connect()
        due = began + self._pause * index / SENDERS
        while due < began + SECONDS:
            time.sleep(max(0.0, due - time.perf_counter()))
            due = max(due + self._pause, time.perf_counter())
            try:
                body = self._waiting.get_nowait()
            except Empty:
                continue
            if not self._one(connection, body, began):
                self._waiting.put(body)

    def _one(self, connection: http.client.HTTPConnection, body: bytes, began: float) -> bool:
        """Offer one body; whether it was taken."""
        sent = time.perf_counter()
        headers = {"content-type": "application/x-protobuf"}
        connection.request("POST", "/v1/traces", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        now = time.perf_counter()
        taken = answer.status == http.client.OK
        with self._lock:
            self._found["offered"] += 1
            if not taken:
                assert answer.status == http.client.SERVICE_UNAVAILABLE, content
                self._found["refused"] += 1
                self._found["silent"] += answer.headers["retry-after"] is None
            else:
                self._found["slowest"] = max(self._found["slowest"], now - sent)
                if now < began + SECONDS:
                    self._found["stored"] += receipt.decode(content, "protobuf").stored
        return taken


def main(arguments: list[str]) -> None:
    """Offer the bodies of a file at a rate, in requests a second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("address")
    parser.add_argument("rate", type=float)
    options = parser.parse_args(arguments)
    found = _Offering(options.file, options.address, options.rate).run()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
