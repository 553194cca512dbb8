"""What nodes say of themselves: counts, state, last failure; apart from what pipelines say (C6).

Nodes call a ``NodeMeter``; ``metrics`` and ``status`` read. Counting costs a few additions a
message, whether or not an address for metrics is given.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from flowmark_otel.clock import Clock
from flowmark_otel.collector.plan import Kind, Plan


class NodeState(Enum):
    """Where a node stands now; one that is not ``ready`` makes ``/readyz`` say no."""

    STARTING = "starting"
    OK = "ok"
    WAITING = "waiting"  # for the capabilities of its downstream: attempts are refused meanwhile
    FAILING = "failing"  # its last message failed, the next may not
    PAUSED = "paused"  # 401, 403, 404: it keeps what it has until somebody mends the settings
    REFUSING = "refusing"  # its failure budget is spent
    CLOSED = "closed"

    @property
    def ready(self) -> bool:
        """Whether messages are taken in this state."""
        return self in {NodeState.OK, NodeState.FAILING, NodeState.PAUSED}


class Failure(NamedTuple):
    """A message that failed: when, by its error name of section 9, and what was said of it."""

    time_unix_nano: int
    exception: str
    message: str


class SpoolReading(NamedTuple):
    """A spool now: bytes on disk; seconds since its oldest record was written, 0 while empty."""

    size: int
    oldest_seconds: float


class NodeReading(NamedTuple):
    """A node at one moment. ``refused`` is by reason; items are spans, records, events, letters."""

    id: str
    kind: Kind
    state: NodeState
    why: str
    messages: int
    failed_messages: int
    received: int
    folded: int
    forwarded: int
    dropped: int
    letters: int
    retries: int
    refused: dict[str, int]
    last_failure: Failure | None
    spool: SpoolReading | None


class NodeMeter:
    """Counts of one node; may be called from any thread. Owns them."""

    __slots__ = (
        "_clock",
        "_counts",
        "_last",
        "_lock",
        "_refused",
        "_spool",
        "_state",
        "id",
        "kind",
    )

    def __init__(self, kind: Kind, node_id: str, clock: Clock) -> None:
        self.id = node_id
        self.kind = kind
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._state = (NodeState.STARTING, "")
        self._last: Failure | None = None
        self._spool: Callable[[], SpoolReading] | None = None

    def received(self, items: int) -> None:
        """One message came to the node, with so many spans, log records, events or letters."""
        with self._lock:
            self._counts["messages"] += 1
            self._counts["received"] += items

    def folded(self, events: int) -> None:
        """Events that a connector made."""
        self._add("folded", events)

    def forwarded(self, items: int) -> None:
        """Items that were taken by who comes next, or written."""
        self._add("forwarded", items)

    def refused(self, reason: str, items: int) -> None:
        """Items that did not get through, for a reason of section 3 or a rejection code."""
        with self._lock:
            self._refused[reason] += items

    def dropped(self, items: int) -> None:
        """Items that ``on_error: continue`` gave up; they are ``refused`` for their reason too."""
        self._add("dropped", items)

    def letters(self, items: int) -> None:
        """Items that were routed to the error port."""
        self._add("letters", items)

    def retried(self, tries: int = 1) -> None:
        """Tries after the first one of a message."""
        self._add("retries", tries)

    def failed(self, exception: str, message: str) -> None:
        """One message failed in the end, by an error name of section 9."""
        failure = Failure(self._clock.now_ns(), exception, message)
        with self._lock:
            self._counts["failed_messages"] += 1
            self._last = failure

    def now(self, state: NodeState, why: str = "") -> bool:
        """Say where the node stands; whether that is news. ``why``: for an operator, no secrets."""
        with self._lock:
            changed = self._state[0] is not state
            self._state = (state, why)
        return changed

    def watch_spool(self, reading: Callable[[], SpoolReading]) -> None:
        """Ask this for the node's spool when somebody looks; called in any thread."""
        self._spool = reading

    @property
    def state(self) -> NodeState:
        """Where the node stands."""
        return self._state[0]

    def read(self) -> NodeReading:
        """Everything at one moment."""
        spool = self._spool() if self._spool is not None else None
        with self._lock:
            count = self._counts
            return NodeReading(
                self.id,
                self.kind,
                *self._state,
                count["messages"],
                count["failed_messages"],
                count["received"],
                count["folded"],
                count["forwarded"],
                count["dropped"],
                count["letters"],
                count["retries"],
                dict(self._refused),
                self._last,
                spool,
            )

    def _add(self, name: str, items: int) -> None:
        with self._lock:
            self._counts[name] += items


class PipelineReading(NamedTuple):
    """A pipeline at one moment: messages by how they ended for their sender, the last failure."""

    id: str
    receivers: tuple[str, ...]
    exporters: tuple[str, ...]
    trigger: str
    completed: int
    failed: int
    last_failure: Failure | None


class PipelineMeter:
    """How the messages of one pipeline ended, its trigger applied; any thread."""

    __slots__ = ("_clock", "_completed", "_failed", "_last", "_lock", "id")

    def __init__(self, pipeline_id: str, clock: Clock) -> None:
        self.id = pipeline_id
        self._clock = clock
        self._lock = threading.Lock()
        self._completed = 0
        self._failed = 0
        self._last: Failure | None = None

    def completed(self) -> None:
        """One message ended well, whatever branches of it failed."""
        with self._lock:
            self._completed += 1

    def failed(self, exception: str, message: str) -> None:
        """One message failed: its sender was told so."""
        failure = Failure(self._clock.now_ns(), exception, message)
        with self._lock:
            self._failed += 1
            self._last = failure

    def counts(self) -> tuple[int, int, Failure | None]:
        """Completed, failed, and the last failure."""
        with self._lock:
            return self._completed, self._failed, self._last


class Meter:
    """The meters of all nodes and pipelines of a plan, made at once."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan = plan
        self._nodes = {
            (kind, node_id): NodeMeter(kind, node_id, clock)
            for kind, components in (
                (Kind.RECEIVER, plan.receivers),
                (Kind.CONNECTOR, plan.connectors),
                (Kind.EXPORTER, plan.exporters),
            )
            for node_id in components
        }
        self._pipelines = {each: PipelineMeter(each, clock) for each in plan.pipelines}

    def node(self, kind: Kind, node_id: str) -> NodeMeter:
        """The meter of one node."""
        return self._nodes[kind, node_id]

    def pipeline(self, pipeline_id: str) -> PipelineMeter:
        """The meter of one pipeline."""
        return self._pipelines[pipeline_id]

    def nodes(self) -> Iterable[NodeReading]:
        """All nodes: receivers, connectors, exporters, each in the order of the file."""
        return [meter.read() for meter in self._nodes.values()]

    def pipelines(self) -> Iterable[PipelineReading]:
        """All pipelines in the order of the file."""
        return [
            PipelineReading(
                each.id,
                each.receivers,
                each.exporters,
                each.trigger.value,
                *self._pipelines[each.id].counts(),
            )
            for each in self._plan.pipelines.values()
        ]

    async def ready(self) -> str:
        """Why messages cannot be taken now, in words that anybody may read; empty where they can.

        A ``listen.health.Ready``.
        """
        for meter in self._nodes.values():
            if not meter.state.ready:
                return f"{meter.kind.name.lower()} {meter.id} is {meter.state.value}"
        return ""
