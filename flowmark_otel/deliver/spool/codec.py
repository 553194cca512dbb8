"""What the client keeps in a record: one envelope and the attributes of its resource.

A payload is the byte ``VERSION``, the length of the resource (uint32, little-endian), the
resource and the envelope, both JSON in UTF-8. Bytes and maps among resource attributes stand as
``{"bytes": base64}`` and ``{"map": {…}}``; lone surrogates are kept as they are.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowmark_otel import names
from flowmark_otel.model import Envelope
from flowmark_otel.validate.secrets import redact_resource

VERSION: Final = 1

_EVENTS: Final = frozenset((*names.PART_OF_EVENT, names.ATTEMPT_OBSERVED))
_ID_SIZES: Final = (16, 8)
_PREFIX: Final = struct.Struct("<BI")
_TO_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False
).encode
_FROM_JSON: Final = json.JSONDecoder().decode


class Unreadable(ValueError):
    """A payload of a newer version, or none of ours."""


def encode_resource(attributes: Mapping[str, object]) -> bytes:
    """The beginning of a payload, the same for all events of one resource; without secrets."""
    text = _TO_JSON({key: _plain(value) for key, value in redact_resource(attributes).items()})
    content = text.encode("utf-8", "surrogatepass")
    return _PREFIX.pack(VERSION, len(content)) + content


def encode_envelope(envelope: Envelope) -> bytes:
    """The rest of a payload."""
    event, trace_id, span_id, *rest = envelope
    text = _TO_JSON([event, trace_id.hex(), span_id.hex(), *rest])
    return text.encode("utf-8", "surrogatepass")


def resource_part(payload: bytes) -> bytes:
    """The beginning of a payload that ``encode_resource`` made; raises Unreadable."""
    if len(payload) < _PREFIX.size:
        msg = "the record is too short"
        raise Unreadable(msg)
    version, length = _PREFIX.unpack_from(payload)
    if version != VERSION:
        msg = f"the record has version {version}, this is {VERSION}"
        raise Unreadable(msg)
    if _PREFIX.size + length > len(payload):
        msg = "the resource is cut short"
        raise Unreadable(msg)
    return payload[: _PREFIX.size + length]


def decode_resource(part: bytes) -> dict[str, object]:
    """The attributes in what ``resource_part`` gave; raises Unreadable."""
    found = _parse(part[_PREFIX.size :])
    try:
        return {key: _rich(value) for key, value in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"the resource cannot be read: {error!r}"
        raise Unreadable(msg) from error


def decode_envelope(payload: bytes, resource_size: int) -> Envelope:
    """The envelope after that many bytes of resource; raises Unreadable."""
    try:
        event, trace_id, span_id, *rest = _parse(payload[resource_size:])
        envelope = Envelope(event, bytes.fromhex(trace_id), bytes.fromhex(span_id), *rest)
    except (TypeError, ValueError) as error:
        msg = f"the envelope cannot be read: {error}"
        raise Unreadable(msg) from error
    _check(envelope)
    return envelope


def _check(envelope: Envelope) -> None:
    if envelope.event not in _EVENTS:  # of a version that knows more
        msg = f"the envelope is of the unknown event {str(envelope.event)[:40]!r}"
        raise Unreadable(msg)
    if (len(envelope.trace_id), len(envelope.span_id)) != _ID_SIZES:
        msg = "the envelope's ids are not of 16 and 8 bytes"
        raise Unreadable(msg)
    for value, kind in (
        (envelope.part, str),
        (envelope.time_unix_nano, int),
        (envelope.attributes, dict),
        (envelope.dropped_attributes_count, int),
        (envelope.characters_replaced, bool),
    ):
        if not isinstance(value, kind):
            msg = f"the envelope has {type(value).__name__} where {kind.__name__} belongs"
            raise Unreadable(msg)


def _parse(content: bytes) -> Any:  # noqa: ANN401 - JSON has any shape until it is checked
    try:
        return _FROM_JSON(content.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        msg = f"the record cannot be read: {error}"
        raise Unreadable(msg) from error


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, Mapping):
        return {"map": {str(key): _plain(one) for key, one in value.items()}}
    if isinstance(value, Sequence):
        return [_plain(one) for one in value]
    return None  # OTLP has no such value; encoders leave it empty as well


def _rich(value: object) -> object:
    if isinstance(value, list):
        return tuple(_rich(one) for one in value)
    if isinstance(value, dict):
        if "bytes" in value:
            return base64.b64decode(value["bytes"])
        return {key: _rich(one) for key, one in value["map"].items()}
    return value
