"""What flows between nodes: one received request's share (contract, section 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from flowmark_otel.model import Envelope


class Telemetry(NamedTuple):
    """An OTLP export request as it came, never changed.

    ``signal``: ``traces`` or ``logs``. ``encoding``: ``protobuf`` or ``json``. ``items``: how many
    spans or log records, 0 where nobody counted.
    """

    signal: str
    encoding: str
    body: bytes
    items: int = 0


class Event(NamedTuple):
    """An envelope, the position of its item in the request it came with, and its resource.

    Events of one resource share the mapping. ``told``: whether the sender is told what became of
    it; what only our own signal mappings made is in no receipt (contract, section 3).
    """

    item: int
    resource: Mapping[str, object]
    envelope: Envelope
    told: bool = True


class Events(NamedTuple):
    """What a ``flowmark`` connector made of a request, or read in one.

    ``source`` is that request: a letter needs the untouched input.
    """

    source: Telemetry
    events: tuple[Event, ...]


class Letter(NamedTuple):
    """What failed at a node and was routed to its error port (C6).

    ``attempts`` counts tries, from 1; ``exception`` is an error name of section 9; ``node`` the id
    of the component. ``input`` holds the items that failed and nothing else, untouched.
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
    """How many spans, log records, events or letters there are."""
    if isinstance(payload, Telemetry):
        return payload.items
    return len(payload.events if isinstance(payload, Events) else payload.letters)
