"""Whole OTLP requests in protobuf whose texts are read as bytes, so that no text can spoil one.

The classes are the stock messages in a pool of their own, every string field turned into bytes.
Field numbers and names are the stock ones; what is no UTF-8 is for the reader to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

_POOL: Final = descriptor_pool.DescriptorPool()


def _add(file: FileDescriptor, done: set[str]) -> None:
    if file.name in done:
        return
    done.add(file.name)
    for needed in file.dependencies:
        _add(needed, done)
    copy = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copy)
    for message in _messages(copy.message_type):
        for field in message.field:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
    _POOL.Add(copy)


def _messages(found: Any) -> Iterator[descriptor_pb2.DescriptorProto]:  # noqa: ANN401  repeated
    for message in found:
        yield message
        yield from _messages(message.nested_type)


def class_of(descriptor: Descriptor) -> Any:  # noqa: ANN401  a message class made here
    """The class of a message that a request here is made of."""
    return message_factory.GetMessageClass(descriptor)


def _class(name: str) -> Any:  # noqa: ANN401  as class_of
    return class_of(_POOL.FindMessageTypeByName(name))


_done: Final[set[str]] = set()
_add(trace_pb2.DESCRIPTOR, _done)
_add(logs_pb2.DESCRIPTOR, _done)

TRACES: Final = _class("opentelemetry.proto.trace.v1.TracesData")
"""Has the fields of an ExportTraceServiceRequest."""
LOGS: Final = _class("opentelemetry.proto.logs.v1.LogsData")
"""Has the fields of an ExportLogsServiceRequest."""
