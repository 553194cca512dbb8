"""Traces or logs? Their protobuf requests differ only in their items, told apart by wire types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

TRACES: Final = "traces"
LOGS: Final = "logs"

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_SPAN_FIELDS: Final = {(1, _LENGTH), (7, _FIXED64), (8, _FIXED64)}  # trace id, start, end
_RECORD_FIELDS: Final = {(1, _FIXED64), (11, _FIXED64), (2, _VARINT)}  # time, observed, severity
_TO_ITEM: Final = (1, 2, 2)  # resource spans or logs, scope spans or logs, span or record


def signals_by_likelihood(body: bytes) -> tuple[str, str]:
    """Both signals, the one a protobuf request looks like first."""
    for field in _first_item(body, 0):
        if field in _SPAN_FIELDS:
            return TRACES, LOGS
        if field in _RECORD_FIELDS:
            return LOGS, TRACES
    return TRACES, LOGS


def count_items(body: bytes, depth: int = 0) -> int:
    """The spans or log records of a protobuf request, without looking into them."""
    if depth == len(_TO_ITEM):
        return 1
    return sum(
        count_items(value, depth + 1)
        for number, kind, value in _fields(body)
        if number == _TO_ITEM[depth] and kind == _LENGTH
    )


def _first_item(body: bytes, depth: int) -> list[tuple[int, int]]:
    """Number and wire type of the fields of the first item that can be reached."""
    if depth == len(_TO_ITEM):
        return [(number, kind) for number, kind, _ in _fields(body)]
    for number, kind, value in _fields(body):
        if number == _TO_ITEM[depth] and kind == _LENGTH:
            found = _first_item(value, depth + 1)
            if found:
                return found
    return []


def _fields(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a message, with the content of length-delimited ones, up to a broken one."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        kind = tag & 7
        value = b""
        if kind == _LENGTH:
            size, at = _varint(body, at)
            value = body[at : at + size]
            at += size
        elif kind == _VARINT:
            _, at = _varint(body, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return
        yield tag >> 3, kind, value


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
        shift += 7
    return value, at
