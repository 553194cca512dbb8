"""Where a store of a test is: a file of SQLite's, or the URL of a database."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

Place: TypeAlias = Path | str
"""The path of a file, or a URL."""


def url_of(store: Place) -> str:
    """The URL of a store."""
    return f"sqlite:///{store}" if isinstance(store, Path) else store
