"""Looking through a store for damage before it is served (fault row 27)."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from flowmark_otel.errors import ConfigurationError

LOOK_SECONDS: Final = 1.0
"""A large store is looked through in part: a start must not wait for gigabytes."""

_STEPS: Final = 20_000
_DAMAGED: Final = (
    "--db: {path} is damaged: {finding}. Restore a backup, or save what can be read with"
    " sqlite3 {path} .recover | sqlite3 NEW"
)


def check_file(path: Path, seconds: float = LOOK_SECONDS) -> None:
    """Raises ConfigurationError with what was found first; nothing where there is no file yet."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    ends = time.monotonic() + seconds
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
            finding = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError:
        return  # out of time, or locked: open_store says what cannot be opened
    except sqlite3.DatabaseError as error:
        finding = str(error)
    if finding != "ok":
        said = " ".join(str(finding).split())
        raise ConfigurationError([_DAMAGED.format(path=path, finding=said)])
