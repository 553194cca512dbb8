"""The spool's folder: private, on a local file system, and what the files in it are called.

``<created, 20 digits of epoch ns>-<16 hex digits>.v1.<kind>``, where the kind is ``spool`` (a
segment), ``acks`` (of the segment of that name) or ``new`` (a segment that nobody may see yet).
A file of another version is left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from flowmark_otel.errors import ConfigurationError

SEGMENT: Final = "spool"
ACKS: Final = "acks"
NEW: Final = "new"
QUARANTINE: Final = "quarantine"

_NAME: Final = re.compile(r"(\d{20}-[0-9a-f]{16})\.v1\.(spool|acks|new)")
_TRIES: Final = 10


def prepare(path: Path) -> None:
    """Make the folder, or check the one that is there; ConfigurationError says what is wrong.

    It must be a folder of this user that not everybody may write to: whoever can write into it
    can forge evidence.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise ConfigurationError([f"spool folder {path}: {error.strerror}"]) from error
    faults = []
    if found.st_uid != os.geteuid():
        faults.append(f"spool folder {path} belongs to another user (uid {found.st_uid})")
    if found.st_mode & stat.S_IWOTH:
        faults.append(f"spool folder {path} can be written by everybody; name a folder inside it")
    if not faults and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        faults.append(f"spool folder {path} cannot be written")
    if faults:
        raise ConfigurationError(faults)


def stem(time_unix_nano: int) -> str:
    """A name that nobody else takes, in order of time."""
    return f"{max(time_unix_nano, 0):020d}-{secrets.token_hex(8)}"


def named(path: Path, name: str, kind: str) -> Path:
    """The file of that stem and kind."""
    return path / f"{name}.v1.{kind}"


def parse(name: str) -> tuple[str, str] | None:
    """Stem and kind of a file name; None for what is not ours or of another version."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2]) if found else None


def create(path: Path, time_unix_nano: int, kind: str = SEGMENT) -> tuple[str, int]:
    """A new, empty, locked file: its stem, and its descriptor.

    It gets its name only once it is locked, so nobody can take it for an orphan before.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(_TRIES):
        name = stem(time_unix_nano)
        hidden = named(path, name, NEW)
        descriptor = os.open(hidden, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(named(path, name, kind))
        except (BlockingIOError, FileNotFoundError):  # somebody cleared it away as left over
            os.close(descriptor)
            hidden.unlink(missing_ok=True)
        except BaseException:
            os.close(descriptor)
            raise
        else:
            return name, descriptor
    raise OSError(errno.EBUSY, "new files in the spool folder are cleared away", str(path))


def claim(path: Path) -> int | None:
    """A locked descriptor of a file that no living process holds; None where one does.

    The lock goes with the open file, so it ends with its process however that ends, and neither
    a reused process id nor a restarted container can be taken for the owner.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(descriptor)
        if found.st_nlink > 0 and stat.S_ISREG(found.st_mode):  # not removed while we opened it
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def sync_names(path: Path) -> None:
    """Make the names of new files survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
