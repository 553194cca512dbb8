"""What spans of the same attribute keys have in common, read off what folding made of the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final, TypeAlias

from flowmark_otel import names
from flowmark_otel.fast.columns import NAME, SERVICE, Column, column_of
from flowmark_otel.model import Envelope, Refused, Span, Value
from flowmark_otel.validate import CARRIED_BY, MAKES_OPERATION, rule_of
from flowmark_otel.wire.records import Outline, encode_pair, outline_of

Keys: TypeAlias = tuple[str, ...]
Pieces: TypeAlias = tuple[bytes, ...]

_START: Final = CARRIED_BY[names.PART_OPERATION_START]
_RUN_START: Final = CARRIED_BY[names.PART_RUN_START]
_TYPES: Final = frozenset((str, int, bool))
"""Types of values that are written alike where they are equal; doubles are not (0.0 == -0.0)."""

_OUTLINES: Final = {
    event: outline_of(event, names.PART_OF_EVENT[event])
    for event in (names.OPERATION_STARTED, names.OPERATION_COMPLETED, names.OPERATION_FAILED)
}
_IDS: Final = {names.RUN_ID: (0, "0" * 32), names.OPERATION_ID: (1, "0" * 16)}
"""Defaults that are ids: which of trace and span, and one that is as long."""


class Shape:
    """How start and end of an operation with certain attribute keys are written.

    Read off the end, which carries what the start does, or off a start that is sent early.

    ``read`` takes the values of ``keys`` from the attributes; the name of the span and that of the
    service follow where these are ``named`` and ``served``. All are of the types ``types``, and
    ``columns`` give their pieces. To the pieces are added trace id and span id as text, and
    ``constants``: of these ``common`` picks, in order, what start and end carry alike, and
    ``more`` what the end carries beyond that but its duration; None if nothing. ``settled``: how
    many of the keys an early start settles.
    """

    __slots__ = (
        "columns",
        "common",
        "constants",
        "end",
        "failed",
        "keys",
        "more",
        "named",
        "read",
        "served",
        "settled",
        "start",
        "types",
    )

    def __init__(self, span: Span, example: Envelope) -> None:
        self.failed = span.failed
        self.start: Outline = _OUTLINES[names.OPERATION_STARTED]
        self.end: Outline = _OUTLINES[example.event]
        given, carried = span.attributes, example.attributes
        keys = tuple(key for key in carried if key in given)
        self.settled = sum(_is_settled(key) for key in keys)
        # One key alone would be read as a bare value.
        self.keys = keys if len(keys) > 1 else keys * 2
        self.read: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*self.keys)
        self.named = names.OPERATION_NAME not in given
        self.served = names.WORKFLOW_NAME not in given
        columns = [column_of(key) for key in self.keys]
        kinds = [type(carried[key]) for key in self.keys]
        if self.named:
            columns.append(NAME)
            kinds.append(str)
        if self.served:
            columns.append(SERVICE)
            kinds.append(str)
        self.columns: tuple[Column, ...] = tuple(columns)
        self.types = tuple(kinds)
        self._arrange(given, carried)

    def _arrange(self, given: Mapping[str, object], carried: Mapping[str, Value]) -> None:
        """Say in which order the pieces stand in the records."""
        places = {key: place for place, key in enumerate(self.keys)}
        own = len(self.keys)
        if self.named:
            places[names.OPERATION_NAME] = own
        if self.served:
            places[names.WORKFLOW_NAME] = own + self.named
        ids = len(self.columns)
        constants: list[bytes] = [b""]
        common: list[int] = []
        more: list[int] = []
        for key, value in carried.items():
            if key == names.DURATION_NS:
                continue
            order = more if key in given and not _is_settled(key) else common
            if key in places:
                order.append(places[key])
                continue
            order.append(ids + 2 + len(constants))
            if key in _IDS:
                which, sample = _IDS[key]
                constants.append(encode_pair(key, sample)[: -len(sample)])
                order.append(ids + which)
            else:
                constants.append(encode_pair(key, value))
        nothing = ids + 2
        self.constants: Pieces = tuple(constants)
        self.common: Callable[[Pieces], Pieces] = itemgetter(*common)
        self.more: Callable[[Pieces], Pieces] | None = itemgetter(*more, nothing, nothing)
        if not more:
            self.more = None


_MAX_SHAPES: Final = 1024
_MAX_KEYS: Final = 2048  # characters of all keys of a shape that is kept

STARTING: Final = 2

SHAPES: Final[tuple[dict[Keys, Shape | None], ...]] = ({}, {}, {})
"""Shapes by all attribute keys of a span, of those that completed, those that failed and those
that start; None: spans of these keys differ in more than their values. Shared by threads: a lost
one is learned again."""


def learn(keys: Keys, span: Span, events: Sequence[Envelope | Refused]) -> None:
    """Learn from a finished span that went the plain path, and what it was folded into.

    ``keys``: of all its attributes, in order, which ``SHAPES`` is asked for.
    """
    shapes = SHAPES[span.failed]
    if keys not in shapes:
        example = events[-1] if events else None
        _learn(shapes, keys, span, example, names.PART_OPERATION_END)


def learn_start(keys: Keys, span: Span, events: Sequence[Envelope | Refused]) -> None:
    """Learn from a span whose start was folded and is sent early, and what that was folded into.

    ``span`` carries an operation name by now, ``keys`` are of its attributes before.
    """
    shapes = SHAPES[STARTING]
    if keys not in shapes:
        example = events[0] if len(events) == 1 else None
        _learn(shapes, keys, span, example, names.PART_OPERATION_START)


def _learn(
    shapes: dict[Keys, Shape | None],
    keys: Keys,
    span: Span,
    example: Envelope | Refused | None,
    part: str,
) -> None:
    shape = None
    if sum(map(len, keys)) > _MAX_KEYS:
        return
    if _is_fixed(span):
        if not isinstance(example, Envelope) or not _is_example(span, example, part):
            return
        with suppress(Exception):  # a defect here must not cost the events of this span
            shape = Shape(span, example)
    if len(shapes) >= _MAX_SHAPES:
        shapes.clear()
    shapes[keys] = shape


def _is_fixed(span: Span) -> bool:
    """Whether all spans of these keys are operations alone, whatever the values."""
    makes = 0
    for key in span.attributes:
        rule = rule_of(key)
        if rule is not None:
            if key == names.RECORD_TYPE:
                return False
            makes |= rule.makes
    return makes == MAKES_OPERATION


def _is_example(span: Span, event: Envelope, part: str) -> bool:
    """Whether an event shows what all spans with the keys of this one carry there."""
    is_end = part == names.PART_OPERATION_END
    given, carried = span.attributes, event.attributes
    if (
        event.part != part
        or event.characters_replaced
        or event.dropped_attributes_count
        or span.events
        or (names.DURATION_NS in carried) != is_end
        or type(span.service_name) is not str
    ):
        return False
    # Whether an error code can be derived depends on more than the keys.
    if names.ERROR_CODE in carried and names.ERROR_CODE not in given:
        return False
    # A start is kept with the start fields of a run as well: there must be none.
    scopes = CARRIED_BY[part] if is_end else CARRIED_BY[part] | _RUN_START
    for key, value in given.items():
        rule = rule_of(key)
        is_ours = rule.scope in scopes if rule is not None else is_end and key == names.ERROR_TYPE
        if is_ours != (key in carried):
            return False
        # A value that is carried as another type says nothing of the type that is usual.
        if is_ours and (type(value) is not type(carried[key]) or type(value) not in _TYPES):
            return False
    return True


def _is_settled(key: str) -> bool:
    """Whether a key that a span carries is the start's too, and so settled by it."""
    rule = rule_of(key)
    return rule is not None and rule.scope in _START
