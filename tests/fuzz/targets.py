"""The laws that any bytes have to keep, one function for each reader; each raises where broken."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.trace.v1 import trace_pb2

from flowmark_otel import names
from flowmark_otel.collector.events import Event, Row
from flowmark_otel.collector.exporters.backend import encoded
from flowmark_otel.collector.payload import Telemetry
from flowmark_otel.collector.reading import read
from flowmark_otel.deliver.judge import CONTENT_TYPES, judge
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.policy import Try, decide
from flowmark_otel.deliver.spool import codec, framing
from flowmark_otel.deliver.transport import Answer
from flowmark_otel.errors import RequestError, TooLarge, Unparsable
from flowmark_otel.fold import digest, events_of, fold_log, fold_signals, fold_span
from flowmark_otel.model import Envelope, LogRecord, Refused, Span
from flowmark_otel.signals import ANY, NO_SIGNALS, Signals
from flowmark_otel.wire import bare, decode, encode, inflate, receipt, shallow
from flowmark_otel.wire.pb import receipt_pb2
from flowmark_otel.wire.scan import Scanned, scan
from flowmark_otel.wire.status import decode_status

Target = Callable[[bytes], None]


def _reads_long_lengths() -> bool:
    with contextlib.suppress(DecodeError):
        trace_pb2.TracesData.FromString(b"\n\x80\x80\x80\x80\x80\x00")
        return True
    return False


READS_LONG_LENGTHS: Final = _reads_long_lengths()
"""Whether this protobuf is one that does; newer releases do not."""

_GROUPS: Final = (3, 4)  # wire types that no field of OTLP has
_FRAME: Final = (1, 2)  # the fields that hold what is looked for, on every level
_LIMIT: Final = 1 << 20
_NOW: Final = 1_700_000_000_000_000_000
_SCOPE_SPANS: Any = shallow._shallow(trace_pb2.ScopeSpans.DESCRIPTOR)
_RESOURCE_SPANS: Any = shallow._shallow(trace_pb2.ResourceSpans.DESCRIPTOR)
_TRACES: Any = shallow._shallow(trace_pb2.TracesData.DESCRIPTOR)


def scanned(body: bytes) -> None:
    """The scan accepts a frame exactly where protobuf does, within budget, and counts the same.

    But where a field of the frame has a wrong wire type, or a group is met: it may refuse those,
    which protobuf takes for unknown fields (row 18). So with lengths of more than five bytes where
    protobuf is one of those that read them.
    """
    found: int | None = None
    try:
        whole = scan(body, [b"aws."])
    except Unparsable:
        pass
    except TooLarge:
        return
    else:
        found = whole.items
        short = bare.cut(body, lambda: [b"aws."])
        assert short is None or _marked(body, short) == _marked(body, whole)
    expected, may_refuse = _spans(body)
    if not (may_refuse or (found is None and READS_LONG_LENGTHS)):
        assert found == expected, f"scan: {found}, protobuf: {expected}"


def _marked(body: bytes, found: Scanned) -> tuple[int, list[tuple[int, bytes | None, bytes, int]]]:
    """How many items there are, and the marked ones by their bytes."""
    return found.items, [
        (position, body[item] if isinstance(item, slice) else item, resource, own)
        for position, item, resource, own in found.marked
    ]


def _spans(body: bytes) -> tuple[int | None, bool]:
    """How many spans protobuf finds, None where the frame is broken; whether it may be refused."""
    level: list[bytes] = [body]
    may_refuse = False
    for kind, field in (
        (_TRACES, "resource_spans"),
        (_RESOURCE_SPANS, "scope_spans"),
        (_SCOPE_SPANS, "spans"),
    ):
        below: list[bytes] = []
        for raw in level:
            try:
                message = kind.FromString(raw)
            except DecodeError:
                return None, may_refuse
            may_refuse = may_refuse or _may_refuse(message)
            below += getattr(message, field)
        level = below
    return len(level), may_refuse


def _may_refuse(message: Message) -> bool:
    wanted = {field.number for field in message.DESCRIPTOR.fields} & set(_FRAME)
    return any(
        each.wire_type in _GROUPS or each.field_number in wanted
        for each in cast("Any", UnknownFieldSet(message))
    )


def traces(body: bytes) -> None:
    """Any request of spans is refused by an error of ours, or folded; nothing else is raised."""
    for encoding in (decode.PROTOBUF, decode.JSON):
        for signals in (None, ANY):
            _folded(body, encoding, signals)


def _folded(body: bytes, encoding: str, signals: Signals | None) -> None:
    try:
        request = (
            decode.decode_traces(body, encoding)
            if signals is None
            else decode.decode_traces(body, encoding, signals)
        )
    except RequestError:
        return
    assert all(0 <= item.position < request.items for item in request.marked)
    for item in request.marked:
        if isinstance(item.record, Span):
            events = fold_span(item.record)
            _carried(events)
            assert events == fold_span(item.record), "folding is not a function of the span"
            if signals is not None and not events:
                _carried(fold_signals(item.record, signals))


def _carried(events: Iterable[Envelope | Refused]) -> None:
    """What is folded survives its own wire: same id, same digest, in both encodings."""
    envelopes = [event for event in events if isinstance(event, Envelope)]
    for encoding in (decode.PROTOBUF, decode.JSON):
        body = encode.encode_logs(envelopes, {}, encoding=encoding)
        back = [
            fold_log(item.record)
            for item in decode.decode_logs(body, encoding).marked
            if isinstance(item.record, LogRecord)
        ]
        assert [_known(each) for each in back] == [_known(each) for each in envelopes]


def _known(event: Envelope | Refused | None) -> tuple[str, bytes]:
    assert isinstance(event, Envelope), f"an envelope of ours is refused: {event}"
    return event.event_id, digest(event)


def collected(body: bytes) -> None:
    """What the collector reads of spans, decoded or by their layout, is what folding finds."""
    try:
        request = decode.decode_traces(body, decode.PROTOBUF)
    except RequestError:
        request = None
    source = Telemetry("traces", decode.PROTOBUF, body)
    for _ in range(2):  # what it learns the first time it may use the second time
        try:
            found = read(source)
        except RequestError:
            assert request is None
            continue
        assert request is not None
        assert found.items == request.items
        plain = [
            (item.position, event)
            for item in request.marked
            for event in events_of(item.record, NO_SIGNALS)[0]
        ]
        assert [(each.item, each.envelope) for each in found.events] == [
            (position, event) for position, event in plain if isinstance(event, Envelope)
        ]
        assert [(each.item, each.event_id) for each in found.unfit] == [
            (position, event.event_id) for position, event in plain if isinstance(event, Refused)
        ]
        again = Row([Event(each.item, each.resource, each.envelope) for each in found.events])
        assert encoded(found.events) == encoded(again)


def logs(body: bytes) -> None:
    """Any request of log records is refused by an error of ours, or read."""
    for encoding in (decode.PROTOBUF, decode.JSON):
        try:
            request = decode.decode_logs(body, encoding)
        except RequestError:
            continue
        for item in request.marked:
            if isinstance(item.record, LogRecord):
                event = fold_log(item.record)
                if isinstance(event, Envelope):
                    _carried([event])


def answers(body: bytes) -> None:
    """Whatever is answered, every event has one state, and is delivered only by a whole receipt."""
    head, body = body[:2], body[2:]
    status = (200, 0, 400, 3, 409, 6, 503, 14, 302, 500)[sum(head[:1]) % 10]
    grpc = status < 100
    for encoding, content_type in CONTENT_TYPES.items():
        answer = Answer(status, body, {"content-type": content_type}, grpc=grpc)
        decide(answer, Try(1, 0.0, len(SENT), 0.5), Limits(), _NOW)
        judgement = judge(answer, encoding, SENT)
        delivered = judgement.states.total()
        assert delivered + len(judgement.failures) + len(judgement.unnamed) == len(SENT)
        if delivered:
            assert status == (0 if grpc else 200), "delivered by an error"
            _whole(body, encoding)


def _whole(body: bytes, encoding: str) -> None:
    if encoding == decode.PROTOBUF:
        message = receipt_pb2.Receipt.FromString(body)
        parts: tuple[int, ...] = (
            message.stored,
            message.duplicate,
            message.custody,
            message.rejected,
        )
        capabilities: Sequence[str] = message.capabilities
        received = message.received
    else:
        found: Any = receipt.load_object(body)
        capabilities = found["capabilities"]
        parts = tuple(int(found.get(key, 0)) for key in receipt._COUNTS if key != "received")
        received = int(found["received"])
    assert names.CAPABILITY in capabilities
    assert received == sum(parts) == len(SENT)
    assert min(parts) >= 0


def _sent() -> Iterator[Envelope]:
    for number in (1, 2, 3):
        attributes: dict[str, Any] = {
            names.OPERATION_NAME: "charge",
            names.ATTEMPT_GROUP_ID: "g",
            names.ATTEMPT_NUMBER: number,
        }
        span = Span(
            bytes([number]) * 16,
            bytes([number]) * 8,
            "charge",
            1,
            2,
            False,
            attributes,
            None,
            (),
            0,
        )
        yield from (event for event in fold_span(span)[:1] if isinstance(event, Envelope))


SENT: Final = list(_sent())


def statuses(body: bytes) -> None:
    """Any error body is a status, or refused."""
    for encoding in (decode.PROTOBUF, decode.JSON):
        try:
            found = decode_status(body, encoding)
        except Unparsable:
            continue
        assert found.retry_after is None or found.retry_after >= 0 or encoding == decode.PROTOBUF


def gzipped(body: bytes) -> None:
    """Any gzip body gives at most its limit, or is refused."""
    try:
        assert len(inflate.gunzip(body, _LIMIT)) <= _LIMIT
    except (Unparsable, TooLarge):
        return


def spooled(body: bytes) -> None:
    """Any bytes between two records leave both readable; no hole, nothing invented."""
    first, last = framing.frame(b"first", 1), framing.frame(b"last", 2)
    whole = first + body + last
    at = 0
    payloads: list[bytes] = []
    for item in framing.walk(lambda size, offset: whole[offset : offset + size], 0, len(whole)):
        assert item.start == at, "a hole"
        at = item.end
        if isinstance(item, framing.Found):
            payloads.append(item.payload)
            _read(item.payload)
    assert at == len(whole)
    assert payloads[0] == b"first"
    if framing.MAGIC not in body:
        assert payloads == [b"first", b"last"]
    _read(body)


def _read(payload: bytes) -> None:
    try:
        part = codec.resource_part(payload)
        resource = codec.decode_resource(part)
        event = codec.decode_envelope(payload, len(part))
    except codec.Unreadable:
        return
    with contextlib.suppress(ValueError, TypeError, OverflowError, RecursionError):
        encode.encode_logs([event], resource)  # else it is set aside, alone, when it is sent


TARGETS: Final[dict[str, Target]] = {
    each.__name__: each
    for each in (scanned, traces, collected, logs, answers, statuses, gzipped, spooled)
}


def broken(body: bytes) -> None:
    """No law at all: it shows that what breaks one is found."""
    assert b"\x07" not in body


EVERY: Final = {**TARGETS, broken.__name__: broken}
