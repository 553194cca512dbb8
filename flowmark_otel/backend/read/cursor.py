"""Opaque cursors: where the next page of a list begins, bound to the list they came from."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import orjson

from flowmark_otel.backend.read.errors import BadParameter

Position: TypeAlias = tuple[int | str, ...]
"""The values a list is ordered by, of the last item of a page."""

_LONGEST: Final = 8192
_TOO_HIGH: Final = 2**63  # no column holds it


def name_of(name: str, asked: object) -> str:
    """The name of a list under what it is asked for: a cursor goes on in this list alone."""
    told = orjson.dumps(asked, default=bytes.hex)
    return f"{name} {hashlib.blake2b(told, digest_size=8).hexdigest()}"


def encode(name: str, position: Position) -> str:
    """The cursor after ``position`` in the list ``name``."""
    return base64.urlsafe_b64encode(orjson.dumps([name, *position])).decode().rstrip("=")


def decode(name: str, cursor: str | None, kinds: Sequence[type]) -> Position | None:
    """The position a cursor stands for, None without one; ``kinds`` are the types of its values.

    Raises BadParameter for one that the list ``name`` did not give.
    """
    if cursor is None:
        return None
    found = _values(cursor)
    if [name, *kinds] != [*found[:1], *map(type, found[1:])]:
        raise _bad()
    if any(isinstance(value, int) and not 0 <= value < _TOO_HIGH for value in found[1:]):
        raise _bad()
    return tuple(found[1:])


def _values(cursor: str) -> list[Any]:
    if len(cursor) > _LONGEST:
        raise _bad()
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        found = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except ValueError as error:
        raise _bad() from error
    return found if isinstance(found, list) else []


def _bad() -> BadParameter:
    return BadParameter(
        "cursor: is none that this list gave; take it from 'next' of the page before, or leave it"
        " out to begin again"
    )
