"""One spool on a real folder: what is handed out, settled, found again, and refused when full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowmark_otel.deliver.spool import SpoolFull
from flowmark_otel.deliver.spool.adoption import Look, look
from flowmark_otel.deliver.spool.framing import HEADER
from tests.support.spooling import abandoned, drain, open_spool, payloads, segments

SYNC = "flowmark_otel.deliver.spool.spool.sync"


# -- handing out --------------------------------------------------------------------------------
def test_records_are_handed_out_once_and_in_order(tmp_path: Path) -> None:
    """E1: what is handed out is not handed out again while it is out, nor after it is settled."""
    spool = open_spool(tmp_path)
    for number in range(5):
        spool.append([b"%d" % number])
    first = spool.shelf.take(2)
    assert [record.payload for record in first] == [b"0", b"1"]
    assert payloads(spool) == [b"2", b"3", b"4"]
    spool.shelf.settle(first)
    spool.shelf.settle(first)
    spool.shelf.again(first)
    assert payloads(spool) == []


def test_what_comes_back_waits_in_its_place(tmp_path: Path) -> None:
    """E1: records given back come before all that was not handed out, in their order."""
    spool = open_spool(tmp_path)
    for number in range(6):
        spool.append([b"%d" % number])
    out = spool.shelf.take(4)
    spool.shelf.settle(out[1:2])
    spool.shelf.again(out[2:])
    spool.shelf.again(out[:1])
    assert payloads(spool) == [b"0", b"2", b"3", b"4", b"5"]


def test_a_restart_sends_only_what_was_not_settled(tmp_path: Path) -> None:
    """E1: after a restart at most the records in flight come again, settled in whatever order."""
    first = open_spool(tmp_path)
    for number in range(9):
        first.append([b"%d" % number])
    out = first.shelf.take(7)
    first.shelf.settle(out[4:6])
    first.shelf.settle([out[0]])
    first.close()
    second = open_spool(tmp_path)
    records = second.shelf.take(100)
    assert [record.payload for record in records] == [b"1", b"2", b"3", b"6", b"7", b"8"]
    assert all(record.adopted for record in records)


def test_acknowledgements_of_several_processes_add_up(tmp_path: Path) -> None:
    """E1: each process that adopts a segment settles a part of it, and no part comes again."""
    abandoned(tmp_path, *[b"%d" % number for number in range(9)])
    for generation in range(3):
        spool = open_spool(tmp_path)
        out = spool.shelf.take(9)
        assert len(out) == 9 - 2 * generation
        spool.shelf.settle([out[1], out[-1]])
        spool.close()
    assert drain(open_spool(tmp_path)) == [b"0", b"4", b"5"]


def test_damaged_acknowledgements_cost_a_repeat(tmp_path: Path) -> None:
    """Fault row 27: acknowledgements that cannot be read are ignored: sent again, never lost."""
    spool = open_spool(tmp_path)
    for number in range(3):
        spool.append([b"%d" % number])
        spool.shelf.settle(spool.shelf.take(1))
    spool.append([b"3"])
    spool.close()
    (acks,) = tmp_path.glob("*.acks")
    content = bytearray(acks.read_bytes())
    content[25] ^= 1
    acks.write_bytes(content + b"torn")
    assert drain(open_spool(tmp_path)) == [b"1", b"2", b"3"]


def test_a_segment_goes_when_all_of_it_is_settled(tmp_path: Path) -> None:
    """E1: nothing stays of what was delivered, in this process or in one that adopted it."""
    abandoned(tmp_path, b"old")
    spool = open_spool(tmp_path, max_bytes=8 * 4096)
    for _ in range(4):
        spool.append([bytes(3000)])
    assert len(segments(tmp_path)) == 5
    assert len(drain(spool)) == 5
    spool.close()
    assert list(tmp_path.iterdir()) == []


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_the_files_of_many_dead_processes_are_adopted_in_parts(tmp_path: Path) -> None:
    """E1: what short-lived processes left is all delivered, without a descriptor for each."""
    for number in range(70):
        abandoned(tmp_path, b"%d" % number)
    before = descriptors()
    spool = open_spool(tmp_path)
    held = descriptors()
    assert drain(spool) == [b"%d" % number for number in range(70)]
    assert descriptors() < held <= 64 + before
    assert segments(tmp_path) == []


def test_age_and_size_are_of_what_waits(tmp_path: Path) -> None:
    """Contract, section 10: age is that of the oldest record not settled, size that of all."""
    spool = open_spool(tmp_path)
    assert spool.shelf.oldest() is None
    spool.append([b"one"])
    spool.append([b"two"])
    assert spool.size() == 2 * (HEADER.size + 3)
    one, two = spool.shelf.take(2)
    assert spool.shelf.oldest() == one.time_unix_nano
    spool.shelf.settle([one])
    assert spool.shelf.oldest() == two.time_unix_nano
    spool.shelf.settle([two])
    assert spool.shelf.oldest() is None


def test_a_segment_begun_while_others_are_looked_for_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 10: what is our own is never taken for what another process holds."""
    spool = open_spool(tmp_path)

    def begun_meanwhile(*asked: Any) -> Look:
        spool.append([b"one"])
        return look(*asked)

    monkeypatch.setattr("flowmark_otel.deliver.spool.shelf.look", begun_meanwhile)
    assert not spool.shelf.adopt()
    assert spool.size() == HEADER.size + 3


# -- the bound ----------------------------------------------------------------------------------
def test_a_full_spool_refuses_the_newest(tmp_path: Path) -> None:
    """E1: the bound is kept exactly, the newest refused, and room comes with delivery."""
    spool = open_spool(tmp_path, max_bytes=40_000)
    taken = 0
    while spool.size() < 40_000:
        spool.append([bytes(480)])
        taken += 1
    with pytest.raises(SpoolFull):
        spool.append([b""])
    assert taken == 40_000 // 500
    assert sum(each.stat().st_size for each in segments(tmp_path)) == spool.size() == 40_000
    assert spool.appended == taken
    spool.shelf.settle(spool.shelf.take(taken // 2))
    spool.append([bytes(480)])
    assert len(drain(spool)) == taken // 2 + 1


def test_the_bound_counts_what_others_hold(tmp_path: Path) -> None:
    """E1: the bound is the folder's: what living and dead processes left in it counts."""
    other = open_spool(tmp_path)
    other.append([bytes(480)])
    abandoned(tmp_path, bytes(480))
    spool = open_spool(tmp_path, max_bytes=1200)
    assert spool.size() == 1000
    with pytest.raises(SpoolFull):
        spool.append([bytes(480)])
    other.shelf.settle(other.shelf.take(1))
    other.close()
    spool.shelf.adopt()
    spool.append([bytes(480)])


def test_a_record_larger_than_a_segment_has_one_to_itself(tmp_path: Path) -> None:
    """E1: only the bound of the whole spool limits a record."""
    spool = open_spool(tmp_path, max_bytes=100_000)
    for size in (10, 50_000, 10):
        spool.append([bytes(size)])
    assert len(segments(tmp_path)) == 3
    assert [len(each) for each in drain(spool)] == [10, 50_000, 10]
