"""The spool as the client's backlog: events in, the same events out, in the order recorded."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from flowmark_otel import names
from flowmark_otel.clock import SystemClock
from flowmark_otel.deliver.backlog import Backlog
from flowmark_otel.deliver.spool import SpoolBacklog, SpoolHandout, codec
from flowmark_otel.deliver.spool.backlog import MEMORY_LIMIT
from flowmark_otel.deliver.spool.segment import Segment
from flowmark_otel.model import Diagnostic, Envelope
from tests.support.envelopes import completed, started
from tests.support.spooling import open_spool, segments

RESOURCE: Mapping[str, object] = {"service.name": "crm", "process.pid": 7, "tags": ("a", "b")}
OTHER: Mapping[str, object] = {"service.name": "other"}


@pytest.fixture
def told() -> list[Diagnostic]:
    """What the backlog reported."""
    return []


@pytest.fixture
def backlog(tmp_path: Path, told: list[Diagnostic]) -> Iterator[SpoolBacklog]:
    """A backlog on the folder ``spool``."""
    found = SpoolBacklog(tmp_path / "spool", clock=SystemClock(), report=told.append)
    try:
        yield found
    finally:
        found.close()


def handout(backlog: SpoolBacklog, limit: int = 100) -> SpoolHandout:
    """The next one; there is one."""
    found = backlog.take(limit)
    assert found is not None
    return found


def events(found: SpoolHandout) -> list[Envelope]:
    """The events in it."""
    return list(found.events)


def full_disk(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No write into a segment succeeds any more."""

    def refuse(segment: Segment, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{segment.name}: {len(data)}")

    monkeypatch.setattr(Segment, "append", refuse)
    return monkeypatch


def numbered(count: int, first: int = 0) -> list[Envelope]:
    """Events of different spans."""
    return [started(number, ("g", number + 1)) for number in range(first, first + count)]


def test_it_is_a_backlog(backlog: SpoolBacklog) -> None:
    """E1: queue and spool are the same to whoever delivers; this one outlives the process."""
    same: Backlog = backlog
    assert same.durable
    assert same.state == names.SPOOLED
    assert same.take(1) is None
    assert same.waiting() == 0


def test_events_come_back_with_their_resource(backlog: SpoolBacklog) -> None:
    """E1: an event is on disk when ``put`` returns, and is handed out as it was recorded."""
    put = [started(1, ("g", 1)), completed(1, ("g", 1))]
    assert backlog.put(put, RESOURCE) == 2
    assert backlog.waiting() > 0
    found = handout(backlog)
    assert events(found) == put
    assert found.resource == RESOURCE
    assert not found.adopted
    assert backlog.ids(10) == [each.event_id for each in put]
    found.done([0, 1])
    assert backlog.take(10) is None
    assert backlog.ids(10) == []
    assert backlog.waiting() == 0


def test_a_batch_is_of_one_resource(backlog: SpoolBacklog) -> None:
    """Contract, section 2: the resource of an event is its span's, so batches do not mix them."""
    for number, resource in enumerate([RESOURCE, RESOURCE, OTHER, RESOURCE]):
        backlog.put(numbered(1, number), resource)
    batches = [handout(backlog) for _ in range(3)]
    assert [len(each.events) for each in batches] == [2, 1, 1]
    assert [each.resource for each in batches] == [RESOURCE, OTHER, RESOURCE]
    assert batches[0].resource is batches[2].resource


def test_what_is_not_done_comes_again_first(backlog: SpoolBacklog) -> None:
    """Architecture, habit 5: nothing is removed before its acknowledgement."""
    put = numbered(5)
    backlog.put(put, RESOURCE)
    first = handout(backlog, 4)
    first.done([1])
    first.again()
    first.done([0])  # it is not out any more
    assert events(handout(backlog)) == [put[0], put[2], put[3], put[4]]


def test_the_next_process_delivers_what_was_left(tmp_path: Path, backlog: SpoolBacklog) -> None:
    """E1: another process hands out what this one left, marked so, in turns with its own."""
    backlog.put(numbered(3), RESOURCE)
    handout(backlog, 1).done([0])
    backlog.close()
    following = SpoolBacklog(tmp_path / "spool", clock=SystemClock(), report=print)
    following.spool.shelf.adopt()
    following.put(numbered(2, 10), RESOURCE)
    found = [handout(following, 1) for _ in range(4)]
    assert [each.adopted for each in found] == [True, False, True, False]
    assert [each.events[0] for each in found[::2]] == numbered(2, 1)
    assert following.take(1) is None
    following.close()


def test_a_full_spool_takes_no_more(tmp_path: Path) -> None:
    """Contract, section 3: what finds no room is the newest, and is the caller's to count."""
    backlog = SpoolBacklog(tmp_path, clock=SystemClock(), report=print, max_bytes=9000)
    taken = sum(backlog.put([each], RESOURCE) for each in numbered(50))
    assert 0 < taken < 50
    assert backlog.spool.size() <= 9000
    assert backlog.full_reason == "spool_full"
    assert events(handout(backlog)) == numbered(taken)
    backlog.close()


def test_while_the_disk_refuses_events_wait_in_memory_in_their_place(
    backlog: SpoolBacklog, told: list[Diagnostic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 4: on a full disk events are kept in memory, and that is said once.

    The order is the one recorded, whatever held an event: a flush counts what was settled.
    """
    put = numbered(9)
    backlog.put(put[:2], RESOURCE)
    with monkeypatch.context() as patch:
        full_disk(patch)
        assert backlog.put(put[2:4], RESOURCE) == 2
    backlog.put(put[4:5], RESOURCE)
    with monkeypatch.context() as patch:
        full_disk(patch)
        assert backlog.put(put[5:7], RESOURCE) == 2
        assert backlog.put(put[7:8], RESOURCE) == 1
    backlog.put(put[8:], RESOURCE)
    assert backlog.in_memory() == 5
    assert set(backlog.ids(100)) == {each.event_id for each in put}

    found: list[Envelope] = []
    for turn in range(40):
        batch = backlog.take(2)
        if batch is None:
            break
        if turn % 2:
            batch.again()
            continue
        found += events(batch)
        batch.done(range(len(batch.events)))
    assert found == put
    assert backlog.waiting() == 0
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_FAILED] * 2


def test_memory_has_a_bound_too(backlog: SpoolBacklog, monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: while the disk refuses, memory holds its share and takes no more."""
    full_disk(monkeypatch)
    taken = sum(backlog.put(numbered(3), RESOURCE) for _ in range(1000))
    assert taken == backlog.in_memory() == MEMORY_LIMIT


def test_events_in_memory_are_not_held_up_by_damage(
    tmp_path: Path, backlog: SpoolBacklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 27: where events before them were lost to damage, those in memory still go."""
    backlog.put(numbered(1), RESOURCE)
    with monkeypatch.context() as patch:
        full_disk(patch)
        backlog.put(numbered(1, 5), RESOURCE)
    (name,) = segments(tmp_path / "spool")
    name.write_bytes(bytes(name.stat().st_size))
    assert events(handout(backlog)) == numbered(1, 5)


def test_what_cannot_be_encoded_waits_in_memory(
    backlog: SpoolBacklog, told: list[Diagnostic]
) -> None:
    """Contract, section 6: an event that the spool has no form for is not lost."""
    strange: Mapping[str, object] = {"depth": nested(2000)}
    assert backlog.put(numbered(1), strange) == 1
    assert events(handout(backlog)) == numbered(1)
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_FAILED]


def nested(depth: int) -> Sequence[object]:
    """A list in a list, so many times."""
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


def test_a_newer_record_is_set_aside_and_said(tmp_path: Path, told: list[Diagnostic]) -> None:
    """Fault row 27: a record of a newer version is kept for that version, its neighbours go."""
    path = tmp_path / "spool"
    good = codec.encode_resource(RESOURCE) + codec.encode_envelope(numbered(1)[0])
    newer = bytes([codec.VERSION + 1]) + good[1:]
    spool = open_spool(path)
    spool.append([newer, good, newer])
    spool.close()
    backlog = SpoolBacklog(path, clock=SystemClock(), report=told.append)
    backlog.spool.shelf.adopt()
    assert events(handout(backlog)) == numbered(1)
    backlog.close()
    assert [each.code for each in told] == [names.DIAGNOSTIC_SPOOL_DAMAGED]
    (kept,) = path.glob("quarantine/*.unreadable")
    assert kept.read_bytes().count(newer) == 2


def test_what_was_not_acknowledged_is_set_aside(tmp_path: Path, backlog: SpoolBacklog) -> None:
    """Contract, section 4: an entry answered without receipt waits for an operator."""
    backlog.put(numbered(3), RESOURCE)
    found = handout(backlog)
    found.set_aside([0, 2])
    found.done([1])
    assert backlog.take(10) is None
    (kept,) = (tmp_path / "spool").glob("quarantine/*.unacknowledged")
    content = kept.read_bytes()
    assert [codec.encode_envelope(each) in content for each in numbered(3)] == [True, False, True]
