"""Whether what is read can be trusted: how it arrived (contract, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from flowmark_otel.backend.views.json import Time
from flowmark_otel.names import Counted, CountedReason, Origin


@dataclass(frozen=True, slots=True)
class EventCount:
    """Events of one project by what became of them, since the store was made.

    ``reason``: the code of a rejection; ``expired`` of a duplicate whose run is no longer kept;
    else null.
    """

    origin: Origin
    state: Counted
    reason: CountedReason | None
    count: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """How far the evidence of a project reaches: at least to ``received_at``, null without any.

    ``read_at`` is this backend's clock.
    """

    received_at: Time | None
    read_at: Time


@dataclass(frozen=True, slots=True)
class SenderStats:
    """Who sent, and how its clock and its way here compare with this backend's clock.

    ``behind_*_ns`` is arrival minus the event's own time over ``events`` of its latest; null of a
    sender of which none is among the latest. A negative one tells of a clock that is ahead.
    """

    user_agent: str | None
    service_name: str | None
    service_version: str | None
    service_instance_id: str | None
    events: int
    latest_received_at: Time | None
    behind_p50_ns: int | None
    behind_p95_ns: int | None


@dataclass(frozen=True, slots=True)
class Ingest:
    """What arrived, from whom, and what holds it.

    ``senders`` are the latest to appear, of ``sender_count``. ``store_bytes`` and
    ``bytes_per_attempt`` are of the whole store, all projects together; ``waiting_runs`` are
    those of this project that changed and are not summarised yet. ``read_at`` is this backend's
    clock.
    """

    read_at: Time
    events: tuple[EventCount, ...]
    senders: tuple[SenderStats, ...]
    sender_count: int
    store_bytes: int
    bytes_per_attempt: int | None
    schema: str
    oldest_evidence: Time | None
    latest_evidence: Time | None
    waiting_runs: int
