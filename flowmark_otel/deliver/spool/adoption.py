"""Looking through the folder: what dead processes left, and how much the living ones hold."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

from flowmark_otel.deliver.spool import folder


class Look(NamedTuple):
    """What a look found.

    ``claimed``: segments, as stem and descriptor. ``others``: bytes that living processes hold, by
    stem; a segment that this one began meanwhile is among them.
    ``faults``: files that could not be looked at, as sentences.
    """

    claimed: list[tuple[str, int]]
    others: dict[str, int]
    faults: list[str]


def look(path: Path, mine: Container[str], most: int) -> Look:
    """Claim at most ``most`` segments that no process holds, the oldest first.

    ``mine`` are the stems held already. Left-over files that hold nothing are removed.
    """
    claimed: list[tuple[str, int]] = []
    others: dict[str, int] = {}
    faults: list[str] = []
    for name in sorted(os.listdir(path)):  # noqa: PTH208 - names are all that is needed
        parsed = folder.parse(name)
        if parsed is None or parsed[0] in mine:
            continue
        stem, kind = parsed
        try:
            if kind == folder.ACKS:
                _clear_acks(path, stem)
                continue
            descriptor = folder.claim(path / name) if len(claimed) < most else None
            if descriptor is None:
                others[stem] = others.get(stem, 0) + _size(path / name)
            elif kind == folder.NEW or os.fstat(descriptor).st_size == 0:
                (path / name).unlink()
                os.close(descriptor)
            else:
                claimed.append((stem, descriptor))
        except OSError as error:
            faults.append(f"{name}: {error.strerror}")
    return Look(claimed, others, faults)


def _clear_acks(path: Path, stem: str) -> None:
    """Acknowledgements are made after their segment and removed after it."""
    if not folder.named(path, stem, folder.SEGMENT).exists():
        folder.named(path, stem, folder.ACKS).unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
