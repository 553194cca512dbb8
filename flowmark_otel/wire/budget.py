"""What one request may be made of, whatever its size: the budgets of a structural scan.

A few bytes can stand for an object of hundreds. So bodies are held against these before anything
is built from them (fault rows 17 and 21). What is over a request's budget is TooLarge: its sender
can send it in parts. What is over an item's budget costs that item alone.
"""

from __future__ import annotations

from typing import Final

from flowmark_otel.errors import TooLarge, Unparsable

MAX_ITEMS: Final = 65_536
"""Spans or log records of a request, the groups that hold them, and exceptions of annotated
spans."""
MAX_ANNOTATED: Final = 16_384
"""Spans or log records that carry a key of ours, and observed attempts in them: each becomes one
or two events of some kilobytes."""
MAX_FIELDS: Final = 1 << 20
"""Fields of the items and events that are looked at: attributes, events and links above all."""
MAX_ITEM_FIELDS: Final = 131_072
"""The same of one item, of one of its events, or of one resource."""
MAX_FRAME_FIELDS: Final = 1 << 19
"""Fields of the request and its groups beside the items: resources, scopes, schemas, unknown."""
MAX_JSON_VALUES: Final = 1 << 21
"""Opening braces and brackets and commas of a JSON body, also those inside of its texts."""

PLAIN: Final = 64 * 1024
"""What is no longer than this is parsed without a walk: so few bytes cannot become much."""

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_MORE: Final = 128  # the bit that says another byte of a number follows
_MAX_VARINT: Final = 10
SHORT: Final = 5
"""Bytes of a tag or a length at most: parsers read no more."""
_MAX_TAG: Final = (1 << 32) - 1
_EVENTS: Final = 11 << 3 | _LENGTH


class OverBudgetError(Exception):
    """An item that is made of too many parts; the request goes on without it."""

    def __init__(self) -> None:
        super().__init__(
            f"the item, one of its events or its resource has more than {MAX_ITEM_FIELDS} fields;"
            " set a limit on the number of attributes"
        )


class Budget:
    """What is left of one request's budgets."""

    __slots__ = ("_annotated", "_fields", "_frame", "_items")

    def __init__(self) -> None:
        self._items = MAX_ITEMS
        self._annotated = MAX_ANNOTATED
        self._fields = MAX_FIELDS
        self._frame = MAX_FRAME_FIELDS

    def items(self, count: int) -> None:
        """Take items, groups or exceptions. Raises TooLarge."""
        self._items -= count
        if self._items < 0:
            msg = f"the request has more than {MAX_ITEMS} spans or log records with their groups"
            raise TooLarge(msg)

    def annotated(self, count: int = 1) -> None:
        """Take annotated items or observed attempts. Raises TooLarge."""
        self._annotated -= count
        if self._annotated < 0:
            msg = f"the request has more than {MAX_ANNOTATED} annotated spans or log records"
            raise TooLarge(msg)

    def frame(self) -> None:
        """Take one field of the frame. Raises TooLarge."""
        self._frame -= 1
        if self._frame < 0:
            msg = f"the request has more than {MAX_FRAME_FIELDS} fields beside its items"
            raise TooLarge(msg)

    def fields(self, count: int) -> None:
        """Take the fields of one message. Raises OverBudgetError, or TooLarge for the request."""
        self._fields -= count
        if self._fields < 0:
            msg = f"the request has more than {MAX_FIELDS} attributes, events and links"
            raise TooLarge(msg)
        if count > MAX_ITEM_FIELDS:
            raise OverBudgetError

    def walk(self, body: bytes, start: int, end: int) -> None:
        """Take the fields of a message that is still to be parsed, walking no further than needed.

        Long span events inside of it are walked too. Raises OverBudgetError, or TooLarge for the
        request. What is broken is left to its parser.
        """
        events: list[tuple[int, int]] = []
        self.fields(_count(body, start, end, self._fields + 1, events))
        for event in events:
            self.fields(_count(body, *event, self._fields + 1))


def admit_json(body: bytes) -> None:
    """Refuse a JSON body that would become too many objects. Raises TooLarge."""
    if len(body) > MAX_JSON_VALUES and (
        body.count(b",") + body.count(b"{") + body.count(b"[") > MAX_JSON_VALUES
    ):
        msg = f"the JSON body has more than {MAX_JSON_VALUES} values"
        raise TooLarge(msg)


def tag_at(body: bytes, pos: int) -> tuple[int, int]:
    """As ``varint``, of the tag of a field: a number of 32 bits, as all parsers have it."""
    tag, end = varint(body, pos, SHORT)
    if tag > _MAX_TAG:
        msg = "the body is no OTLP request: a field's number is too large"
        raise Unparsable(msg)
    return tag, end


def varint(body: bytes, pos: int, most: int = _MAX_VARINT) -> tuple[int, int]:
    """The number at ``pos`` and where it ends, of at most so many bytes.

    Raises Unparsable, IndexError at the body's end.
    """
    value = shift = 0
    for _ in range(most):
        byte = body[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < _MORE:
            return value, pos
        shift += 7
    msg = f"the body is no OTLP request: a number has more than {most} bytes"
    raise Unparsable(msg)


def skip(body: bytes, pos: int, kind: int) -> int:
    """Where a field that is not length-delimited ends. Raises Unparsable for groups."""
    if kind == _VARINT:
        return varint(body, pos)[1]
    if kind == _FIXED64:
        return pos + 8
    if kind == _FIXED32:
        return pos + 4
    msg = f"the body is no OTLP request: wire type {kind}"
    raise Unparsable(msg)


def _count(
    body: bytes, pos: int, end: int, most: int, events: list[tuple[int, int]] | None = None
) -> int:
    """The number of fields of a message, at most ``most``; those before a broken one.

    ``events`` takes the bounds of what would be long events if the message is a span; a log record
    has no field of their number, a resource none that is read.
    """
    found = 0
    try:
        while pos < end and found < most:
            found += 1
            tag = body[pos]
            pos += 1
            if tag >= _MORE:
                tag, pos = varint(body, pos - 1)
            if tag & 7 != _LENGTH:
                pos = skip(body, pos, tag & 7)
                continue
            size = body[pos]
            pos += 1
            if size >= _MORE:
                size, pos = varint(body, pos - 1)
            if size > PLAIN and tag == _EVENTS and events is not None:
                events.append((pos, min(pos + size, end)))
            pos += size
    except (IndexError, Unparsable):
        return found
    return found
