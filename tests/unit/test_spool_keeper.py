"""The thread behind a spool: it syncs within a second and looks for what was left (E1)."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from flowmark_otel import names
from flowmark_otel.clock import SystemClock
from flowmark_otel.deliver.spool import Spool
from flowmark_otel.deliver.spool.keeper import LOOK_EVERY_S, SYNC_AFTER_S, Keeper
from flowmark_otel.deliver.spool.quarantine import sync
from flowmark_otel.model import Diagnostic
from tests.support.spooling import open_spool

WAIT = 30


class HandClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds, as set."""
        return self.now


class Pause:
    """Lets a test see how long the thread wants to wait, and end the wait."""

    def __init__(self) -> None:
        self.asked: queue.Queue[float] = queue.Queue()
        self.over = threading.Semaphore(0)

    def __call__(self, seconds: float) -> None:
        """Wait until the test lets go."""
        self.asked.put(seconds)
        assert self.over.acquire(timeout=WAIT)


def kept(path: Path, pause: Pause, clock: HandClock) -> tuple[Spool, Keeper, threading.Event]:
    """A spool, its keeper, not begun, and an event that is set when something was adopted."""
    found = threading.Event()
    spool = Spool(path, clock=clock, report=print, on_append=lambda: keeper.appended())  # noqa: PLW0108 - it is made below
    keeper = Keeper(spool, clock, found.set, pause)
    return spool, keeper, found


def test_what_was_appended_is_synced_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E1: the sync begins half a second after the first append that is not synced.

    What comes later gets one of its own; nothing is synced where nothing is new.
    """
    synced: queue.Queue[int] = queue.Queue()
    go = threading.Semaphore(0)

    def watched(descriptor: int) -> None:
        assert go.acquire(timeout=WAIT)
        sync(descriptor)
        synced.put(descriptor)

    monkeypatch.setattr("flowmark_otel.deliver.spool.spool.sync", watched)
    pause = Pause()
    spool, keeper, _ = kept(tmp_path, pause, HandClock())
    first = spool.append([b"one"])
    assert pause.asked.get(timeout=WAIT) == SYNC_AFTER_S < 1
    second = spool.append([b"two"])
    assert not spool.is_synced(first)
    pause.over.release()
    go.release()
    synced.get(timeout=WAIT)

    third = spool.append([b"three"])
    assert pause.asked.get(timeout=WAIT) == SYNC_AFTER_S
    assert spool.is_synced(first)
    assert spool.is_synced(second)
    assert not spool.is_synced(third)
    pause.over.release()
    go.release()
    synced.get(timeout=WAIT)
    keeper.stop()
    assert spool.is_synced(third)
    assert pause.asked.empty()
    assert synced.empty()
    go.release()
    spool.close()


def test_who_listens_badly_stops_no_sync(tmp_path: Path) -> None:
    """E1: an error in what is called about adopted records is reported; syncs go on."""
    left = open_spool(tmp_path)
    left.append([b"left"])
    left.close()
    told: queue.Queue[Diagnostic] = queue.Queue()
    spool = Spool(tmp_path, clock=SystemClock(), report=told.put)

    def fail() -> None:
        raise RuntimeError

    pause = Pause()
    keeper = Keeper(spool, SystemClock(), fail, pause)
    keeper.start()
    assert told.get(timeout=WAIT).code == names.DIAGNOSTIC_INTERNAL
    mark = spool.append([b"own"])
    keeper.appended()
    assert pause.asked.get(timeout=WAIT) == SYNC_AFTER_S
    pause.over.release()
    keeper.stop()
    assert spool.is_synced(mark)
    spool.close()


def test_what_dies_while_we_live_is_adopted(tmp_path: Path) -> None:
    """E1: what other processes leave is found at the start and every few seconds, and synced."""
    clock = HandClock()
    pause = Pause()
    early, late = open_spool(tmp_path), open_spool(tmp_path)
    early.append([b"early"])
    late.append([b"late"])
    early.shelf.forget()
    spool, keeper, found = kept(tmp_path, pause, clock)
    keeper.start()
    assert found.wait(WAIT)
    assert [each.payload for each in spool.shelf.take(9)] == [b"early"]
    found.clear()
    late.shelf.forget()
    clock.now += LOOK_EVERY_S
    spool.append([b"own"])  # ends the wait, so that the clock is looked at
    pause.asked.get(timeout=WAIT)
    pause.over.release()
    assert found.wait(WAIT)
    records = spool.shelf.take(9)
    assert sorted(each.payload for each in records) == [b"late", b"own"]
    assert all(each.segment.synced == each.end for each in records)
    keeper.stop()
    spool.close()
