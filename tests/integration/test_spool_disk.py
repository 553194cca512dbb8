"""A disk that is full, or refuses to write (fault rows 4 and 5)."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowmark_otel import names
from flowmark_otel.clock import SystemClock
from flowmark_otel.deliver.spool import Spool, SpoolBacklog
from flowmark_otel.model import Diagnostic, Envelope
from tests.support.envelopes import started
from tests.support.spooling import drain, open_spool, torn

RESOURCE = {"service.name": "crm"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    path = tmp_path / "disk"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs"]
    made = subprocess.run(
        ["mount", *options, str(path)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"root cannot mount a small file system here: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def batch(backlog: SpoolBacklog, limit: int) -> list[Envelope]:
    """The next events, done with."""
    handout = backlog.take(limit)
    if handout is None:
        return []
    handout.done(range(len(handout.events)))
    return list(handout.events)


@pytest.mark.needs("mount", "umount")
def test_a_full_disk_costs_no_event(small_disk: Path) -> None:
    """Fault row 4: what the disk has no room for waits in memory, which is said once.

    Every event is handed out once, in order; when space returns events go to disk again.
    """
    told: list[Diagnostic] = []
    backlog = SpoolBacklog(small_disk / "spool", clock=SystemClock(), report=told.append)
    events = [started(number) for number in range(300)]
    assert sum(backlog.put([event], RESOURCE) for event in events) == len(events)
    assert 0 < backlog.in_memory() < len(events)
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_FAILED]
    assert "memory" in told.pop().message

    found = batch(backlog, 1000)
    while more := batch(backlog, 50):
        found += more
    assert found == events
    backlog.close()

    backlog = SpoolBacklog(small_disk / "spool", clock=SystemClock(), report=told.append)
    assert backlog.put(events[:1], RESOURCE) == 1
    assert backlog.in_memory() == 0
    assert batch(backlog, 10) == events[:1]
    backlog.close()
    # While it was full not even acknowledgements had room, which costs repeats after a kill.
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_FAILED]
    assert "send again" in told[0].message


def fill(spool: Spool, appended: list[bytes]) -> None:
    """Append until the disk refuses."""
    for number in range(200):
        payload = b"%d" % number * 300
        spool.append([payload])
        appended.append(payload)


@pytest.mark.needs("mount", "umount")
def test_space_that_returns_is_used(small_disk: Path) -> None:
    """Fault row 4: a write cut short by a full disk leaves no damage behind.

    The same spool goes on as soon as there is room.
    """
    filler = small_disk / "filler"
    filler.write_bytes(bytes(40_000))
    told: list[Diagnostic] = []
    spool = open_spool(small_disk / "spool", told)
    appended: list[bytes] = []
    with pytest.raises(OSError, match="No space"):
        fill(spool, appended)
    with pytest.raises(OSError, match="No space"):
        spool.append([bytes(9000)])
    filler.unlink()
    spool.append([b"after"])
    spool.close()
    assert drain(open_spool(small_disk / "spool", told)) == [*appended, b"after"]
    assert torn(small_disk / "spool") == b""
    assert told == []


def test_a_write_cut_short_adds_nothing(tmp_path: Path) -> None:
    """Fault row 5: where a file may not grow the append fails as a whole.

    The next one goes to another file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    spool = open_spool(tmp_path)
    spool.append([bytes(700)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="large"):
            spool.append([bytes(500)])
        spool.append([bytes(600)])
        with pytest.raises(OSError, match="large"):
            spool.append([bytes(1000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    spool.append([bytes(500)])
    assert [len(each) for each in drain(spool)] == [700, 600, 500]
    assert torn(tmp_path) == b""
