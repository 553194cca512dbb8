"""Where the items of an OTLP request are, found in its bytes before anything is parsed.

Requests for traces and logs have the same frame: request { 1: resource group }, resource group
{ 1: resource, 2: scope group }, scope group { 2: item }. Only marked items are ever parsed, so
what is not ours costs a few comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from flowmark_otel.errors import Unparsable

MARK: Final = b"flowmark."

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_MAX_VARINT: Final = 10
_MORE: Final = 128  # the bit that says another byte of a number follows

_FIRST_TAG: Final = 8  # of field 1; smaller ones have number 0

_FIRST: Final = 1
_SECOND: Final = 2


class Marked(NamedTuple):
    """An item that holds the mark: its position, its bytes, and those of its resource."""

    position: int
    item: bytes
    resource: bytes


class Scanned(NamedTuple):
    """What a scan found; ``items`` counts all of them, and is 0 where nothing is marked."""

    items: int
    marked: list[Marked]


def scan(body: bytes) -> Scanned:
    """Find the marked items of a request. Raises Unparsable where the frame is broken."""
    try:
        groups = list(_children(body, 0, len(body), _FIRST))
        if MARK not in body:
            return Scanned(0, [])
        return _scan_groups(body, groups)
    except IndexError as error:
        msg = "the body is no OTLP request: it ends inside a field"
        raise Unparsable(msg) from error


def _scan_groups(body: bytes, groups: list[tuple[int, int]]) -> Scanned:
    position = 0
    marked: list[Marked] = []
    find = body.find
    for start, end in groups:
        resource: bytes | None = None
        for scope_start, scope_end in _children(body, start, end, _SECOND):
            next_mark = find(MARK, scope_start, scope_end)
            for item_start, item_end in _children(body, scope_start, scope_end, _SECOND):
                if 0 <= next_mark < item_start:
                    next_mark = find(MARK, item_start, scope_end)
                if item_start <= next_mark < item_end:
                    if resource is None:
                        resource = _resource(body, start, end)
                    marked.append(Marked(position, body[item_start:item_end], resource))
                position += 1
    return Scanned(position, marked)


def _resource(body: bytes, start: int, end: int) -> bytes:
    """The resource's bytes; repeated occurrences merge by concatenation, as protobuf has it."""
    return b"".join(body[a:b] for a, b in _children(body, start, end, _FIRST))


def _children(body: bytes, pos: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """The bounds of the length-delimited fields numbered ``wanted`` of one message."""
    while pos < end:
        tag = body[pos]
        pos += 1
        if tag >= _MORE:
            tag, pos = _varint(body, pos - 1)
        kind = tag & 7
        if tag < _FIRST_TAG:
            msg = "the body is no OTLP request: it has a field numbered 0"
            raise Unparsable(msg)
        if kind == _LENGTH:
            size = body[pos]
            pos += 1
            if size >= _MORE:
                size, pos = _varint(body, pos - 1)
            stop = pos + size
            if stop > end:
                msg = "the body is no OTLP request: a field is longer than what holds it"
                raise Unparsable(msg)
            if tag >> 3 == wanted:
                yield pos, stop
            pos = stop
            continue
        if tag >> 3 == wanted:
            msg = f"the body is no OTLP request: field {wanted} has wire type {kind}"
            raise Unparsable(msg)
        pos = _skip(body, pos, kind)
    if pos != end:
        msg = "the body is no OTLP request: a field is longer than what holds it"
        raise Unparsable(msg)


def _skip(body: bytes, pos: int, kind: int) -> int:
    if kind == _VARINT:
        return _varint(body, pos)[1]
    if kind == _FIXED64:
        return pos + 8
    if kind == _FIXED32:
        return pos + 4
    msg = f"the body is no OTLP request: wire type {kind}"
    raise Unparsable(msg)


def _varint(body: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(_MAX_VARINT):
        byte = body[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < _MORE:
            return value, pos
        shift += 7
    msg = "the body is no OTLP request: a number has more than ten bytes"
    raise Unparsable(msg)
