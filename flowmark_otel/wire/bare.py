"""Requests that need no walk in Python: cut into items by the C parser, marks told by a search.

Most requests are such. A scan walks every item of them in Python; here the parser that is there
anyway cuts the frame into bytes, and nothing is decoded. Where nothing is marked the items are
only counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from flowmark_otel.wire.budget import MAX_ITEMS, PLAIN, Budget
from flowmark_otel.wire.scan import MARK, Marked, Scanned

MOST_BYTES: Final = 1 << 20
"""A longer request is scanned: the parser makes sixteen bytes of each empty item. So few bytes are
within every budget but those of items and of annotated ones."""


def is_bare(body: bytes, marks: Sequence[bytes] = ()) -> bool:
    """Whether neither our mark nor one of ``marks`` is anywhere in a body."""
    return MARK not in body and not any(mark in body for mark in marks)


def count(body: bytes) -> int | None:
    """The number of items of a bare request.

    None where only a scan can tell: the frame holds what the stock messages do not name, is
    broken, or more than this is for.
    """
    if len(body) > MOST_BYTES:
        return None
    items = groups = 0
    try:
        for resource in _level(body).first:
            groups += 1
            for scope in _level(resource).second:
                groups += 1
                items += len(_level(scope).second)
    except (DecodeError, _UnknownError):
        return None
    return items if items + groups <= MAX_ITEMS else None


def cut(body: bytes, marks: Sequence[bytes] = ()) -> Scanned | None:
    """The items that hold our mark or one of ``marks``, as ``scan`` finds them, each as bytes.

    None where only a scan can tell, as in ``count``. Raises TooLarge, as a scan does.
    """
    if len(body) > MOST_BYTES:
        return None
    found: list[Marked] = []
    position = groups = 0
    try:
        for raw in _level(body).first:
            group = _level(raw)
            resource: bytes | None = None
            for scope in group.second:
                for item in _level(scope).second:
                    own = item.count(MARK)
                    if own or (marks and any(mark in item for mark in marks)):
                        if resource is None:
                            resource = b"".join(group.first)
                        if len(item) > PLAIN or len(resource) > PLAIN:
                            return None
                        found.append(Marked(position, item, resource, own))
                    position += 1
                groups += 1
            groups += 1
    except (DecodeError, _UnknownError):
        return None
    if position + groups > MAX_ITEMS:
        return None
    budget = Budget()
    budget.items(position + groups)
    budget.annotated(len(found))
    return Scanned(position, found, budget)


class _UnknownError(Exception):
    """A message holds a field of another number, or of another wire type."""


def _level(raw: bytes) -> Any:  # noqa: ANN401  a message class made here
    message = _Level.FromString(raw)
    if len(UnknownFieldSet(message)):
        raise _UnknownError
    return message


def _made() -> Any:  # noqa: ANN401  likewise
    """What request, resource group and scope group have in common: three fields of bytes."""
    file = descriptor_pb2.FileDescriptorProto(
        name="bare/level.proto", package="bare", syntax="proto3"
    )
    level = file.message_type.add(name="Level")
    for number, name in enumerate(("first", "second", "third"), 1):
        field = level.field.add(name=name, number=number)
        field.type, field.label = field.TYPE_BYTES, field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bare.Level"))


_Level: Final = _made()
