"""The nodes of a plan, joined: who hands what to whom, and how answers come back (C4, C6).

Build order: exporters, connectors, then pipelines between them. What has no cycle needs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from flowmark_otel.clock import Clock
from flowmark_otel.collector.budget import Budget
from flowmark_otel.collector.config.options import FlowmarkConnector, Policy
from flowmark_otel.collector.element import Element, ElementError, Outcome, Preparing
from flowmark_otel.collector.joining import joined
from flowmark_otel.collector.meter import Meter, NodeState, PipelineMeter
from flowmark_otel.collector.node import Guard, Taking
from flowmark_otel.collector.nodes import EnvelopeNode, FoldNode, PlainNode, Reader
from flowmark_otel.collector.payload import Payload, size_of
from flowmark_otel.collector.plan import Component, Kind, Pipeline, Plan, Trigger
from flowmark_otel.collector.policy import Rules
from flowmark_otel.collector.together import Left, ended, first, together
from flowmark_otel.config import parsers
from flowmark_otel.signals import NO_SIGNALS, Signals, signals_of

FLOWMARK = "flowmark"
ERRORS = "errors"
_MS = 1000.0

Make = Callable[[Component], Element]


class Line:
    """One pipeline: its exporters and its trigger."""

    def __init__(
        self, trigger: Trigger, exporters: Sequence[Taking], meter: PipelineMeter, left: Left
    ) -> None:
        self._trigger = trigger
        self._exporters = exporters
        self._meter = meter
        self._left = left

    async def take(self, payload: Payload) -> Outcome:
        """Hand it to all exporters; the answer is as the trigger joins theirs."""
        try:
            outcome = await self._joined(payload)
        except ElementError as error:
            self._meter.failed(error.name, str(error))
            raise
        self._meter.completed()
        return outcome

    async def _joined(self, payload: Payload) -> Outcome:
        if len(self._exporters) == 1:
            return await self._exporters[0].take(payload)
        works = [each.take(payload) for each in self._exporters]
        if self._trigger is Trigger.ONE_SUCCESS:
            return await first(works, self._left)
        return joined(await ended(works, self._trigger))


class Fan:
    """Several pipelines that receive the same: a receiver's, or those of an error port."""

    def __init__(self, lines: Sequence[Taking]) -> None:
        self.lines = lines

    async def take(self, payload: Payload) -> Outcome:
        """Hand it to all of them. Raises ElementError where one failed."""
        return await together([each.take(payload) for each in self.lines])


class Port(Fan):
    """An ``errors`` connector: what nodes route to."""

    def __init__(self, component: Component, meter: Meter) -> None:
        super().__init__(())
        self._meter = meter.node(Kind.CONNECTOR, component.id)
        self._meter.now(NodeState.OK)

    async def take(self, payload: Payload) -> Outcome:
        """Hand letters on. Raises ElementError where one of its pipelines failed."""
        self._meter.received(size_of(payload))
        outcome = await super().take(payload)
        self._meter.forwarded(size_of(payload))
        return outcome


@dataclass(slots=True)
class Graph:
    """What was built. ``entries``: by receiver and signal, what takes a request there.

    ``exporters``: their elements, by id; whoever runs the graph starts and closes them.
    """

    entries: dict[tuple[str, str], Fan]
    exporters: dict[str, Element]
    left: Left = field(default_factory=Left)


class Builder:
    """Builds one graph; ``make`` gives the element of an exporter."""

    def __init__(self, plan: Plan, meter: Meter, clock: Clock, threads: Executor) -> None:
        self._plan = plan
        self._meter = meter
        self._clock = clock
        self._threads = threads
        self._ports = {
            each.id: Port(each, meter) for each in plan.connectors.values() if each.type == ERRORS
        }

    def port(self, component: Component) -> Port | None:
        """The error port of a node, None without one."""
        options = component.options
        errors = options.errors if isinstance(options, Policy) else None
        return None if errors is None else self._ports[errors]

    def build(self, make: Make) -> Graph:
        """All of it."""
        plan, left = self._plan, Left()
        elements = {each.id: make(each) for each in plan.exporters.values()}
        takers: dict[str, Taking] = {}
        for each in plan.exporters.values():
            guard, element = self._guard(each, Kind.EXPORTER), elements[each.id]
            if each.type == FLOWMARK:
                takers[each.id] = EnvelopeNode(guard, element, self._reader((element,)))
            else:
                takers[each.id] = PlainNode(guard, element)
        folds: dict[str, FoldNode] = {}
        for each in plan.connectors.values():
            if each.type != ERRORS:
                folds[each.id] = self._fold(each, elements)
        # A connector's id may be that of an exporter too: in a pipeline only one of them is meant.
        found: dict[str, Taking] = {**takers, **folds}
        lines = {
            each.id: Line(
                each.trigger,
                [found[name] for name in each.exporters],
                self._meter.pipeline(each.id),
                left,
            )
            for each in plan.pipelines.values()
        }
        self._connect(folds, lines)
        return Graph(self._entries(lines), elements, left)

    def _reader(self, following: Iterable[Element], signals: Signals = NO_SIGNALS) -> Reader:
        prepare = [each.prepare for each in following if isinstance(each, Preparing)]
        return Reader(self._threads, signals, prepare)

    def _fold(self, component: Component, elements: Mapping[str, Element]) -> FoldNode:
        options = component.options
        words = options.signals if isinstance(options, FlowmarkConnector) else "safe"
        following = {
            name
            for pipeline in self._from(component.id, "logs")
            for name in pipeline.exporters
            if name in elements and name not in self._plan.connectors
        }
        ways = [elements[name] for name in sorted(following)]
        reader = self._reader(ways, signals_of(parsers.signals(words)))
        guard = self._guard(component, Kind.CONNECTOR)
        guard.meter.now(NodeState.OK)
        return FoldNode(guard, reader)

    def _connect(self, folds: Mapping[str, FoldNode], lines: Mapping[str, Line]) -> None:
        for name, fold in folds.items():
            fold.traces = [lines[each.id] for each in self._from(name, "traces")]
            fold.logs = [lines[each.id] for each in self._from(name, "logs")]
        for name, port in self._ports.items():
            port.lines = [lines[each.id] for each in self._from(name)]

    def _from(self, name: str, signal: str = "") -> list[Pipeline]:
        return [
            each
            for each in self._plan.pipelines.values()
            if name in each.receivers and signal in ("", each.signal)
        ]

    def _entries(self, lines: Mapping[str, Line]) -> dict[tuple[str, str], Fan]:
        return {
            (receiver, signal): Fan([lines[each.id] for each in found])
            for receiver in self._plan.receivers
            for signal in ("traces", "logs")
            if (found := self._from(receiver, signal))
        }

    def _guard(self, component: Component, kind: Kind) -> Guard:
        options = component.options
        if not isinstance(options, Policy):
            options = Policy()
        keeps = kind is Kind.EXPORTER and component.type == FLOWMARK
        return Guard(
            rules_of(options, keeps=keeps),
            budget_of(options),
            self._meter.node(kind, component.id),
            self._clock,
            self.port(component),
        )


def rules_of(options: Policy, *, keeps: bool = False) -> Rules:
    """The failure policy that options describe."""
    rules = Rules(
        options.on_error,
        try_seconds=options.element_timeout_ms / _MS,
        deadline=options.deadline_ms / _MS,
        keeps=keeps,
    )
    retry = options.retry
    if retry is None:
        return rules
    return rules._replace(
        max_attempts=retry.max_attempts,
        first_wait=retry.backoff_ms / _MS,
        longest_wait=retry.max_backoff_ms / _MS,
        retry_on=frozenset(retry.retry_on),
        no_retry_on=frozenset(retry.no_retry_on),
    )


def budget_of(options: Policy) -> Budget | None:
    """The failure budget that options describe, None without one."""
    found = options.failure_budget
    return None if found is None else Budget(found.max_failures, found.window_ms / _MS)
