"""A span as its bytes came → its events by the fast path, without decoding it.

Spans that one piece of code makes have their attributes in one order. So a span that took the fast
path says where in the spans of its layout the attributes stand that are carried; of the next ones
only these are looked at, and found by their bytes as they were checked and written before.
What else could be ours would hold a mark: the marks of a span are counted, and have to be those of
the attributes looked at.

Not imported with the rest: what reads protobuf costs a client more than all else it imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import getitem, itemgetter
from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError

from flowmark_otel import names
from flowmark_otel.fast.columns import NAME, SERVICE, Pairs, column_of
from flowmark_otel.fast.shapes import Shape
from flowmark_otel.fast.unfolded import BOTH, Unfolded, records_of
from flowmark_otel.model import Envelope
from flowmark_otel.validate import BrokenRule
from flowmark_otel.wire import shallow
from flowmark_otel.wire.budget import PLAIN
from flowmark_otel.wire.decode_protobuf import ERROR_MARK, is_failed, read_pair
from flowmark_otel.wire.records import encode_pair

_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
_LATEST: Final = 2**63 - 1
_HEADS: Final = 6  # tag and length of the key, the value and its text
_ONE_BYTE: Final = 127  # a length up to this is one byte
_MOST_LAYOUTS: Final = 1024
_MOST_ALIKE: Final = 4

_Kind: TypeAlias = tuple[bool, int, int]
"""What layouts are found by: whether the span failed, its attributes, the marks in it."""


class Carried(Pairs[bytes]):
    """The written pairs of one key by the pair as a span carries it, of values of one type.

    As ``Column``, whose checks it uses. Looking one up raises BrokenRule too where the pair is of
    another key or of a value of another type.
    """

    __slots__ = ("_heads", "_kind", "_name", "_text")

    def __init__(self, key: str, kind: type) -> None:
        super().__init__(key, column_of(key).carried)
        self._name = key.encode()
        self._kind = kind
        # Where a short text begins, and what stands before one of so many bytes in the pair of a
        # span and in that of a record.
        self._text = len(self._name) + _HEADS
        self._heads: dict[int, tuple[bytes, bytes]] = {}

    def __missing__(self, raw: bytes) -> bytes:
        """The pair of one that is not known."""
        text = raw[self._text :]
        heads = self._heads.get(len(text)) or self._heads_of(len(text))
        if self._kind is str and heads and raw.startswith(heads[0]):
            value: object = text.decode("utf-8", "surrogateescape")
            carried = self.carried(value)
            kept = carried == value
            written = heads[1] + text if kept else encode_pair(self._key, carried)
        else:
            key, value = read_pair(raw)
            # Decoding takes only a key that stands where all known encoders put it.
            if key != self._key or not raw.startswith(self._name, 2):
                raise BrokenRule
            if type(value) is not self._kind:
                raise BrokenRule
            written = encode_pair(key, self.carried(value))
        return self._keep(raw, written, len(raw))

    def _heads_of(self, size: int) -> tuple[bytes, bytes] | None:
        if not size or self._text + size > _ONE_BYTE:
            return None
        written = encode_pair(self._key, "-" * size)[:-size]
        found = self._heads[size] = (written[2:], written)
        return found


_carried: Final[dict[tuple[str, type], Carried]] = {}


def _carried_of(key: str, kind: type) -> Carried:
    found = _carried.get((key, kind))
    if found is None:
        found = _carried[key, kind] = Carried(key, kind)
    return found


class Layout:
    """Where the attributes of a shape stand among those of a span.

    ``pick`` takes the bytes of those that the shape carries; ``columns`` give their pieces.
    ``errors``: how often the mark of ``error.type`` is in such a span.
    """

    __slots__ = ("columns", "errors", "pick", "shape")

    def __init__(self, shape: Shape, places: tuple[int, ...]) -> None:
        self.shape = shape
        self.pick: Callable[[Any], tuple[bytes, ...]] = itemgetter(*places)
        columns: list[Any] = list(map(_carried_of, shape.keys, shape.types))
        if shape.named:
            columns.append(NAME)
        if shape.served:
            columns.append(SERVICE)
        self.columns: tuple[Mapping[Any, bytes], ...] = tuple(columns)
        self.errors = int(names.ERROR_TYPE in shape.keys)


_layouts: Final[dict[_Kind, tuple[Layout, ...]]] = {}
"""The one met last comes first. Shared by threads: a lost one is learned again."""


class Received:
    """Both events of a span as they were written, and the span as it came, for who looks at them.

    ``item``: the position of the span in its request; ``resource``: the attributes of its resource.
    Both belong to whoever received it.
    """

    __slots__ = ("_layout", "_raw", "_service", "_unfolded", "_written", "item", "resource")

    size: Final = 2

    def __init__(self, layout: Layout, raw: bytes, service: object, written: bytes) -> None:
        self._layout = layout
        self._raw = raw
        self._service = service
        self._written = written
        self._unfolded: Unfolded | None = None
        self.item: int
        self.resource: Mapping[str, object]

    def write(self, into: list[bytes]) -> None:
        """As ``Unfolded.write``."""
        into.append(self._written)

    def event_id(self, place: int) -> str:
        """As ``Unfolded.event_id``."""
        return self._made().event_id(place)

    def given(self) -> Mapping[str, object]:
        """As ``Unfolded.given``."""
        return self._made().given()

    def folded(self) -> Sequence[Envelope]:
        """As ``Unfolded.folded``."""
        return self._made().folded()

    def _made(self) -> Unfolded:
        found = self._unfolded
        if found is None:
            layout, message = self._layout, shallow.Span.FromString(self._raw)
            values = [read_pair(raw)[1] for raw in layout.pick(message.attributes)]
            if layout.shape.named:
                values.append(_text(message.name))
            if layout.shape.served:
                values.append(self._service)
            ids = int.from_bytes(message.trace_id + message.span_id, "big")
            times = message.start_time_unix_nano, message.end_time_unix_nano
            found = self._unfolded = Unfolded(layout.shape, tuple(values), ids, times, BOTH)
        return found


def received(raw: bytes, marks: int, service: object, *, errors: bool) -> Received | None:
    """The events of an encoded span; None: decode it, and have it ``laid_out``.

    ``marks``: how often our mark is in it; ``errors``: whether that of ``error.type`` may be.
    """
    try:
        message = shallow.Span.FromString(raw)
        status = message.status
        failed = bool(status) and is_failed(status)
    except DecodeError:
        return None
    attributes = message.attributes
    kind = (failed, len(attributes), marks)
    known = _layouts.get(kind)
    if known is None or message.events or message.dropped_attributes_count or len(raw) > PLAIN:
        return None
    start, end = message.start_time_unix_nano, message.end_time_unix_nano
    trace_id, span_id = message.trace_id, message.span_id
    if (
        not 0 < start <= end <= _LATEST
        or len(trace_id) != len(_NO_TRACE)
        or len(span_id) != len(_NO_SPAN)
        or trace_id == _NO_TRACE
        or span_id == _NO_SPAN
    ):
        return None
    met = raw.count(ERROR_MARK) if errors else 0
    for layout in known:
        if layout.errors != met:
            continue
        shape = layout.shape
        values: tuple[Any, ...] = layout.pick(attributes)
        if shape.named:
            values += (_text(message.name),)
        if shape.served:
            if type(service) is not str:
                return None
            values += (service,)
        try:
            pieces = tuple(map(getitem, layout.columns, values))
        except BrokenRule:  # of another layout, or folding says what is the matter
            continue
        if layout is not known[0]:
            _layouts[kind] = (layout, *(each for each in known if each is not layout))
        written = records_of(shape, pieces, trace_id + span_id, start, end)
        return Received(layout, raw, service, b"".join(written))
    return None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def laid_out(raw: bytes, marks: int, unfolded: Unfolded) -> None:
    """Learn from a span that was decoded and then took the fast path."""
    shape = unfolded.shape
    message = shallow.Span.FromString(raw)
    found: dict[str, list[int]] = {}
    for place, pair in enumerate(message.attributes):
        found.setdefault(read_pair(pair)[0], []).append(place)
    places = [found.get(key, []) for key in shape.keys]
    ours = {key for key in shape.keys if key.startswith(names.PREFIX)}
    if len(ours) != marks or any(len(each) != 1 for each in places):
        return
    layout = Layout(shape, tuple(each[0] for each in places))
    kind = (is_failed(message.status), len(message.attributes), marks)
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    _layouts[kind] = (layout, *_layouts.get(kind, ())[: _MOST_ALIKE - 1])
