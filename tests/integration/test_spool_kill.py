"""Processes that share one spool folder, and are killed, forked, ended (fault rows 2 and 26)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from flowmark_otel.clock import SystemClock
from flowmark_otel.deliver.spool import SpoolBacklog
from flowmark_otel.deliver.spool.framing import Found, walk
from tests.support.envelopes import started
from tests.support.spooling import (
    BATCH,
    drain,
    killed_after,
    open_spool,
    process,
    segments,
)

WAIT = 30
MANY = 1_000_000


def texts(payloads: list[bytes]) -> list[str]:
    """What the program wrote before the filling."""
    return [each.rstrip(b".").decode() for each in payloads]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["record", "record_in_threads"])
def test_what_was_appended_survives_sigkill(
    tmp_path: Path, part: str, campaign: Callable[[int, int], int]
) -> None:
    """E1, fault row 2: whatever an append returned for before a SIGKILL is handed out, once.

    There is no sync at all. Of what was under way at most one record a thread comes on top.
    """
    chance = random.Random(3)
    said: list[str] = []
    kills = campaign(4, 50)
    for turn in range(kills):
        said += killed_after(tmp_path, part, turn, chance.randint(1, 3000))
    spool = open_spool(tmp_path)
    found = texts(drain(spool))
    spool.close()
    assert len(set(found)) == len(found)
    assert set(said) <= set(found)
    assert len(found) - len(said) <= 4 * kills
    assert list(tmp_path.glob("*")) in ([], [tmp_path / "quarantine"])


@pytest.mark.timeout(120)
def test_a_kill_during_recovery_loses_nothing_and_repeats_a_batch(tmp_path: Path) -> None:
    """Fault row 2: processes killed while they adopt and deliver lose nothing.

    What comes twice is at most the batch that was in flight at each kill.
    """
    chance = random.Random(5)
    said = set(killed_after(tmp_path, "record", 1, 3000))
    with segments(tmp_path)[-1].open("ab") as file:
        file.write(b"torn in the midst")
    delivered: Counter[str] = Counter()
    kills = 5
    for _ in range(kills):
        batches = chance.randint(3, 70)
        lines = (batches - 2) * BATCH
        delivered.update(killed_after(tmp_path, "deliver", batches, lines))
    spool = open_spool(tmp_path)
    delivered.update(texts(drain(spool)))
    spool.close()
    assert said <= set(delivered)
    # A batch whose acknowledgement was noted but which was not said is in neither.
    assert len(said) - BATCH * kills <= delivered.total() <= len(said) + 1 + BATCH * kills
    assert max(delivered.values()) <= 2
    assert segments(tmp_path) == []
    (torn,) = tmp_path.glob("quarantine/*.torn")
    assert torn.read_bytes().endswith(b"torn in the midst")


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    """E1: what a living process holds nobody else hands out.

    When it dies that is adopted at once, whatever process ids say.
    """
    with process(tmp_path, "hold", 1) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        spool = open_spool(tmp_path)
        spool.append([b"mine"])
        assert drain(spool) == [b"mine"]
        assert not spool.shelf.adopt()
        child.kill()
        child.wait(WAIT)
        assert spool.shelf.adopt()
        (record,) = spool.shelf.take(10)
        assert record.payload == b"1-held"
        assert record.adopted


@pytest.mark.timeout(120)
def test_many_processes_deliver_what_was_left_once(tmp_path: Path) -> None:
    """E1: processes that look at the same time share what was left between them."""
    said = [text for turn in range(6) for text in killed_after(tmp_path, "record", turn, 200)]
    delivered: Counter[str] = Counter()
    with (
        process(tmp_path, "deliver", MANY) as first,
        process(tmp_path, "deliver", MANY) as second,
        process(tmp_path, "deliver", MANY) as third,
    ):
        for child in (first, second, third):
            assert child.stdout is not None
            delivered.update(line.strip() for line in child.stdout)
    assert set(said) <= set(delivered)
    assert max(delivered.values()) == 1
    assert segments(tmp_path) == []


def in_child(work: Callable[[], None]) -> int:
    """Fork, do this in the child, return its exit status: 0 if nothing raised."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may leave a forked copy of the test run
        traceback.print_exc()
    finally:
        os._exit(status)


def whole(path: Path) -> list[bytes]:
    """The payloads in a file that holds nothing but records."""
    content = path.read_bytes()
    items = list(walk(lambda size, at: content[at : at + size], 0, len(content)))
    found = [item.payload for item in items if isinstance(item, Found)]
    assert len(found) == len(items)
    return found


def test_a_forked_child_has_a_segment_of_its_own(tmp_path: Path) -> None:
    """Fault row 26: the child neither writes nor delivers what is the parent's, who goes on."""
    spool = open_spool(tmp_path)
    spool.append([b"before"])
    out = spool.shelf.take(1)
    (parents,) = segments(tmp_path)
    size = parents.stat().st_size

    def work() -> None:
        assert spool.shelf.take(10) == []
        spool.shelf.settle(out)
        spool.append([b"child"])
        assert parents.stat().st_size == size
        assert not spool.shelf.adopt()
        assert len(segments(tmp_path)) == 2

    assert in_child(work) == 0
    spool.append([b"after"])
    assert whole(parents) == [b"before", b"after"]
    spool.shelf.again(out)
    assert drain(spool) == [b"before", b"after", b"child"]


def test_a_child_that_outlives_its_parent_does_not_hold_its_segments(tmp_path: Path) -> None:
    """Fault row 26: what a dead parent left can be adopted while its child lives.

    Locks are shared over a fork, so the child lets go of them.
    """
    ready, say = os.pipe()
    wait, end = os.pipe()

    def parent() -> None:
        spool = open_spool(tmp_path)
        spool.append([b"parent"])
        if os.fork() == 0:
            os.close(end)
            os.write(say, b"x")
            os.read(wait, 1)  # lives until the test ends it
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(parent) == -signal.SIGKILL
    os.close(say)
    assert os.read(ready, 1) == b"x"
    spool = open_spool(tmp_path)
    assert drain(spool) == [b"parent"]
    for descriptor in (ready, wait, end):
        os.close(descriptor)


def test_a_forked_backlog_begins_anew(tmp_path: Path) -> None:
    """Fault row 26: in a child the client's backlog is empty, and records into its own segment."""
    backlog = SpoolBacklog(tmp_path, clock=SystemClock(), report=print)
    resource = {"service.name": "crm"}
    backlog.put([started(1)], resource)

    def work() -> None:
        backlog.after_fork()  # delivery calls it too
        assert backlog.take(10) is None
        assert backlog.ids(10) == []
        backlog.put([started(2)], resource)
        handout = backlog.take(10)
        assert handout is not None
        assert list(handout.events) == [started(2)]
        backlog.close()

    assert in_child(work) == 0
    assert backlog.ids(10) == [started(1).event_id]
    handout = backlog.take(10)
    assert handout is not None
    handout.done([0])
    assert backlog.spool.shelf.adopt()
    handout = backlog.take(10)
    assert handout is not None
    assert list(handout.events) == [started(2)]
    backlog.close()


def test_a_copied_folder_can_be_delivered(tmp_path: Path) -> None:
    """E1: nothing in a folder names a process or a machine.

    A copy of it, as a container's volume mounted again, is delivered by whoever finds it.
    """
    said = killed_after(tmp_path / "first", "record", 1, 50)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    found = texts(drain(open_spool(tmp_path / "copy")))
    assert set(said) <= set(found)
