"""One spool on a real folder that is damaged, or whose disk refuses: what is kept, and said."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from flowmark_otel import names
from flowmark_otel.deliver.spool import Spool, quarantine
from flowmark_otel.deliver.spool.framing import HEADER, Found, frame, walk
from flowmark_otel.model import Diagnostic
from tests.support.spooling import abandoned, drain, open_spool, payloads, segments, torn

SYNC = "flowmark_otel.deliver.spool.spool.sync"


# -- damage -------------------------------------------------------------------------------------
def test_a_tail_torn_at_every_byte_is_kept_aside(tmp_path: Path) -> None:
    """Fault row 27: the tail is cut at the last whole record, kept, counted, and said."""
    last = frame(b"the last one", 9)
    for size in range(1, len(last)):
        path = tmp_path / str(size)
        name = abandoned(path, b"one", b"two")
        with name.open("ab") as file:
            file.write(last[:size])
        told: list[Diagnostic] = []
        spool = open_spool(path, told)
        assert drain(spool) == [b"one", b"two"]
        assert torn(path) == last[:size]
        assert spool.shelf.counts == {"torn": 1, "torn_bytes": size}
        assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_DAMAGED]
        assert segments(path) == []


def test_a_corrupt_middle_is_kept_aside_and_the_rest_delivered(tmp_path: Path) -> None:
    """Fault row 27: damage in the middle costs the records it hit and no other."""
    name = abandoned(tmp_path, b"one", b"two", b"three")
    content = bytearray(name.read_bytes())
    start = HEADER.size + 3
    content[start + 2] ^= 0xFF
    name.write_bytes(content)
    assert drain(open_spool(tmp_path)) == [b"one", b"three"]
    assert torn(tmp_path) == bytes(content[start : start + HEADER.size + 3])


def test_damage_is_set_aside_once_however_often_recovery_is_cut_short(tmp_path: Path) -> None:
    """Fault row 2: recovery that begins anew leaves one copy of the same damage."""
    name = abandoned(tmp_path, b"one")
    with name.open("ab") as file:
        file.write(b"torn")
    for _ in range(3):
        # Handed out and neither settled nor given back, as by a process that is killed.
        spool = open_spool(tmp_path)
        assert payloads(spool) == [b"one"]
        spool.close()
        (acks,) = tmp_path.glob("*.acks")
        acks.unlink()
    assert torn(tmp_path) == b"torn"


# -- set aside ----------------------------------------------------------------------------------
def part_of(content: bytes, size: int, at: int) -> bytes:
    """As reading a file does."""
    return content[at : at + size]


def aside(path: Path, reason: str) -> list[bytes]:
    """The payloads kept aside for this reason, read as the replay is told to read them."""
    found: list[bytes] = []
    for name in sorted(path.glob(f"quarantine/*.v1.{reason}")):
        content = name.read_bytes()
        items = list(walk(partial(part_of, content), 0, len(content)))
        assert all(isinstance(item, Found) for item in items)
        found += [item.payload for item in items if isinstance(item, Found)]
    return found


def test_what_is_set_aside_waits_for_an_operator(tmp_path: Path) -> None:
    """Contract, section 4: an entry without receipt goes to quarantine, and is counted.

    It takes no room from the spool and is not sent again by itself.
    """
    spool = open_spool(tmp_path, max_bytes=40_000)
    for number in range(80):
        spool.append([b"%02d" % number * 240])
    records = spool.shelf.take(80)
    spool.shelf.set_aside(records[:60], names.UNACKNOWLEDGED)
    spool.shelf.set_aside(records[60:70], names.UNACKNOWLEDGED)
    spool.shelf.again(records[70:])
    assert spool.shelf.counts == {names.UNACKNOWLEDGED: 70}
    assert spool.size() < 10_000
    spool.append([bytes(480)])
    spool.close()
    assert [each[:2] for each in aside(tmp_path, names.UNACKNOWLEDGED)] == [
        b"%02d" % number for number in range(70)
    ]
    assert len(drain(open_spool(tmp_path))) == 11


def test_the_quarantine_has_a_bound_of_its_own(tmp_path: Path) -> None:
    """Contract, section 4: where nothing more fits aside it is counted, and said once."""
    told: list[Diagnostic] = []
    spool = open_spool(tmp_path, told, max_bytes=5000)
    for _ in range(30):
        spool.append([bytes(480)])
        spool.shelf.set_aside(spool.shelf.take(1), names.UNACKNOWLEDGED)
    assert spool.shelf.counts == {names.UNACKNOWLEDGED: 10, "lost": 20}
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_FAILED]
    assert drain(spool) == []


# -- durability ---------------------------------------------------------------------------------
def test_synced_is_said_of_what_was_appended_before(tmp_path: Path) -> None:
    """Row 5: a mark is synced after a sync that began later, and not before."""
    spool = open_spool(tmp_path)
    first = spool.append([b"one"])
    assert not spool.is_synced(first)
    spool.sync()
    second = spool.append([b"two"])
    assert spool.is_synced(first)
    assert not spool.is_synced(second)
    spool.sync()
    assert spool.is_synced(second)


def test_nothing_counts_as_synced_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 5: after a failed sync a later one does not vouch for the same bytes.

    New records go to another segment, and all of them are still delivered.
    """
    told: list[Diagnostic] = []
    spool = open_spool(tmp_path, told)
    lost = spool.append([b"one"])

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), descriptor)

    with monkeypatch.context() as broken:
        broken.setattr(SYNC, fail)
        with pytest.raises(OSError, match="Input/output"):
            spool.sync()
    spool.sync()
    assert not spool.is_synced(lost)
    kept = spool.append([b"two"])
    spool.sync()
    assert spool.is_synced(kept)
    assert not spool.is_synced(lost)
    assert drain(spool) == [b"one", b"two"]
    with monkeypatch.context() as broken:
        broken.setattr(SYNC, fail)
        for _ in range(3):
            spool.append([b"three"])
            spool.sync_or_report()
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_FAILED]


def test_a_segment_that_somebody_removed_is_not_written_any_more(tmp_path: Path) -> None:
    """Fault row 5: a cleaner of old files costs no more than what it took.

    The next sync says so, and what comes after goes to a new file.
    """
    spool = open_spool(tmp_path)
    lost = spool.append([b"one"])
    segments(tmp_path)[0].unlink()
    with pytest.raises(OSError, match="removed"):
        spool.sync()
    spool.append([b"two"])
    spool.sync()
    assert not spool.is_synced(lost)
    assert len(segments(tmp_path)) == 1
    assert drain(spool) == [b"one", b"two"]


def test_a_sync_holds_nothing_that_an_append_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 6: the recording thread waits for no sync.

    In the midst of one records are appended, handed out and settled.
    """
    spool = open_spool(tmp_path, max_bytes=8 * 4096)
    spool.append([b"before"])

    def meanwhile(descriptor: int) -> None:
        spool.append([bytes(4000)])
        spool.append([b"meanwhile"])
        assert len(drain(spool)) == 3
        quarantine.sync(descriptor)

    monkeypatch.setattr(SYNC, meanwhile)
    spool.sync()
    monkeypatch.undo()
    assert spool.size() < 4096
    spool.close()
    assert segments(tmp_path) == []


def test_what_cannot_be_set_aside_stays_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 5: where the disk refuses to keep something aside it is not let go of."""
    name = abandoned(tmp_path, b"one", b"two")
    with name.open("ab") as file:
        file.write(b"torn")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), descriptor)

    told: list[Diagnostic] = []
    spool = open_spool(tmp_path, told)
    with monkeypatch.context() as broken:
        broken.setattr(quarantine, "sync", fail)
        records = spool.shelf.take(10)
        spool.shelf.set_aside(records[:1], names.UNACKNOWLEDGED)
    spool.shelf.settle(records[1:])
    assert spool.shelf.take(10) == []
    spool.close()
    assert {each.code for each in told} == {names.DIAGNOSTIC_SPOOL_FAILED}
    assert drain(open_spool(tmp_path)) == [b"one"]
    assert torn(tmp_path) == b"torn"
    assert aside(tmp_path, names.UNACKNOWLEDGED) == []


def test_a_signal_handler_that_interrupts_an_append_is_refused(tmp_path: Path) -> None:
    """Contract, section 6: an append within an append of the same thread does not wait for ever.

    It raises; the one that was interrupted goes through.
    """

    class Clock:
        """Its wall clock is read in the midst of beginning a segment."""

        def now_ns(self) -> int:
            if spool._appending.locked():
                with pytest.raises(OSError, match="interrupted"):
                    spool._acquire()
            return 5

        def monotonic(self) -> float:
            return 0.0

    spool = Spool(tmp_path, clock=Clock(), report=print)
    spool.append([b"one"])
    assert drain(spool) == [b"one"]


def test_a_closed_spool_takes_nothing(tmp_path: Path) -> None:
    """Fault row 26: after its end an append raises, and what was out stays for the next."""
    spool = open_spool(tmp_path)
    spool.append([b"one"])
    out = spool.shelf.take(1)
    spool.close()
    spool.close()
    with pytest.raises(OSError, match="closed"):
        spool.append([b"two"])
    spool.shelf.settle(out)
    assert drain(open_spool(tmp_path)) == [b"one"]
