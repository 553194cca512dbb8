"""The fields of a protobuf message, one after the other, found in its bytes and nothing built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from flowmark_otel.errors import Unparsable
from flowmark_otel.wire.budget import SHORT, skip, tag_at, varint

_LENGTH = 2
_MORE = 128  # the bit that says another byte of a number follows


class Field(NamedTuple):
    """One field: where it begins with its tag, and, if it is length-delimited, its content.

    ``content`` is None for fields of other wire types.
    """

    number: int
    start: int
    content: int | None
    stop: int


def fields(body: bytes, pos: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``body[pos:end]``, in order.

    Raises Unparsable where they are broken, for groups, and where one passes ``end``.
    """
    try:
        while pos < end:
            start = pos
            tag = body[pos]
            pos += 1
            if tag >= _MORE:
                tag, pos = tag_at(body, start)
            content = None
            if tag & 7 == _LENGTH:
                size = body[pos]
                pos += 1
                if size >= _MORE:
                    size, pos = varint(body, pos - 1, SHORT)
                content = pos
                pos += size
            else:
                pos = skip(body, pos, tag & 7)
            if pos > end or not tag >> 3:
                break
            yield Field(tag >> 3, start, content, pos)
        else:
            return
    except IndexError:
        pass
    msg = "the body is no OTLP request: it ends inside a field, or has one numbered 0"
    raise Unparsable(msg)
