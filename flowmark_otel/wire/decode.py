"""The body of an OTLP request → its marked items (contract, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from flowmark_otel.model import LogRecord, Refused, Resource, Span
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire import bare, decode_json
from flowmark_otel.wire.budget import Budget
from flowmark_otel.wire.decode_protobuf import Decoder, decode_resource
from flowmark_otel.wire.scan import Marked, scan

PROTOBUF: Final = "protobuf"
JSON: Final = "json"


class Item(NamedTuple):
    """A marked item: position, resource, and what it holds.

    Positions count from 0 through all resources and scopes. A Refused item could not be decoded.
    ``described``: the resource as it came, an encoded message or a JSON object; items of one group
    share it.
    """

    position: int
    resource: Resource
    record: Span | LogRecord | Refused
    described: bytes | Mapping[str, Any] = b""


class Request(NamedTuple):
    """A request's marked items; ``items`` counts all."""

    items: int
    marked: list[Item]


def decode_traces(body: bytes, encoding: str, signals: Signals = NO_SIGNALS) -> Request:
    """The spans of an ExportTraceServiceRequest that are marked, by us or by a signal.

    What only a signal marks and cannot be read is none of ours. Raises Unparsable, TooLarge.
    """
    if encoding == JSON:
        return _of_json(decode_json.decode(body, decode_json.TRACES, signals))
    opened = Opened(body, signals)
    found = []
    for mark in opened.marked:
        record = opened.span(mark)
        if mark.own or not isinstance(record, Refused):
            found.append(Item(mark.position, opened.resource(mark), record, mark.resource))
    return Request(opened.items, found)


class Opened:
    """An ExportTraceServiceRequest in protobuf whose marked spans are found and not decoded yet.

    ``items`` counts all spans. A span that only a signal marks and that cannot be read is none of
    ours. Raises Unparsable, TooLarge.
    """

    __slots__ = (
        "_body",
        "_budget",
        "_decoder",
        "_marks",
        "_resources",
        "_signals",
        "items",
        "marked",
    )

    def __init__(self, body: bytes, signals: Signals = NO_SIGNALS) -> None:
        self._body = body
        self._signals = signals
        self._marks: list[bytes] | None = None
        self._decoder: Decoder | None = None
        self.marked: list[Marked] = []
        if (items := bare_items(body, PROTOBUF, signals)) is not None:
            self.items = items
            return
        found = bare.cut(body, self._present) or scan(body, self._present())
        self.items, self.marked, self._budget = found
        self._resources = _Resources(self._budget)

    def _present(self) -> list[bytes]:
        """The marks of signals that are in it; mostly none is."""
        if self._marks is None:
            self._marks = [mark for mark in self._signals.raw_marks if mark in self._body]
        return self._marks

    def resource(self, mark: Marked) -> Resource:
        """What is read of its resource. Raises TooLarge."""
        return self._resources.of(mark)

    def span(self, mark: Marked) -> Span | Refused:
        """The span, decoded. Raises TooLarge."""
        if self._decoder is None:
            self._decoder = Decoder(self._budget, self._signals, self._present())
        item = mark.item
        raw = self._body[item] if isinstance(item, slice) else item
        return self._decoder.span(raw, self._resources.of(mark))


def decode_logs(body: bytes, encoding: str) -> Request:
    """The marked records of an ExportLogsServiceRequest. Raises Unparsable, TooLarge."""
    if encoding == JSON:
        return _of_json(decode_json.decode(body, decode_json.LOGS))
    if (items := bare_items(body, PROTOBUF)) is not None:
        return Request(items, [])
    scanned = bare.cut(body) or scan(body)
    decoder, resources = Decoder(scanned.budget), _Resources(scanned.budget)
    found = []
    for mark in scanned.marked:
        raw = body[mark.item] if isinstance(mark.item, slice) else mark.item
        found.append(Item(mark.position, resources.of(mark), decoder.log(raw), mark.resource))
    return Request(scanned.items, found)


def bare_items(body: bytes, encoding: str, signals: Signals = NO_SIGNALS) -> int | None:
    """The number of items of a request that surely holds no marked one; else None.

    So little work that no thread is needed for it; raises nothing.
    """
    if encoding == JSON or len(body) > bare.MOST_BYTES or not bare.is_bare(body, signals.raw_marks):
        return None
    return bare.count(body)


def _of_json(decoded: decode_json.Decoded) -> Request:
    return Request(decoded.items, [Item(*item) for item in decoded.marked])


class _Resources:
    """The resource of each group, decoded once: items of a group share one bytes object."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._raw: bytes | None = None
        self._decoded = Resource()

    def of(self, mark: Marked) -> Resource:
        if mark.resource is not self._raw:
            self._raw = mark.resource
            self._decoded = decode_resource(mark.resource, self._budget)
        return self._decoded
