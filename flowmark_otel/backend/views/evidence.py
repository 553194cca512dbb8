"""What is not known, and what was refused (contract, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from flowmark_otel.backend.views.json import Time
from flowmark_otel.names import EvidenceReason, Origin, Problem


@dataclass(frozen=True, slots=True)
class RunRefView:
    """The run that an item is about, under the key that lists give."""

    workflow: str
    run_id: str
    origin: Origin
    key: str


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One thing that is not known, or one event that was refused.

    ``says`` is one sentence for people: what is missing or was refused, and what implies it.
    ``event_ids`` are the evidence it rests on; ``first_received_at`` is the arrival of the first
    of them. ``run`` is null for an event that names none or could not be read. Of a gap ``number``
    is the first number missing and ``last_number`` the last; else ``last_number`` is null.
    """

    kind: Problem
    reason: EvidenceReason
    run: RunRefView | None
    operation: str | None
    group_id: str | None
    number: int | None
    last_number: int | None
    service: str | None
    event_ids: tuple[str, ...]
    first_received_at: Time
    says: str
