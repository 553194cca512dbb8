"""What flows between nodes: one received request's share (contract, section 9)."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple, TypeAlias

from flowmark_otel.collector.events import Row
from flowmark_otel.errors import Unparsable
from flowmark_otel.wire import cut


class Size:
    """How many spans or log records a request has; 0 until somebody who reads it says so."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = 0


class Telemetry(NamedTuple):
    """An OTLP export request as it came, never changed.

    ``signal``: ``traces`` or ``logs``. ``encoding``: ``protobuf`` or ``json``. ``size`` is shared
    by all who carry it on.
    """

    signal: str
    encoding: str
    body: bytes
    size: Size | None = None


class Events(NamedTuple):
    """What a ``flowmark`` connector made of a request, or read in one.

    ``source`` is that request: a letter needs the untouched input.
    """

    source: Telemetry
    events: Row


class Letter(NamedTuple):
    """What failed at a node and was routed to its error port (C6).

    ``attempts`` counts tries, from 1; ``exception`` is an error name of section 9; ``node`` the id
    of the component. ``input`` holds the items that failed and nothing else, untouched;
    secrets in it are replaced where it is written.
    """

    attempts: int
    exception: str
    message: str
    node: str
    time_unix_nano: int
    input: Telemetry


class Letters(NamedTuple):
    """What flows in a pipeline that receives from an ``errors`` connector."""

    letters: tuple[Letter, ...]


Payload: TypeAlias = Telemetry | Events | Letters


def size_of(payload: Payload) -> int:
    """How many spans, log records, events or letters there are; counted where nobody did."""
    if not isinstance(payload, Telemetry):
        return len(payload.events if isinstance(payload, Events) else payload.letters)
    size = payload.size or Size()
    if not size.items:
        with suppress(Unparsable):
            size.items = cut.count(payload.body, encoding=payload.encoding, signal=payload.signal)
    return size.items
