"""Spools for tests, and a program that records into one until it is killed.

Program arguments: the folder, what to do, a number that no other process of the test was given.
It prints a line when it is done with what the line says, each with one unbuffered write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from flowmark_otel.clock import SystemClock
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from flowmark_otel.deliver.spool import MAX_BYTES, Spool
from flowmark_otel.model import Diagnostic
from tests.support.delivering import RESOURCE, attempts

ROOT = Path(__file__).parents[2]
BATCH = 7


def open_spool(
    path: Path, told: list[Diagnostic] | None = None, max_bytes: int = MAX_BYTES
) -> Spool:
    """A spool that looked around; what it reports is added to ``told``."""
    heard: list[Diagnostic] = [] if told is None else told
    spool = Spool(path, clock=SystemClock(), report=heard.append, max_bytes=max_bytes)
    spool.shelf.adopt()
    return spool


def drain(spool: Spool, limit: int = 1000) -> list[bytes]:
    """All that waits, in the order handed out, settled; what dead processes left included."""
    found: list[bytes] = []
    while True:
        records = spool.shelf.take(limit)
        if not records and not spool.shelf.adopt():
            return found
        found += [record.payload for record in records]
        spool.shelf.settle(records)


def segments(path: Path) -> list[Path]:
    """The segment files of a folder, the oldest first."""
    return sorted(path.glob("*.spool"))


def torn(path: Path) -> bytes:
    """All that was set aside as no record."""
    return b"".join(each.read_bytes() for each in sorted(path.glob("quarantine/*.torn")))


def payloads(spool: Spool, limit: int = 100) -> list[bytes]:
    """What is handed out next."""
    return [record.payload for record in spool.shelf.take(limit)]


def abandoned(path: Path, *records: bytes) -> Path:
    """The segment that a process left which appended these and ended without delivering."""
    spool = open_spool(path)
    for record in records:
        spool.append([record])
    spool.close()
    return segments(path)[-1]


@contextmanager
def process(path: Path, part: str, number: int) -> Iterator[subprocess.Popen[str]]:
    """The program, killed at the end if it still lives."""
    command = [sys.executable, "-m", "tests.support.spooling", str(path), part, str(number)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def killed_after(path: Path, part: str, number: int, lines: int) -> list[str]:
    """What a process said it had done before it was killed in the midst of doing more."""
    with process(path, part, number) as child:
        assert child.stdout is not None
        found = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        found += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    return [line.strip() for line in found if line.endswith("\n")]


def record(path: Path, number: int) -> None:
    """Append without end; a line for each append that returned."""
    spool = open_spool(path, max_bytes=64 << 20)
    for serial in count():
        text = f"{number}-{serial}"
        spool.append([text.encode().ljust(200, b".")])
        os.write(1, f"{text}\n".encode())


def record_in_threads(path: Path, number: int) -> None:
    """As ``record``, from four threads."""
    spool = open_spool(path, max_bytes=64 << 20)

    def work(thread: int) -> None:
        for serial in count():
            text = f"{number}-{thread}-{serial}"
            spool.append([text.encode().ljust(200, b".")])
            os.write(1, f"{text}\n".encode())

    for thread in range(4):
        threading.Thread(target=work, args=(thread,)).start()


def deliver(path: Path, number: int) -> None:
    """Adopt and settle, ``number`` batches at most; a line for each record when it is settled.

    It ends when nothing is left, and waits to be killed when it had its batches.
    """
    spool = open_spool(path)
    for _ in range(number):
        records = spool.shelf.take(BATCH)
        if not records and not spool.shelf.adopt():
            return
        spool.shelf.settle(records)
        said = [record.payload.rstrip(b".").decode() for record in records]
        os.write(1, "".join(f"{each}\n" for each in said).encode())
    spool.shelf.take(BATCH)
    signal.pause()


def hold(path: Path, number: int) -> None:
    """Append one record, say so, and hold it until standard input ends."""
    spool = open_spool(path)
    spool.append([f"{number}-held".encode()])
    os.write(1, b"held\n")
    sys.stdin.read()


def record_attempts(path: Path, number: int) -> None:
    """Record attempts without end, the backend out of reach; a line for each put that returned."""
    delivery = Delivery(ClientOptions(endpoint="http://127.0.0.1:9", spool_dir=path))
    for serial in count(number):
        for event in attempts(serial, serial):
            delivery.put([event], RESOURCE)
            os.write(1, f"{event.event_id}\n".encode())


PARTS = {
    each.__name__: each for each in (record, record_in_threads, deliver, hold, record_attempts)
}

if __name__ == "__main__":
    PARTS[sys.argv[2]](Path(sys.argv[1]), int(sys.argv[3]))
