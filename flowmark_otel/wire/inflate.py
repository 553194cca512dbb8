"""Decompression that stops one byte after the limit, whatever a body promises.

Fault rows 16 and 17.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from flowmark_otel.errors import TooLarge, Unparsable

GZIP_MAGIC: Final = b"\x1f\x8b"
MAX_MEMBERS: Final = 1024

_GZIP: Final = 16 + zlib.MAX_WBITS
_STEP: Final = 64 * 1024
_PIECE: Final = 1024 * 1024


def gunzip(body: bytes, limit: int, grow: Callable[[int], None] | None = None) -> bytes:
    """Decompress a gzip body of one or more members into at most ``limit`` bytes.

    ``grow`` is told of every piece's length and raises where there is no room for it.
    Raises TooLarge beyond ``limit`` bytes or ``MAX_MEMBERS`` members, Unparsable if the body is
    corrupt, cut short, or goes on after its last member.
    """
    parts: list[bytes] = []
    room = limit + 1
    members = 1
    member = zlib.decompressobj(_GZIP)
    # In steps: a member's end leaves a copy of the rest of its step, not of the whole body.
    for start in range(0, len(body), _STEP):
        left = body[start : start + _STEP]
        while left:
            if member.eof:
                members += 1
                member = zlib.decompressobj(_GZIP)
            if members > MAX_MEMBERS:
                msg = f"the gzip body has more than {MAX_MEMBERS} members"
                raise TooLarge(msg)
            try:
                # In pieces: a step of a bomb is a thousand times as long as it looks.
                part = member.decompress(left, min(room, _PIECE))
            except zlib.error as error:
                msg = "the gzip body is corrupt"
                raise Unparsable(msg) from error
            room -= len(part)
            if room <= 0:
                msg = f"the decompressed body is over the limit of {limit} bytes"
                raise TooLarge(msg)
            if grow is not None:
                grow(len(part))
            parts.append(part)
            left = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        msg = "the gzip body is cut short"
        raise Unparsable(msg)
    return b"".join(parts)
