"""Records in a file are found again, whatever happened to the bytes around them (fault row 27)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from flowmark_otel.deliver.spool.acks import gaps, merge
from flowmark_otel.deliver.spool.framing import (
    HEADER,
    MAGIC,
    MAX_PAYLOAD,
    Damage,
    Found,
    frame,
    walk,
)

PAYLOADS = st.lists(st.one_of(st.binary(max_size=60), st.just(MAGIC * 3)), max_size=6)
RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=8).map(
    lambda pairs: [(start, start + size) for start, size in pairs]
)


def found_in(content: bytes, start: int = 0) -> list[Found | Damage]:
    """What a walk through these bytes finds."""
    return list(walk(lambda size, at: content[at : at + size], start, len(content)))


def payloads(content: bytes) -> list[bytes]:
    """The payloads of the whole records among these bytes."""
    return [each.payload for each in found_in(content) if isinstance(each, Found)]


@given(PAYLOADS)
def test_what_was_framed_is_found(written: list[bytes]) -> None:
    """E1: records come back as they were, one after the other, without a hole."""
    content = b"".join(frame(each, 7) for each in written)
    items = found_in(content)
    assert [each.payload for each in items if isinstance(each, Found)] == written
    assert all(isinstance(each, Found) and each.time_unix_nano == 7 for each in items)
    assert [each.start for each in items] + [len(content)] == [0, *(each.end for each in items)]


def test_a_tail_torn_at_every_byte_is_cut_there() -> None:
    """Fault row 27: wherever the last record is torn, those before it are whole.

    The rest is damage of exactly the bytes that are left of it.
    """
    whole = frame(b"first", 1) + frame(b"second", 2)
    last = frame(b"the last of them", 3)
    for size in range(1, len(last)):
        *before, rest = found_in(whole + last[:size])
        assert [each.payload for each in before if isinstance(each, Found)] == [b"first", b"second"]
        assert rest == Damage(len(whole), len(whole) + size)


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=3, max_size=6), st.data())
def test_a_corrupt_middle_costs_its_record_alone(written: list[bytes], data: st.DataObject) -> None:
    """Fault row 27: a changed byte costs the record it is in; records after it are found."""
    frames = [frame(each, 7) for each in written]
    broken = data.draw(st.integers(0, len(frames) - 1))
    at = data.draw(st.integers(0, len(frames[broken]) - 1))
    changed = bytearray(frames[broken])
    changed[at] ^= data.draw(st.integers(1, 255))
    items = found_in(b"".join([*frames[:broken], bytes(changed), *frames[broken + 1 :]]))
    found = [each.payload for each in items if isinstance(each, Found)]
    assert found == written[:broken] + written[broken + 1 :]
    start = sum(map(len, frames[:broken]))
    lost = [each for each in items if isinstance(each, Damage)]
    assert lost == [Damage(start, start + len(changed))]


@given(st.binary(max_size=300))
def test_any_bytes_are_walked_to_the_end(content: bytes) -> None:
    """Fault row 27: no content raises, and every byte is a record's or damage."""
    items = found_in(content)
    assert [each.start for each in items] + [len(content)] == [0, *(each.end for each in items)]


def test_false_starts_do_not_make_it_slow() -> None:
    """Fault row 27: bytes full of false starts are given up as a whole, not tried one by one."""
    false = HEADER.pack(MAGIC, MAX_PAYLOAD, 0, 0)
    items = found_in(b"x" + false * 1000 + bytes(MAX_PAYLOAD))
    assert items == [Damage(0, 1 + len(false) * 1000 + MAX_PAYLOAD)]


def test_a_record_longer_than_what_is_read_ahead_is_found() -> None:
    """E1: large records, and the small ones around them, come back through the same window."""
    large = random.Random(1).randbytes(1 << 20)
    assert payloads(frame(b"a", 1) + frame(large, 2) + frame(b"b", 3)) == [b"a", large, b"b"]
    assert payloads(b"junk" * (1 << 18) + frame(b"c", 4)) == [b"c"]


def test_a_record_has_a_largest_size() -> None:
    """E1: what could not be told from damage later is refused when it is written."""
    with pytest.raises(ValueError, match="at most"):
        frame(bytes(MAX_PAYLOAD + 1), 0)


@given(RANGES, st.integers(0, 60))
def test_ranges_and_gaps_are_all_bytes(ranges: list[tuple[int, int]], size: int) -> None:
    """E1: what is acknowledged and what is left to send are all of a segment, each byte once."""
    merged = merge(ranges)
    covered = {at for start, end in merged for at in range(start, end) if at < size}
    left = {at for start, end in gaps(merged, size) for at in range(start, end)}
    assert covered == {at for start, end in ranges for at in range(start, end) if at < size}
    assert covered | left == set(range(size))
    assert not covered & left
