"""OTLP requests of very many very small parts: a few bytes each that could become hundreds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MIB: Final = 1 << 20

SPAN: Final = b"\x12"
ATTRIBUTE: Final = b"\x4a"
EVENT: Final = b"\x5a"
EMPTY_SPAN: Final = SPAN + b"\0"
EMPTY_ATTRIBUTE: Final = ATTRIBUTE + b"\0"
EMPTY_EVENT: Final = EVENT + b"\0"


def field(tag: bytes, content: bytes) -> bytes:
    """A length-delimited field."""
    length, head = len(content), b""
    while length > 127:
        head += bytes([length & 127 | 128])
        length >>= 7
    return tag + head + bytes([length]) + content


def text(key: bytes, value: bytes) -> bytes:
    """An attribute of a span, with a text for its value."""
    return field(ATTRIBUTE, field(b"\x0a", key) + field(b"\x12", field(b"\x0a", value)))


ANNOTATION: Final = text(b"flowmark.attempt.group_id", b"g")
TINY_SPAN: Final = field(SPAN, ANNOTATION)
OBSERVED: Final = field(EVENT, field(b"\x12", b"flowmark.attempt.observed"))


def request(items: bytes) -> bytes:
    """A request of one resource and one scope around spans, or log records, as they are."""
    return field(b"\x0a", field(b"\x12", items))


def filled(part: bytes, size: int) -> bytes:
    """As many parts as fit into ``size`` bytes."""
    return part * (size // len(part))


def annotated(parts: bytes) -> bytes:
    """An annotated span that holds these fields as well."""
    return field(SPAN, ANNOTATION + parts)


def protobuf_bombs(size: int) -> Iterator[tuple[str, bytes]]:
    """Requests of at most ``size`` bytes by name, each over a budget."""
    room = size - 256
    yield "empty spans", request(filled(EMPTY_SPAN, room))
    yield "tiny annotated spans", request(filled(TINY_SPAN, room))
    yield "empty resource groups", filled(b"\x0a\0", size)
    yield "empty scope groups", field(b"\x0a", filled(b"\x12\0", room))
    yield "empty attributes", request(annotated(filled(EMPTY_ATTRIBUTE, room)))
    yield "empty events", request(annotated(filled(EMPTY_EVENT, room)))
    yield "observed attempts", request(annotated(filled(OBSERVED, room)))
    many = annotated(filled(OBSERVED, 60_000))
    yield "observed attempts of many spans", request(filled(many, room))
    crowded = field(EVENT, field(b"\x12", b"exception") + filled(b"\x1a\0", room))
    yield "attributes of an event", request(annotated(crowded))
    many = annotated(filled(EMPTY_ATTRIBUTE, 60_000))
    yield "attributes of many spans", request(filled(many, room))
    resource = field(b"\x0a", filled(b"\x0a\0", room))
    yield "attributes of a resource", field(b"\x0a", resource + field(b"\x12", TINY_SPAN))
    yield "unknown fields", filled(b"\x78\0", size)


def json_bombs(size: int) -> Iterator[tuple[str, bytes]]:
    """The same in JSON."""
    head, tail = b'{"resourceSpans":[{"scopeSpans":[{"spans":[', b"{}]}]}]}"
    room = size - len(head) - len(tail)
    yield "empty spans, JSON", head + filled(b"{},", room) + tail
    yield "empty lists, JSON", b'{"x":[' + filled(b"[],", room) + b"[]]}"
    yield "numbers, JSON", b'{"x":[' + filled(b"1,", room) + b"1]}"
    yield "depth, JSON", filled(b"[", size)
