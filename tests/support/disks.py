"""File systems that fail: a small one that fills up, and calls that answer with an error."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FILLED: Final = "ballast"
_PIECE: Final = 4096


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of its own of so many KiB, in memory; needs root and ``mount``."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def may_mount(folder: Path) -> bool:
    """Whether this process may mount a file system, which takes more than being root."""
    try:
        with small_disk(folder, 64):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def failing(call: str, process: int, control: Path) -> Iterator[None]:
    """Every such call of a process that ``fiu-run -f control`` runs fails with EIO."""
    command = ["fiu-ctrl", "-f", str(control)]
    name = f"posix/io/{call}"
    enable = f"enable name={name},failinfo={errno.EIO}"
    subprocess.run([*command, "-c", enable, str(process)], check=True)
    try:
        yield
    finally:
        subprocess.run([*command, "-c", f"disable name={name}", str(process)], check=True)


def fill(folder: Path) -> None:
    """Take what is left of the file system."""
    with (folder / FILLED).open("ab", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(_PIECE))


def empty(folder: Path) -> None:
    """Give back what ``fill`` took."""
    (folder / FILLED).unlink()
