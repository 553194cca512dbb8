"""All attributes of a resource as it came, for those who send its events on."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from flowmark_otel.wire import shallow


def attributes_of(described: bytes | Mapping[str, Any]) -> dict[str, object]:
    """The attributes of an encoded Resource, or of its JSON object; what is none is left out.

    Strings that are no UTF-8 have their bad bytes replaced. Values: str, bool, int, float, bytes,
    tuples and dicts of them, None.
    """
    if isinstance(described, bytes):
        return _of_protobuf(described)
    pairs = described.get("attributes")
    found: dict[str, object] = {}
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict) and isinstance(key := pair.get("key"), str):
            found[_clean(key)] = _json_value(pair.get("value"))
    return found


def _of_protobuf(raw: bytes) -> dict[str, object]:
    message = Resource()
    try:
        message.ParseFromString(raw)
    except DecodeError:
        return _one_by_one(raw)
    return {each.key: _value(each.value) for each in message.attributes}


def _one_by_one(raw: bytes) -> dict[str, object]:
    """The attributes that can be read; one bad string costs no other."""
    found: dict[str, object] = {}
    try:
        pairs = shallow.Resource.FromString(raw).attributes
    except DecodeError:
        return found
    for pair in pairs:
        with suppress(DecodeError):
            each = shallow.KeyValue.FromString(pair)
            found[each.key.decode("utf-8", "replace")] = _shallow_value(each.value)
    return found


def _shallow_value(raw: bytes) -> object:
    try:
        return _value(AnyValue.FromString(raw))
    except DecodeError:
        text: bytes = shallow.AnyValue.FromString(raw).string_value
        return text.decode("utf-8", "replace")


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    if kind == "kvlist_value":
        return {each.key: _value(each.value) for each in value.kvlist_value.values}
    return None if kind is None else getattr(value, kind)


def _json_value(value: object) -> object:
    if not isinstance(value, dict):
        return None
    for kind, content in value.items():
        if kind == "stringValue" and isinstance(content, str):
            return _clean(content)
        if kind == "boolValue" and isinstance(content, bool):
            return content
        if kind == "intValue" and isinstance(content, (int, str)):
            return _integer(content)
        if kind == "doubleValue" and isinstance(content, (int, float)):
            return float(content)
        if kind == "bytesValue" and isinstance(content, str):
            return _bytes(content)
        if kind == "arrayValue" and isinstance(content, dict):
            values = content.get("values")
            return tuple(_json_value(each) for each in values) if isinstance(values, list) else ()
        if kind == "kvlistValue" and isinstance(content, dict):
            return attributes_of({"attributes": content.get("values")})
    return None


def _integer(content: int | str) -> int | None:
    try:
        found = int(content)
    except ValueError:
        return None
    return found if -(1 << 63) <= found < 1 << 63 else None


def _bytes(content: str) -> bytes | None:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return None


def _clean(text: str) -> str:
    """Text that can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
