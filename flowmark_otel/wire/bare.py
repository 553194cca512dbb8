"""Requests that need no walk in Python: cut into items by the C parser, marks told by a search.

Most requests are such. A scan walks every item of them in Python; here the parser that is there
anyway cuts the frame into bytes, and nothing is decoded. Where nothing is marked the items are
only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        for group in _few(_request(body).groups):
            groups += 1
            for scope in _few(_known(group).scopes):
                groups += 1
                items += len(_known(scope).items)
            if items + groups > MAX_ITEMS:
                return None
    except (DecodeError, _ScanError):
        return None
    return items


def cut(body: bytes, marks: Callable[[], Sequence[bytes]] = tuple) -> Scanned | None:
    """The items that hold our mark or one of ``marks``, as ``scan`` finds them, each as bytes.

    ``marks`` is asked once there is an item without ours. None where only a scan can tell, as in
    ``count``. Raises TooLarge, as a scan does.
    """
    if len(body) > MOST_BYTES:
        return None
    found: list[Marked] = []
    others: Sequence[bytes] | None = None
    position = groups = 0
    try:
        for group in _few(_request(body).groups):
            resource: bytes | None = None
            for scope in _few(_known(group).scopes):
                for item in _few(_known(scope).items):
                    own = item.count(MARK)
                    if not own and others is None:
                        others = marks()
                    if own or (others and any(mark in item for mark in others)):
                        if resource is None:
                            resource = b"".join(group.resource)
                        if len(item) > PLAIN or len(resource) > PLAIN:
                            return None
                        found.append(Marked(position, item, resource, own))
                    position += 1
                groups += 1
            groups += 1
            if position + groups > MAX_ITEMS:
                return None
    except (DecodeError, _ScanError):
        return None
    budget = Budget()
    budget.items(position + groups)
    budget.annotated(len(found))
    return Scanned(position, found, budget)


class _ScanError(Exception):
    """A message holds a field of another number or wire type, or too many of one kind."""


def _request(body: bytes) -> Any:  # noqa: ANN401  a message made here
    return _known(_Request.FromString(body))


def _known(message: Any) -> Any:  # noqa: ANN401  likewise
    if len(UnknownFieldSet(message)):
        raise _ScanError
    return message


def _few(found: Sequence[Any]) -> Sequence[Any]:
    if len(found) > MAX_ITEMS:  # to be refused before any of them is looked at
        raise _ScanError
    return found


_FRAME: Final = (
    ("Scope", (("scope", ""), ("items", ""), ("schema_url", ""))),
    ("Group", (("resource", ""), ("scopes", ".bare.Scope"), ("schema_url", ""))),
    ("Request", (("groups", ".bare.Group"),)),
)
"""What requests of traces and of logs have in common: messages, fields from 1 on, and their types;
what has none is bytes. Every field may come several times, as protobuf has it."""


def _made() -> Any:  # noqa: ANN401  a message class made here
    file = descriptor_pb2.FileDescriptorProto(
        name="bare/frame.proto", package="bare", syntax="proto3"
    )
    for title, named in _FRAME:
        message = file.message_type.add(name=title)
        for number, (name, kind) in enumerate(named, 1):
            field = message.field.add(name=name, number=number, type_name=kind or None)
            field.type = field.TYPE_MESSAGE if kind else field.TYPE_BYTES
            field.label = field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bare.Request"))


_Request: Final = _made()
