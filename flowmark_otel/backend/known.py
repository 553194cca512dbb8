"""What arrivals are judged against: remembered decisions, as mutable records of one transaction.

The store makes them from its rows and writes back the changed ones; the judge alone changes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import ClassVar, TypeAlias

from flowmark_otel import names
from flowmark_otel.backend.batch import Claim, duration_of, text_of
from flowmark_otel.backend.browsers import qualified
from flowmark_otel.backend.holding import Group, Holding
from flowmark_otel.model import Value, run_key

EventKey: TypeAlias = tuple[int, str, bytes, bytes, str]
"""Project, origin, trace id, span id, part: an event id within a store (I2)."""

Place: TypeAlias = tuple[int, str, str, int]
"""``runs.id``, operation name, group id, number (A6)."""


KnownEvent: TypeAlias = tuple[int, str, int, bytes]
"""``runs.id``, event, wrapped sent time, JSON of the attributes: an accepted event, as far as a
second arrival of its id is compared with it. A plain tuple: one is made for every event."""


@dataclass(slots=True)
class Run:
    """A row of ``runs``; ``end_order`` is what its latest end is compared by.

    ``stored`` tells whether the row exists, ``changed`` whether it has to be written; ``claimed``,
    that the row was made for this transaction and is taken back unless an event needs it.
    """

    id: int
    key: bytes
    project_id: int
    origin: str
    workflow: str
    run_id: str
    first_received_at: int
    last_received_at: int
    status: str = names.STATUS_UNKNOWN
    start_event: int | None = None
    end_event: int | None = None
    fields_from: int | None = None
    retry_of_workflow: str | None = None
    retry_of_run_id: str | None = None
    retry_of_key: bytes | None = None
    parent_run_id: str | None = None
    correlation_id: str | None = None
    stale: int = 1
    end_order: tuple[int, bytes] | None = None
    stored: bool = False
    changed: bool = True
    claimed: bool = False

    CHANGING: ClassVar = (
        "last_received_at",
        "status",
        "start_event",
        "end_event",
        "fields_from",
        "retry_of_workflow",
        "retry_of_run_id",
        "retry_of_key",
        "parent_run_id",
        "correlation_id",
        "stale",
    )

    def take_fields(self, attributes: Mapping[str, Value], event: int) -> None:
        """The start fields of an event, replacing all of an earlier one (A14)."""
        self.fields_from = event
        workflow = text_of(attributes, names.RETRY_OF_WORKFLOW_NAME)
        self.retry_of_workflow = None if workflow is None else qualified(self.origin, workflow)
        self.retry_of_run_id = text_of(attributes, names.RETRY_OF_RUN_ID)
        self.parent_run_id = text_of(attributes, names.PARENT_RUN_ID)
        self.correlation_id = text_of(attributes, names.CORRELATION_ID)
        self.retry_of_key = (
            None
            if self.retry_of_workflow is None or self.retry_of_run_id is None
            else run_key(self.project_id, self.origin, self.retry_of_workflow, self.retry_of_run_id)
        )

    def row(self) -> tuple[object, ...]:
        """The columns of ``runs``, in their order."""
        return (
            self.id,
            self.key,
            self.project_id,
            self.origin,
            self.workflow,
            self.run_id,
            self.first_received_at,
            self.last_received_at,
            self.status,
            self.start_event,
            self.end_event,
            self.fields_from,
            self.retry_of_workflow,
            self.retry_of_run_id,
            self.retry_of_key,
            self.parent_run_id,
            self.correlation_id,
            1,
        )

    def update(self) -> tuple[object, ...]:
        """The id and the columns ``CHANGING``."""
        return (self.id, *self.row()[-len(self.CHANGING) :])


@dataclass(slots=True)
class Occurrence:
    """A row of ``occurrences``; while ``fields`` is None a claim on the name and no occurrence.

    ``decided``: 1 where metrics have counted the operation; the highest attempt of a group says so
    for all. ``project_id`` is the run's. ``claimed`` tells that the stored row is such a claim: of
    others ``BINDING`` never changes.
    """

    run: int
    operation_id: str
    operation: str
    group_id: str | None = None
    number: int | None = None
    fields: str | None = None
    status: str = names.STATUS_OPEN
    start_event: int | None = None
    end_event: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    duration_ns: int | None = None
    error_code: str | None = None
    decided: int = 0
    project_id: int = 0
    stored: bool = False
    changed: bool = True
    claimed: bool = False

    BINDING: ClassVar = ("group_id", "number", "fields")
    CHANGING: ClassVar = (
        "status",
        "start_event",
        "end_event",
        "started_at",
        "ended_at",
        "duration_ns",
        "error_code",
        "decided",
    )

    def end(self, status: str, event: int, claim: Claim) -> None:
        """Take the one accepted end."""
        attributes = claim.envelope.attributes
        self.status = status
        self.end_event = event
        self.ended_at = claim.sent_at
        self.duration_ns = duration_of(attributes)
        self.error_code = text_of(attributes, names.ERROR_CODE)

    def row(self) -> tuple[object, ...]:
        """The columns of ``occurrences``, in their order."""
        return (
            self.run,
            self.operation_id,
            self.operation,
            self.group_id,
            self.number,
            self.fields,
            self.status,
            self.start_event,
            self.end_event,
            self.started_at,
            self.ended_at,
            self.duration_ns,
            self.error_code,
            self.decided,
            self.project_id,
        )

    def update(self) -> tuple[object, ...]:
        """The key, the columns ``BINDING`` where they change, and the columns ``CHANGING``."""
        kept = len(self.CHANGING) + (len(self.BINDING) if self.claimed else 0)
        return (self.run, self.operation_id, *self.row()[-1 - kept : -1])


@dataclass(slots=True)
class Known:
    """What is stored of that which arrivals may meet, and where ids for new rows come from.

    ``occurrences`` is keyed by ``runs.id`` and operation id, ``runs`` and ``tombstones`` by
    ``runs.key``, ``holdings`` by project. ``groups`` gives the highest known attempt of a group,
    ``before`` the one that was it before the transaction's latest.
    """

    event_ids: Iterator[int] = field(default_factory=partial(count, 1))
    run_ids: Iterator[int] = field(default_factory=partial(count, 1))
    events: dict[EventKey, KnownEvent] = field(default_factory=dict)
    runs: dict[bytes, Run] = field(default_factory=dict)
    occurrences: dict[tuple[int, str], Occurrence] = field(default_factory=dict)
    places: set[Place] = field(default_factory=set)
    groups: dict[Group, Occurrence] = field(default_factory=dict)
    before: dict[Group, Occurrence] = field(default_factory=dict)
    tombstones: set[bytes] = field(default_factory=set)
    holdings: dict[int, Holding] = field(default_factory=dict)

    def holding(self, project_id: int) -> Holding:
        """What a project holds; nothing where nobody loaded it."""
        found = self.holdings.get(project_id)
        if found is None:
            found = self.holdings[project_id] = Holding()
        return found
