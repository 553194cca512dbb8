"""One OTLP request → two, each with some of its items and all that those need.

A request in protobuf is cut in its bytes: an item, its resource, scope and schema URL, and every
field that is not known here stay as they were, repeated occurrences included. So what is done to
one span of a batch changes no byte of another (contract, section 9). A request in JSON is cut in
its objects, whose values stay the same.

A group goes where its items go; one without items, or what else a request holds, stays with the
rest. Positions count from 0 through all resources and scopes, as ``scan`` counts them.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, Final, NamedTuple

from flowmark_otel.errors import Unparsable
from flowmark_otel.wire import bare, decode_json
from flowmark_otel.wire.decode_json import Names
from flowmark_otel.wire.records import sized
from flowmark_otel.wire.walk import fields

_HOLDING: Final = (1, 2, 2)  # resource groups of a request, scope groups of those, their items
_ITEMS: Final = len(_HOLDING) - 1
_TAGS: Final = (b"\x0a", b"\x12")

_JSON: Final = "json"
_SHAPES: Final = {"traces": decode_json.TRACES, "logs": decode_json.LOGS}


class Parts(NamedTuple):
    """Two requests in the encoding of the one they are made of; one without items is empty."""

    taken: bytes
    rest: bytes


def split(
    body: bytes, positions: Container[int], *, encoding: str = "protobuf", signal: str = "traces"
) -> Parts:
    """The items at ``positions``, and the others. Raises Unparsable."""
    if encoding == _JSON:
        return _split_json(body, _SHAPES[signal], positions)
    taken, rest = _Splitting(body, positions).message(0, 0, len(body))
    return Parts(taken or b"", rest or b"")


def halves(body: bytes, *, encoding: str = "protobuf", signal: str = "traces") -> Parts | None:
    """The first half of the items and the second, None if there are not two. Raises Unparsable."""
    found = count(body, encoding=encoding, signal=signal)
    if found <= 1:
        return None
    return split(body, range(found // 2), encoding=encoding, signal=signal)


def count(body: bytes, *, encoding: str = "protobuf", signal: str = "traces") -> int:
    """The number of items. Raises Unparsable."""
    if encoding == _JSON:
        counting = _JsonSplitting(_SHAPES[signal], ())
        counting.request(decode_json.load_object(body))
        return counting.position
    found = bare.count(body)
    return _count(body, 0, 0, len(body)) if found is None else found


def _count(body: bytes, level: int, start: int, end: int) -> int:
    found = 0
    for number, _, content, stop in fields(body, start, end):
        if number == _HOLDING[level]:
            if content is None:
                raise _wrong_type(number)
            found += 1 if level == _ITEMS else _count(body, level + 1, content, stop)
    return found


class _Splitting:
    """One walk through a request; ``_position`` is that of the next item."""

    __slots__ = ("_body", "_position", "_positions")

    def __init__(self, body: bytes, positions: Container[int]) -> None:
        self._body = body
        self._positions = positions
        self._position = 0

    def message(self, level: int, start: int, end: int) -> tuple[bytes | None, bytes | None]:
        """What of a message goes with the items that are taken, and with the rest.

        None where nothing does; one side alone has the message's own bytes.
        """
        body, wanted = self._body, _HOLDING[level]
        taken: list[bytes] = []
        rest: list[bytes] = []
        takes = leaves = False
        for number, begin, content, stop in fields(body, start, end):
            if number != wanted:
                other = body[begin:stop]
                taken.append(other)
                rest.append(other)
                continue
            if content is None:
                raise _wrong_type(number)
            if level == _ITEMS:
                chosen = self._position in self._positions
                self._position += 1
                (taken if chosen else rest).append(body[begin:stop])
                takes, leaves = takes or chosen, leaves or not chosen
                continue
            with_taken, with_rest = self.message(level + 1, content, stop)
            if with_taken is not None:
                taken.append(_TAGS[level] + sized(with_taken))
                takes = True
            if with_rest is not None:
                rest.append(_TAGS[level] + sized(with_rest))
                leaves = True
        if not takes:
            return None, body[start:end]
        if not leaves:
            return body[start:end], None
        return b"".join(taken), b"".join(rest)


def _wrong_type(number: int) -> Unparsable:
    return Unparsable(f"the body is no OTLP request: field {number} is not length-delimited")


def _split_json(body: bytes, shape: Names, positions: Container[int]) -> Parts:
    taken, rest = _JsonSplitting(shape, positions).request(decode_json.load_object(body))
    return Parts(_written(taken), _written(rest))


def _written(document: dict[str, Any] | None) -> bytes:
    """JSON as it can be sent again: letters that are none stay escaped."""
    return json.dumps(document or {}, separators=(",", ":")).encode()


class _JsonSplitting:
    """The same walk through a JSON document."""

    __slots__ = ("_names", "_positions", "position")

    def __init__(self, shape: Names, positions: Container[int]) -> None:
        self._names = (shape.groups, shape.scopes, shape.items)
        self._positions = positions
        self.position = 0

    def request(
        self, document: dict[str, Any]
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """As ``_Splitting.message``, of the whole document."""
        return self._object(0, document)

    def _object(
        self, level: int, holder: dict[str, Any]
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        name = self._names[level]
        taken: list[Any] = []
        rest: list[Any] = []
        if level == _ITEMS:
            for item in decode_json.list_of(holder, name, self._names[level - 1]):
                (taken if self.position in self._positions else rest).append(item)
                self.position += 1
        else:
            where = self._names[level - 1] if level else "the body"
            for child in decode_json.objects_of(holder, name, where):
                with_taken, with_rest = self._object(level + 1, child)
                if with_taken is not None:
                    taken.append(with_taken)
                if with_rest is not None:
                    rest.append(with_rest)
        if not taken:
            return None, holder
        if not rest:
            return holder, None
        return {**holder, name: taken}, {**holder, name: rest}
