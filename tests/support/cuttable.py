"""Odd but legal OTLP requests for Hypothesis: groups of all shapes, fields that nobody knows."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SCHEMA: Final = 3
"""Number of the field that holds a schema URL, of resource groups and scope groups."""


def field(number: int, content: bytes, *, padded: bool = False) -> bytes:
    """A length-delimited field; ``padded``: its tag takes a byte more than it needs."""
    tag = number << 3 | 2
    head = bytes((tag | 128, 0)) if padded else _varint(tag)
    return head + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_UNKNOWN: Final = st.one_of(
    st.builds(field, st.sampled_from([90, 2000]), st.binary(max_size=4)),
    st.sampled_from([b"\xd0\x05\x96\x01", b"\xd1\x05" + bytes(8), b"\xd5\x05" + bytes(4)]),
)


@st.composite
def spans(draw: st.DrawFn) -> bytes:
    """One span, its name of any letters."""
    span = Span(
        trace_id=draw(st.binary(min_size=16, max_size=16)),
        span_id=draw(st.binary(min_size=8, max_size=8)),
        name=draw(st.text(max_size=200)),
        start_time_unix_nano=draw(st.integers(0, 2**64 - 1)),
    )
    if draw(st.booleans()):
        span.attributes.add(key=draw(st.text(max_size=3))).value.string_value = "v"
    return span.SerializeToString() + b"".join(draw(st.lists(_UNKNOWN, max_size=1)))


def _resource(name: str) -> bytes:
    pair = KeyValue(key="service.name")
    pair.value.string_value = name
    return Resource(attributes=[pair]).SerializeToString()


_SCHEMAS: Final = st.builds(lambda text: field(SCHEMA, text.encode()), st.text(max_size=4))
_SCOPES: Final = st.builds(
    lambda name: field(1, InstrumentationScope(name=name).SerializeToString()), st.text(max_size=4)
)
_RESOURCES: Final = st.builds(
    lambda name, padded: field(1, _resource(name), padded=padded),
    st.text(max_size=4),
    st.booleans(),
)


@st.composite
def _message(draw: st.DrawFn, *parts: st.SearchStrategy[bytes]) -> bytes:
    """Fields in any order, each any number of times."""
    found = [one for part in parts for one in draw(st.lists(part, max_size=3))]
    return b"".join(draw(st.permutations(found)))


def _held(number: int, content: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda inner, padded: field(number, inner, padded=padded), content, st.booleans()
    )


_SCOPE_GROUPS: Final = _message(_SCOPES, _held(2, spans()), _SCHEMAS, _UNKNOWN)
_GROUPS: Final = _message(_RESOURCES, _held(2, _SCOPE_GROUPS), _SCHEMAS, _UNKNOWN)
REQUESTS: Final = _message(_held(1, _GROUPS), _UNKNOWN)
"""Encoded ExportTraceServiceRequests."""


def flat(body: bytes) -> list[tuple[bytes, bytes, str, str, bytes]]:
    """Of each span: resource, scope, both schema URLs, span; as protobuf reads them."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        (
            group.resource.SerializeToString(deterministic=True),
            scope.scope.SerializeToString(deterministic=True),
            group.schema_url,
            scope.schema_url,
            span.SerializeToString(deterministic=True),
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
