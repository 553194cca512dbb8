"""A file that lines are appended to: whole or not at all, synced, and found again when rotated."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODE: Final = 0o640
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Appender:
    """Owns one open file; may be called from any thread, one writes at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: int | None = None

    def open(self) -> None:
        """Open or create it. Raises OSError."""
        with self._lock:
            self._current()

    def append(self, lines: bytes) -> None:
        """Write whole lines and sync them. Raises OSError, and then the file is as it was.

        Who moves the file away, as logrotate does, finds nothing more in it: a new one is begun.
        """
        with self._lock:
            file = self._current()
            size = os.fstat(file).st_size
            try:
                if size and os.pread(file, 1, size - 1) != b"\n":
                    lines = (
                        b"\n" + lines
                    )  # a power failure tore the last line: ours is not part of it
                left = memoryview(lines)
                while left:
                    left = left[os.write(file, left) :]
                os.fsync(file)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)
                self._forget()  # after a failed sync nobody knows what the descriptor holds
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._forget()

    def _current(self) -> int:
        """The descriptor of the file that is at the path now."""
        if self._file is not None:
            held = os.fstat(self._file)
            try:
                there = self._path.stat()
            except FileNotFoundError:
                self._forget()
            else:
                if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino):
                    return self._file
                self._forget()
        self._file = os.open(self._path, _FLAGS, _MODE)
        self._sync_name()
        return self._file

    def _sync_name(self) -> None:
        """A new file is only there after a power failure if its folder was synced."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _forget(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
