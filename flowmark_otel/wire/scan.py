"""Where the items of an OTLP request are, found in its bytes before anything is parsed.

Requests for traces and logs have the same frame: request { 1: resource group }, resource group
{ 1: resource, 2: scope group }, scope group { 2: item }. Only marked items are ever parsed, so
what is not ours costs a few comparisons; a request that holds no mark at all is told before, by
``bare``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from flowmark_otel.errors import Unparsable
from flowmark_otel.wire.budget import (
    PLAIN,
    SHORT,
    Budget,
    OverBudgetError,
    skip,
    tag_at,
    varint,
)

MARK: Final = b"flowmark."

_LENGTH: Final = 2
_MORE: Final = 128  # the bit that says another byte of a number follows

_FIRST_TAG: Final = 8  # of field 1; smaller ones have number 0

_FIRST: Final = 1
_SECOND: Final = 2


class Marked(NamedTuple):
    """An item that holds the mark: its position, where its bytes are, and those of its resource.

    The item is None where it is over its budget: it is not to be parsed. A place and no copy, so
    that a long request is not held twice; of a short one its bytes. ``own``: how often it holds
    our mark, 0 if only that of a signal.
    """

    position: int
    item: slice | bytes | None
    resource: bytes
    own: int


class Scanned(NamedTuple):
    """What a scan found; ``items`` counts all of them. ``budget`` is what they left over."""

    items: int
    marked: list[Marked]
    budget: Budget


def scan(body: bytes, signals: Sequence[bytes] = ()) -> Scanned:
    """Find the items of a request that hold our mark, or one of ``signals``.

    Raises Unparsable where the frame is broken, TooLarge where the request is over its budget.
    """
    try:
        return _scan_groups(body, signals)
    except IndexError as error:
        msg = "the body is no OTLP request: it ends inside a field"
        raise Unparsable(msg) from error


def _scan_groups(body: bytes, signals: Sequence[bytes]) -> Scanned:
    position = 0
    marked: list[Marked] = []
    budget = Budget()
    take = budget.items
    find = body.find
    for start, end in _children(body, 0, len(body), _FIRST, budget):
        take(1)
        resource: bytes | None = None
        for scope_start, scope_end in _children(body, start, end, _SECOND, budget):
            take(1)
            next_mark = find(MARK, scope_start, scope_end)
            for item_start, item_end in _children(body, scope_start, scope_end, _SECOND, budget):
                take(1)
                fits = item_end - item_start <= PLAIN or _fits(budget, body, item_start, item_end)
                if 0 <= next_mark < item_start:
                    next_mark = find(MARK, item_start, scope_end)
                own = 0
                if item_start <= next_mark < item_end:
                    own = body.count(MARK, item_start, item_end)
                if own or (signals and _holds(find, signals, item_start, item_end)):
                    budget.annotated()
                    if resource is None:
                        resource = _resource(body, start, end, budget)
                    item = slice(item_start, item_end) if fits else None
                    marked.append(Marked(position, item, resource, own))
                position += 1
    return Scanned(position, marked, budget)


def _holds(
    find: Callable[[bytes, int, int], int], marks: Sequence[bytes], start: int, end: int
) -> bool:
    return any(find(mark, start, end) >= 0 for mark in marks)


def _fits(budget: Budget, body: bytes, start: int, end: int) -> bool:
    try:
        budget.walk(body, start, end)
    except OverBudgetError:
        return False
    return True


def _resource(body: bytes, start: int, end: int, budget: Budget) -> bytes:
    """The resource's bytes; repeated occurrences merge by concatenation, as protobuf has it.

    None of them where it is over its budget: it is then unknown.
    """
    found = list(_children(body, start, end, _FIRST, budget))
    fits = all(b - a <= PLAIN or _fits(budget, body, a, b) for a, b in found)
    return b"".join(body[a:b] for a, b in found) if fits else b""


def _children(
    body: bytes, pos: int, end: int, wanted: int, budget: Budget
) -> Iterator[tuple[int, int]]:
    """The bounds of the length-delimited fields numbered ``wanted`` of one message.

    The others are taken from the budget of the frame.
    """
    while pos < end:
        tag = body[pos]
        pos += 1
        if tag >= _MORE:
            tag, pos = tag_at(body, pos - 1)
        kind = tag & 7
        if tag < _FIRST_TAG:
            msg = "the body is no OTLP request: it has a field numbered 0"
            raise Unparsable(msg)
        if kind == _LENGTH:
            size = body[pos]
            pos += 1
            if size >= _MORE:
                size, pos = varint(body, pos - 1, SHORT)
            stop = pos + size
            if stop > end:
                msg = "the body is no OTLP request: a field is longer than what holds it"
                raise Unparsable(msg)
            if tag >> 3 == wanted:
                yield pos, stop
            else:
                budget.frame()
            pos = stop
            continue
        if tag >> 3 == wanted:
            msg = f"the body is no OTLP request: field {wanted} has wire type {kind}"
            raise Unparsable(msg)
        budget.frame()
        pos = skip(body, pos, kind)
    if pos != end:
        msg = "the body is no OTLP request: a field is longer than what holds it"
        raise Unparsable(msg)
