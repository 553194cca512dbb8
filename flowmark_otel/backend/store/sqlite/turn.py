"""Whose turn it is to write, among processes on one file.

SQLite lets whoever comes at the right moment have the lock: a process that writes again and again
keeps it from others for seconds, until they give up. Here one process at a time may wait for that
lock; whoever had it last has to queue anew for the waiting place, which is then taken.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_AGAIN_SECONDS: Final = 0.001


@contextmanager
def turn(store: Path, seconds: float) -> Iterator[None]:
    """The waiting place of a store, for as long as it takes to get the store's own lock.

    A lock on an empty file beside the store, which no dead process keeps. Raises OperationalError,
    in SQLite's words, where it is not free within the seconds, or OSError.
    """
    path = store.with_name(f"{store.name}-turn")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        ends = time.monotonic() + seconds
        while not _take(file):
            if time.monotonic() > ends:
                msg = "database is locked"
                raise sqlite3.OperationalError(msg)
            time.sleep(_AGAIN_SECONDS)
        yield
    finally:
        os.close(file)  # and with it the lock


def _take(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
