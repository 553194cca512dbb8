"""One log record as bytes, written field by field in the order of the fields' numbers.

By hand, because building the stock messages costs three times what recording a span may cost, and
importing them more than the whole client; a law compares every byte with what they write. Pairs
of key and value that occur again are kept.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import Envelope, Value, event_id

_RECORD: Final = b"\x12"  # field 2 of the group of a scope
_TIME: Final = Struct("<BQ")  # field 1, fixed64
TIME_TAG: Final = 0x09
_ATTRIBUTE: Final = b"\x32"  # field 6
_DROPPED: Final = b"\x38"  # field 7
TRACE_ID: Final = b"\x4a\x10"  # field 9, 16 bytes
SPAN_ID: Final = b"\x52\x08"  # field 10, 8 bytes
_EVENT_NAME: Final = b"\x62"  # field 12
_KEY: Final = b"\x0a"  # field 1 of a pair
_VALUE: Final = b"\x12"  # field 2 of a pair
_STRING: Final = b"\x0a"  # field 1 of a value
_FALSE: Final = b"\x10\x00"  # field 2 of a value
_TRUE: Final = b"\x10\x01"
_INTEGER: Final = b"\x18"  # field 3 of a value
_DOUBLE: Final = Struct("<Bd")  # field 4 of a value, fixed64
_DOUBLE_TAG: Final = 0x21
_MAX_UINT64: Final = 2**64 - 1

_MORE: Final = 128  # the bit that says another byte of a number follows
_TWO_BYTES: Final = 1 << 14
_THREE_BYTES: Final = 1 << 21
_FOUR_BYTES: Final = 1 << 28
_FIVE_BYTES: Final = 1 << 35


def encode_record(envelope: Envelope) -> bytes:
    """One envelope as the bytes of a LogRecord. Raises OverflowError for a time over 64 bits."""
    event, trace_id, span_id, part, time_unix_nano, attributes, dropped, _ = envelope
    named, name = _EVENTS[event]
    parts = [
        _time(time_unix_nano),
        named,
        _id_pair(trace_id, span_id, part),
    ]
    texts, numbers = _TEXTS, _NUMBERS
    for pair in attributes.items():
        kind = type(pair[1])
        if kind is str:
            parts.append(texts.get(pair) or _text(pair))
        elif kind is int:
            parts.append(numbers.get(pair) or _number(pair))
        else:
            parts.append(encode_pair(*pair))
    if dropped:
        parts += (_DROPPED, varint(dropped))
    parts += (TRACE_ID, trace_id, SPAN_ID, span_id, name)
    return b"".join(parts)


def _time(time_unix_nano: int) -> bytes:
    if not time_unix_nano:
        return b""
    try:
        return _TIME.pack(TIME_TAG, time_unix_nano)
    except struct.error as error:  # of a spool that nobody of ours has written
        msg = "a time has 64 bits"
        raise OverflowError(msg) from error


_TEXTS: Final[dict[tuple[str, Value], bytes]] = {}
_NUMBERS: Final[dict[tuple[str, Value], bytes]] = {}
"""Pairs as they were written, texts apart from integers, others never: 1 == True == 1.0. Shared
by threads: a lost entry is written again."""

_ONCE: Final = frozenset((names.OPERATION_ID, names.DURATION_NS))
"""Keys whose values do not occur again: they would only push others out."""

_MAX_MEMO: Final = 4096
_MAX_REMEMBERED: Final = 256


def _text(pair: tuple[str, Value]) -> bytes:
    key = pair[0]
    written = encode_pair(*pair)
    return written if key in _ONCE else _remember(_TEXTS, pair, written)


def _number(pair: tuple[str, Value]) -> bytes:
    key = pair[0]
    written = encode_pair(*pair)
    return written if key in _ONCE else _remember(_NUMBERS, pair, written)


def encode_pair(key: str, value: Value) -> bytes:
    """A pair of key and value, as a field of its record."""
    if isinstance(value, str):
        written = _STRING + sized(value.encode())
    elif isinstance(value, bool):
        written = _TRUE if value else _FALSE
    elif isinstance(value, int):
        written = _INTEGER + varint(value & _MAX_UINT64)
    else:
        written = _DOUBLE.pack(_DOUBLE_TAG, value)
    return _attribute(_key(key), written)


def _remember(
    memo: dict[tuple[str, Value], bytes], pair: tuple[str, Value], written: bytes
) -> bytes:
    """Keep a written pair unless it is long; a full memo begins anew."""
    if len(written) <= _MAX_REMEMBERED:
        if len(memo) >= _MAX_MEMO:
            memo.clear()
        memo[pair] = written
    return written


def _id_pair(trace_id: bytes, span_id: bytes, part: str) -> bytes:
    """The pair that holds the event id."""
    form = _FORMS.get(part)
    if form is not None:  # ids of these parts have one length, so all before them is the same
        head, kind, rest = form
        return b"%b%b-%b-%b-%b" % (
            head,
            kind,
            trace_id.hex().encode(),
            span_id.hex().encode(),
            rest,
        )
    return _attribute(
        _key(names.EVENT_ID), _STRING + sized(event_id(trace_id, span_id, part).encode())
    )


def _key(key: str) -> bytes:
    """The first half of a pair, up to its value's length."""
    return _KEYS.get(key) or b"".join((_KEY, sized(key.encode()), _VALUE))


_KEYS: Final[dict[str, bytes]] = {}


def _attribute(key: bytes, value: bytes) -> bytes:
    return _ATTRIBUTE + sized(key + sized(value))


def sized(payload: bytes) -> bytes:
    """A payload behind its length."""
    size = len(payload)
    return (_SMALL[size] if size < _MORE else varint(size)) + payload


_SMALL: Final = [bytes((size,)) for size in range(_MORE)]


def varint(number: int) -> bytes:
    """A number of 64 bits, seven of them a byte, the lowest first."""
    if number < _MORE:
        return _SMALL[number]
    if number < _TWO_BYTES:
        return bytes((number & 127 | _MORE, number >> 7))
    if _THREE_BYTES <= number < _FIVE_BYTES:  # most durations
        first, second, third = number & 127 | _MORE, number >> 7 & 127 | _MORE, number >> 14 & 127
        if number < _FOUR_BYTES:
            return bytes((first, second, third | _MORE, number >> 21))
        fourth = number >> 21 & 127 | _MORE
        return bytes((first, second, third | _MORE, fourth, number >> 28))
    written = []
    while number >= _MORE:
        written.append(number & 127 | _MORE)
        number >>= 7
    written.append(number)
    return bytes(written)


_KEYS.update(
    (key, _key(key))
    for key in (
        *names.IDENTITY_KEYS,
        names.OPERATION_NAME,
        names.OPERATION_ID,
        *names.ATTEMPT_START_KEYS,
        *names.RUN_START_KEYS,
        names.DURATION_NS,
        names.EVENT_ID,
        names.ERROR_CODE,
        names.ERROR_TYPE,
    )
)

_EVENTS: Final = {
    # The event name stands among the attributes too, because older hops drop the field.
    event: (_text((names.EVENT_NAME, event)), _EVENT_NAME + sized(event.encode()))
    for event in (*names.PART_OF_EVENT, names.ATTEMPT_OBSERVED)
}


def _form(part: str) -> tuple[bytes, bytes, bytes]:
    """What stands before the event id of a part, its kind, and its rest."""
    sample = event_id(bytes(16), bytes(8), part).encode()
    whole = _attribute(_key(names.EVENT_ID), _STRING + sized(sample))
    kind, _, rest = part.partition("-")
    return whole[: -len(sample)], kind.encode(), rest.encode()


_FORMS: Final = {part: _form(part) for part in set(names.PART_OF_EVENT.values())}


# -- for those who write a record in pieces ------------------------------------------------------
class Outline(NamedTuple):
    """What of a record is the same for all events of one name and part.

    A record is its time, ``before``, the ids as text, ``after``, its pairs, the ids, ``name``.
    ``size``: all of it in bytes, but the pairs.
    """

    before: bytes
    after: bytes
    name: bytes
    size: int


def outline_of(event: str, part: str) -> Outline:
    """The outline of events of one name; ``part`` is none of an observed try."""
    named, name = _EVENTS[event]
    head, kind, rest = _FORMS[part]
    before, after = b"%b%b%b-" % (named, head, kind), b"-" + rest
    size = _TIME.size + len(before) + _TEXT + len(after) + len(TRACE_ID) + 16 + len(SPAN_ID) + 8
    return Outline(before, after, name, size + len(name))


_TEXT: Final = 49  # of both ids

TIME: Final = _TIME.pack
"""A record's time, if it is known: ``TIME(TIME_TAG, epoch nanoseconds)``."""


def encode_duration(duration_ns: int) -> bytes:
    """The pair of a duration."""
    number = varint(duration_ns)
    return _DURATIONS[len(number)] + number


_DURATIONS: Final = {
    # What stands before a number depends on how many bytes it takes, one for each seven bits.
    size: encode_pair(names.DURATION_NS, (1 << 7 * size) - 1)[:-size]
    for size in range(1, 10)
}


class _Frames(dict[int, bytes]):
    """What stands before a record of so many bytes in the group of its scope."""

    def __missing__(self, size: int) -> bytes:
        """Made when it is needed first."""
        if len(self) >= _MAX_MEMO:
            self.clear()
        frame = self[size] = _RECORD + varint(size)
        return frame


FRAMES: Final = _Frames()
