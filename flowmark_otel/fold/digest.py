"""The digest by which two arrivals of one event id are told apart (contract, section 2).

It covers our canonical payload only: what hops change (resource, scope, flags, observed time) is
never part of it, nor are values taken from defaults.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from flowmark_otel import names
from flowmark_otel.model import Envelope, Value

_LEFT_OUT: Final = frozenset(
    (names.EVENT_ID, names.EVENT_NAME, names.DEFAULTED, names.DURATION_NS),
)
_LENGTH: Final = struct.Struct(">I").pack
_DOUBLE: Final = struct.Struct(">d").pack


def digest(envelope: Envelope) -> bytes:
    """The SHA-256 of an envelope's canonical row of fields; 32 bytes."""
    fields = [envelope.event, envelope.event_id, str(envelope.time_unix_nano)]
    attributes = envelope.attributes
    defaulted = attributes.get(names.DEFAULTED)
    left_out = _LEFT_OUT.union(defaulted.split(",")) if isinstance(defaulted, str) else _LEFT_OUT
    carried = (key for key in attributes if key.startswith(names.PREFIX) and key not in left_out)
    for key in sorted(carried, key=str.encode):
        fields.append(key)
        fields.extend(_typed(attributes[key]))
    row = bytearray()
    for field in fields:
        raw = field.encode()
        row += _LENGTH(len(raw))
        row += raw
    return hashlib.sha256(row).digest()


def _typed(value: Value) -> tuple[str, str]:
    """The type letter and the text of a value."""
    if isinstance(value, str):
        return "s", value
    if isinstance(value, bool):
        return "b", "true" if value else "false"
    if isinstance(value, int):
        return "i", str(value)
    # Adding zero turns -0.0 into 0.0 and leaves every other double as it is.
    return "d", _DOUBLE(value + 0.0).hex()
