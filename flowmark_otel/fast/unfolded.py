"""Events of one span, written without being folded, folded only for who looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, Final, overload

from flowmark_otel import names
from flowmark_otel.fast.shapes import Pieces, Shape
from flowmark_otel.fold import fold_rest, fold_starts
from flowmark_otel.model import Envelope, Span, event_id
from flowmark_otel.wire.records import FRAMES, SPAN_ID, TIME, TIME_TAG, TRACE_ID, encode_duration

START: Final = 1
END: Final = 2
BOTH: Final = 3

_EARLY: Final = frozenset((names.PART_OPERATION_START,))
_PARTS: Final = {
    START: (names.PART_OPERATION_START,),
    END: (names.PART_OPERATION_END,),
    BOTH: (names.PART_OPERATION_START, names.PART_OPERATION_END),
}
_NO_IDS: Final = (bytes(16), bytes(8))
_AROUND: Final = {
    which: [
        (text[: text.index("0")], text[text.rindex("0") + 1 :])
        for text in (event_id(*_NO_IDS, part) for part in parts)
    ]
    for which, parts in _PARTS.items()
}
"""What stands before and after the ids in an event id."""
_NONE: Final[Mapping[str, object]] = {}


def records_of(
    shape: Shape, values: Pieces, ids: bytes, began: int, ended: int, which: int = BOTH
) -> Pieces:
    """The records of a span in pieces, each behind its frame, as ``wire.encode`` frames them.

    ``values``: the pieces of the values; ``ids``: trace id and span id.
    """
    text = ids.hex("-", -16).encode()
    tail = b"".join((TRACE_ID, ids[:16], SPAN_ID, ids[16:]))
    pieces = (*values, text[:32], text[33:], *shape.constants)
    common = b"".join(shape.common(pieces))
    size = len(common)
    before, after, name, around = shape.start
    start = (FRAMES[around + size], TIME(TIME_TAG, began), before, text, after, common, tail, name)
    if which == START:
        return start
    more = encode_duration(ended - began)
    if shape.more is not None:
        more = b"".join((*shape.more(pieces), more))
    before, after, name, around = shape.end
    frame = FRAMES[around + size + len(more)]
    end = (frame, TIME(TIME_TAG, ended), before, text, after, common, more, tail, name)
    return end if which == END else start + end


class Unfolded(Sequence[Envelope]):
    """The start of an operation, its end, or both (``which``); ``size``: how many events.

    ``values`` as the shape reads them, of its types; ``ids`` trace id and span id as one number;
    ``times`` of start and end, in that order, both known, of a start alone the first. Raises
    BrokenRule, or TypeError, if a value is none that an event carries. ``resource`` belongs to
    the backlog that holds it, or with ``item``, the position of the span in its request, to whoever
    received it.
    """

    __slots__ = (
        "_folded",
        "_ids",
        "_pieces",
        "_times",
        "_values",
        "_which",
        "item",
        "resource",
        "shape",
        "size",
    )

    def __init__(
        self,
        shape: Shape,
        values: tuple[Any, ...],
        ids: int,
        times: tuple[int, int],
        which: int,
    ) -> None:
        self._pieces = tuple(map(getitem, shape.columns, values))
        self.shape = shape
        self._values = values
        self._ids = ids
        self._times = times
        self._which = which
        self.size = 2 if which == BOTH else 1
        self._folded: list[Envelope] | None = None
        self.resource: Mapping[str, object] = _NONE
        self.item: int

    def write(self, into: list[bytes]) -> None:
        """Append the records, each behind its frame, as ``wire.encode`` frames them."""
        ids = self._ids.to_bytes(24, "big")
        into += records_of(self.shape, self._pieces, ids, *self._times, self._which)

    def event_ids(self) -> list[str]:
        """Their ids, for whoever has to name them."""
        ids = self._ids.to_bytes(24, "big")
        return [event_id(ids[:16], ids[16:], part) for part in _PARTS[self._which]]

    def event_id(self, place: int) -> str:
        """The id of one of them."""
        kind, rest = _AROUND[self._which][place]
        return kind + self._ids.to_bytes(24, "big").hex("-", -16) + rest

    def given(self) -> dict[str, Any]:
        """What these events carry of the span's own attributes, by key."""
        return dict(zip(self.shape.keys, self._values, strict=False))

    def folded(self) -> list[Envelope]:
        """The envelopes, as folding makes them."""
        found = self._folded
        if found is None:
            shape, values = self.shape, self._values
            ids = self._ids.to_bytes(24, "big")
            span = Span(
                ids[:16],
                ids[16:],
                values[len(shape.keys)] if shape.named else "",
                *self._times,
                shape.failed,
                self.given(),
                values[-1] if shape.served else None,
            )
            if self._which == START:
                events = fold_starts(span)
            else:
                events, _ = fold_rest(span, _EARLY if self._which == END else ())
            found = self._folded = [event for event in events if isinstance(event, Envelope)]
        return found

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Envelope]:
        return iter(self.folded())

    @overload
    def __getitem__(self, place: int) -> Envelope: ...
    @overload
    def __getitem__(self, place: slice) -> list[Envelope]: ...
    def __getitem__(self, place: int | slice) -> Envelope | list[Envelope]:
        return self.folded()[place]
