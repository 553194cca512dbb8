"""OTLP requests from protobuf to JSON and back, whole, for what speaks the other encoding.

As the OTLP specification has it: ids in hex, 64-bit integers as strings, enums as integers, bytes
in base64; fields that nobody knows are not carried. What ``scan`` accepts is never refused: text
that is no UTF-8 is replaced, and an item that cannot be read is carried as its bytes, in the
other encoding none. JSON is written in ASCII, on one line.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from flowmark_otel import names
from flowmark_otel.wire import decode_json, whole
from flowmark_otel.wire.budget import admit_json
from flowmark_otel.wire.records import sized
from flowmark_otel.wire.walk import fields

_IDS: Final = frozenset(("traceId", "spanId", "parentSpanId"))
_FIRST: Final = b"\x0a"
_SECOND: Final = b"\x12"
_GROUPS: Final = 1  # of a request
_HELD: Final = 2  # scope groups of a resource group, items of a scope group


class Transcoded(NamedTuple):
    """A request in its other encoding, and what could not be carried as it was.

    ``replaced``: whether text that is no UTF-8 was. ``unread`` counts items, and parts of groups,
    that are no messages or of a wrong shape.
    """

    body: bytes
    replaced: bool = False
    unread: int = 0


def to_json(body: bytes, signal: str) -> Transcoded:
    """A protobuf request as JSON. Raises Unparsable where ``scan`` does."""
    reading = _Reading()
    shape = _SHAPES[signal]
    try:
        document = reading.document(shape.whole.FromString(body), shape.table)
    except DecodeError:
        document = reading.framed(body, shape)
    return Transcoded(dumps(document), reading.replaced, reading.unread)


def to_protobuf(body: bytes, signal: str) -> Transcoded:
    """A JSON request as protobuf. Raises Unparsable, TooLarge, where ``decode`` does."""
    admit_json(body)
    writing = _Writing()
    encoded = writing.request(decode_json.load_object(body), _SHAPES[signal])
    return Transcoded(encoded, writing.replaced, writing.unread)


def dumps(document: object) -> bytes:
    """JSON in ASCII on one line: no character in it can act on a terminal or end a line."""
    return json.dumps(document, separators=(",", ":")).replace("\x7f", "\\u007f").encode()


# -- protobuf → JSON -----------------------------------------------------------------------------
class _Entry(NamedTuple):
    """How a field is written: its JSON name, what makes its value, and the table of a message."""

    name: str
    convert: Callable[[Any], object] | None
    table: Mapping[int, _Entry]
    is_text: bool
    repeated: bool


_Table = Mapping[int, _Entry]


def _double(value: float) -> object:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_CONVERT: Final[dict[int, Callable[[Any], object]]] = {
    **dict.fromkeys(
        (
            *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64),
            *(FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64),
            FieldDescriptor.TYPE_SFIXED64,
        ),
        str,
    ),
    FieldDescriptor.TYPE_DOUBLE: _double,
    FieldDescriptor.TYPE_FLOAT: _double,
    FieldDescriptor.TYPE_BYTES: _base64,
    FieldDescriptor.TYPE_BOOL: bool,
}


def _table(stock: Descriptor, known: dict[str, dict[int, _Entry]]) -> dict[int, _Entry]:
    """The entries of a stock message by field number; those of one message are one table."""
    found = known.get(stock.full_name)
    if found is None:
        found = known[stock.full_name] = {}
        for field in stock.fields:
            name = field.json_name
            is_id = name in _IDS and field.type == field.TYPE_BYTES
            message = field.message_type
            found[field.number] = _Entry(
                name,
                bytes.hex if is_id else _CONVERT.get(field.type, int),
                {} if message is None else _table(message, known),
                field.type == field.TYPE_STRING,
                isinstance(field.default_value, list),
            )
            if message is not None:
                found[field.number] = found[field.number]._replace(convert=None)
    return found


class _Shape(NamedTuple):
    """The messages of a signal: whole as ``whole`` reads it, and the stock ones of its parts."""

    whole: Any
    table: _Table
    names: decode_json.Names
    group: type[Message]
    scope: type[Message]
    item: type[Message]


_KNOWN: Final[dict[str, dict[int, _Entry]]] = {}
_SHAPES: Final = {
    "traces": _Shape(
        whole.TRACES,
        _table(trace_pb2.TracesData.DESCRIPTOR, _KNOWN),
        decode_json.TRACES,
        trace_pb2.ResourceSpans,
        trace_pb2.ScopeSpans,
        trace_pb2.Span,
    ),
    "logs": _Shape(
        whole.LOGS,
        _table(logs_pb2.LogsData.DESCRIPTOR, _KNOWN),
        decode_json.LOGS,
        logs_pb2.ResourceLogs,
        logs_pb2.ScopeLogs,
        logs_pb2.LogRecord,
    ),
}


class _Reading:
    """Makes JSON of messages whose texts are bytes; knows what it had to replace."""

    def __init__(self) -> None:
        self.replaced = False
        self.unread = 0

    def document(self, message: Any, table: _Table) -> dict[str, object]:  # noqa: ANN401  of whole
        """The object of a message."""
        found: dict[str, object] = {}
        for field, value in message.ListFields():
            entry = table[field.number]
            if entry.repeated:
                found[entry.name] = [self._value(one, entry) for one in value]
            else:
                found[entry.name] = self._value(value, entry)
        return found

    def _value(self, value: Any, entry: _Entry) -> object:  # noqa: ANN401  of any field
        if entry.convert is None:
            return self.document(value, entry.table)
        return self._text(value) if entry.is_text else entry.convert(value)

    def _text(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError:
            self.replaced = True
            return value.decode("utf-8", "replace")

    def framed(self, body: bytes, shape: _Shape) -> dict[str, object]:
        """The document of a request that is no message as a whole: each part by itself."""
        groups = shape.whole.DESCRIPTOR.fields_by_number[_GROUPS]
        scopes = groups.message_type.fields_by_number[_HELD]
        items = scopes.message_type.fields_by_number[_HELD]
        found = []
        for number, _, content, stop in fields(body, 0, len(body)):
            if number == _GROUPS and content is not None:
                held, beside = _apart(body, content, stop)
                found.append(
                    {
                        **self._part(beside, groups, shape.table[_GROUPS].table),
                        shape.names.scopes: [
                            self._scope(one, scopes, items, shape) for one in held
                        ],
                    }
                )
        return {shape.names.groups: found}

    def _scope(self, raw: bytes, scopes: Any, items: Any, shape: _Shape) -> dict[str, object]:  # noqa: ANN401
        held, beside = _apart(raw, 0, len(raw))
        table = shape.table[_GROUPS].table[_HELD].table
        return {
            **self._part(beside, scopes, table),
            shape.names.items: [self._part(one, items, table[_HELD].table) for one in held],
        }

    def _part(self, raw: bytes, field: Any, table: _Table) -> dict[str, object]:  # noqa: ANN401
        try:
            return self.document(whole.class_of(field.message_type).FromString(raw), table)
        except DecodeError:
            self.unread += 1
            return {names.UNREAD: _base64(raw)}


def _apart(body: bytes, start: int, end: int) -> tuple[list[bytes], bytes]:
    """What a group holds, each by itself, and its other fields together."""
    held: list[bytes] = []
    beside: list[bytes] = []
    for number, begin, content, stop in fields(body, start, end):
        if number == _HELD and content is not None:
            held.append(body[content:stop])
        else:
            beside.append(body[begin:stop])
    return held, b"".join(beside)


# -- JSON → protobuf -----------------------------------------------------------------------------
class _Writing:
    """Makes messages of JSON objects, part by part: one of a wrong shape costs only itself."""

    def __init__(self) -> None:
        self.replaced = False
        self.unread = 0

    def request(self, document: dict[str, Any], shape: _Shape) -> bytes:
        """The encoded request of a document."""
        named = shape.names
        parts = []
        for group in decode_json.objects_of(document, named.groups, "the body"):
            held = []
            for scope in decode_json.objects_of(group, named.scopes, named.groups):
                items = decode_json.list_of(scope, named.items, named.scopes)
                inner = b"".join(_SECOND + sized(self._item(one, shape.item)) for one in items)
                held.append(_SECOND + sized(self._beside(scope, named.items, shape.scope) + inner))
            beside = self._beside(group, named.scopes, shape.group)
            parts.append(_FIRST + sized(beside + b"".join(held)))
        return b"".join(parts)

    def _beside(self, holder: dict[str, Any], held: str, kind: type[Message]) -> bytes:
        return self._part({key: holder[key] for key in holder if key != held}, kind)

    def _item(self, item: object, kind: type[Message]) -> bytes:
        if not isinstance(item, dict):
            self.unread += 1
            return b""
        _ids_in_base64(item)
        links = item.get("links")
        for link in links if isinstance(links, list) else ():
            if isinstance(link, dict):
                _ids_in_base64(link)
        return self._part(item, kind)

    def _part(self, found: dict[str, Any], kind: type[Message]) -> bytes:
        unread = found.pop(names.UNREAD, None)
        if isinstance(unread, str):
            return _bytes_of(unread)
        try:
            return _encoded(found, kind)
        except (ParseError, ValueError, TypeError, AttributeError, RecursionError):
            pass
        try:  # letters that are none are the one fault that can be mended
            encoded = _encoded(_mended(found), kind)
        except (ParseError, ValueError, TypeError, AttributeError, RecursionError):
            self.unread += 1
            return b""
        self.replaced = True
        return encoded


def _encoded(found: dict[str, Any], kind: type[Message]) -> bytes:
    return ParseDict(found, kind(), ignore_unknown_fields=True).SerializeToString()


def _ids_in_base64(holder: dict[str, Any]) -> None:
    """Ids as ``json_format`` reads bytes; text that is no hex stays as its bytes, as in decode."""
    for key in _IDS.intersection(holder):
        text = holder[key]
        if isinstance(text, str):
            try:
                raw = bytes.fromhex(text)
            except ValueError:
                raw = text.encode("utf-8", "surrogatepass")
            holder[key] = _base64(raw)


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


_NO_LETTER: Final = re.compile("[\ud800-\udfff]")


def _mended(value: Any) -> Any:  # noqa: ANN401  any JSON
    if isinstance(value, str):
        return _NO_LETTER.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_mended(key): _mended(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_mended(one) for one in value]
    return value
