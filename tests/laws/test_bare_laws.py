"""Laws: what is told of a request without marks by the short way, a scan would tell as well."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from flowmark_otel.errors import RequestError
from flowmark_otel.signals import signals_of
from flowmark_otel.wire import bare
from flowmark_otel.wire.decode import bare_items, decode_traces
from flowmark_otel.wire.scan import scan
from tests.support import bombs

SAFE = signals_of(("safe",))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Requests of any number of groups and spans, some of them marked by us or by a signal."""
    request = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(0, 3))):
        group = request.resource_spans.add(schema_url=draw(st.sampled_from(("", "s"))))
        group.resource.attributes.add(key="service.name").value.string_value = "crm"
        for _ in range(draw(st.integers(0, 3))):
            scope = group.scope_spans.add()
            scope.scope.name = "tests"
            for key in draw(st.lists(st.sampled_from(("http.method", "a.b", "")), max_size=4)):
                scope.spans.add(name="call").attributes.add(key=key).value.int_value = 1
    if draw(st.booleans()):
        spans = request.resource_spans.add().scope_spans.add().spans
        mark = draw(st.sampled_from(("flowmark.run.id", *SAFE.marks)))
        spans.add(name="call").attributes.add(key=mark).value.string_value = "r"
    return request.SerializeToString()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Requests whose bytes were changed, cut or added to, or none of it."""
    body = draw(requests())
    if draw(st.booleans()):
        at = draw(st.integers(0, len(body)))
        with_ = draw(st.binary(max_size=3))
        body = body[:at] + with_ + body[at + draw(st.integers(0, 3)) :]
    return body


@given(mutated())
def test_what_is_bare_is_counted_as_a_scan_counts(body: bytes) -> None:
    """Contract, section 4, fault row 18: also of bytes that were changed, cut or added to.

    Where the short way says a number, a scan finds so many items, no mark and no fault.
    """
    found = bare_items(body, "protobuf", SAFE)
    if found is None:
        return
    scanned = scan(body, SAFE.raw_marks)
    assert (scanned.items, scanned.marked) == (found, [])


@given(mutated())
def test_what_is_cut_is_what_a_scan_finds(body: bytes) -> None:
    """Section 9, fault row 18: where the parser cuts a request, a scan finds the same spans."""
    found = bare.cut(body, lambda: SAFE.raw_marks)
    if found is None:
        return
    scanned = scan(body, SAFE.raw_marks)
    assert found.items == scanned.items
    assert found.marked == [
        mark._replace(item=body[mark.item])
        for mark in scanned.marked
        if isinstance(mark.item, slice)
    ]


@given(requests())
def test_requests_of_stock_exporters_take_the_short_way(body: bytes) -> None:
    """D4: what nothing of ours is in is never scanned; what is marked always is."""
    marked = bool(scan(body, SAFE.raw_marks).marked)
    assert (bare_items(body, "protobuf", SAFE) is None) is marked
    assert (decode_traces(body, "protobuf", SAFE).marked != []) is marked
    assert bare.cut(body, lambda: SAFE.raw_marks) is not None


def test_bombs_are_left_to_the_scan() -> None:
    """Fault row 17: no budget is passed by the short way, and nothing long is parsed for it."""
    for name, body in bombs.protobuf_bombs(bare.MOST_BYTES):
        admitted = False
        with suppress(RequestError):
            scan(body)
            admitted = True
        assert admitted or bare_items(body, "protobuf") is None, name
        cut = None
        with suppress(RequestError):
            cut = bare.cut(body)
        assert admitted or cut is None, name
    assert bare.count(b"\x0a\0" * (bare.MOST_BYTES // 2 + 1)) is None
    assert bare.cut(b"\x0a\0" * (bare.MOST_BYTES // 2 + 1)) is None
