"""A batch of events, of which those that nobody has looked at yet stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, overload

from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Envelope
from flowmark_otel.wire.records import FRAMES, encode_record


class Recorded(NamedTuple):
    """One event that waits, and the attributes of the resource it came from."""

    event: Envelope
    resource: Mapping[str, object]


class Batch(Sequence[Envelope]):
    """Single events and events of spans, in the order recorded; belongs to one thread.

    What is written of it is what ``wire.encode`` writes of its envelopes, which are made only
    where somebody asks for one of them. ``size``: how many events there are.
    """

    def __init__(self, parts: Sequence[Recorded | Unfolded], size: int) -> None:
        self._parts = parts
        self._size = size
        self._envelopes: list[Envelope] | None = None
        self._ids: list[str] | None = None

    def framed(self) -> list[bytes]:
        """The records as protobuf, each behind its frame, for ``encode_framed``."""
        into: list[bytes] = []
        for part in self._parts:
            if type(part) is Unfolded:
                part.write(into)
            else:
                record = encode_record(part[0])
                into += (FRAMES[len(record)], record)
        return into

    def event_ids(self) -> list[str]:
        """The ids of all, made without looking at them; made once."""
        found = self._ids
        if found is None:
            found = self._ids = []
            for part in self._parts:
                found += part.event_ids() if type(part) is Unfolded else (part[0].event_id,)
        return found

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Envelope: ...
    @overload
    def __getitem__(self, place: slice) -> list[Envelope]: ...
    def __getitem__(self, place: int | slice) -> Envelope | list[Envelope]:
        found = self._envelopes
        if found is None:
            found = self._envelopes = []
            for part in self._parts:
                found += part if type(part) is Unfolded else (part[0],)
        return found[place]
