"""Shallow readers of the stock OTLP messages.

A shallow class is the stock message with its strings and sub-messages read as bytes. So one
string that is no UTF-8 costs only itself, and what nobody looks at is never decoded.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

_POOL: Final = descriptor_pool.DescriptorPool()
_AS_BYTES: Final = (
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
    descriptor_pb2.FieldDescriptorProto.TYPE_ENUM,
)


def _shallow(stock: Descriptor) -> Any:  # noqa: ANN401  a message class made here
    """The shallow class of a stock message; enums are read as numbers."""
    message = descriptor_pb2.DescriptorProto()
    stock.CopyToProto(message)
    del message.nested_type[:]
    del message.enum_type[:]
    for field in message.field:
        if field.type in _AS_BYTES:
            is_enum = field.type == field.TYPE_ENUM
            field.type = field.TYPE_INT32 if is_enum else field.TYPE_BYTES
            field.ClearField("type_name")
    file = descriptor_pb2.FileDescriptorProto(
        name=f"shallow/{stock.full_name}.proto", package="shallow", syntax="proto3"
    )
    file.message_type.append(message)
    _POOL.Add(file)
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"shallow.{message.name}"))


Span: Final = _shallow(trace_pb2.Span.DESCRIPTOR)
SpanEvent: Final = _shallow(trace_pb2.Span.Event.DESCRIPTOR)
Status: Final = _shallow(trace_pb2.Status.DESCRIPTOR)
LogRecord: Final = _shallow(logs_pb2.LogRecord.DESCRIPTOR)
Resource: Final = _shallow(resource_pb2.Resource.DESCRIPTOR)
KeyValue: Final = _shallow(common_pb2.KeyValue.DESCRIPTOR)
AnyValue: Final = _shallow(common_pb2.AnyValue.DESCRIPTOR)
ArrayValue: Final = _shallow(common_pb2.ArrayValue.DESCRIPTOR)
