"""What flows where: nothing leads nowhere, nothing in circles, nothing to who cannot take it."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final

from flowmark_otel.collector.config import components
from flowmark_otel.collector.config.options import Policy
from flowmark_otel.collector.config.sections import Sections, place
from flowmark_otel.collector.plan import Kind

TRACES: Final = "spans"
LOGS: Final = "log records"
EVENTS: Final = "envelopes"
LETTERS: Final = "dead letters"

_EVERYTHING: Final = frozenset({TRACES, LOGS, EVENTS, LETTERS})
_TAKES: Final[Mapping[tuple[Kind, str], frozenset[str]]] = {
    (Kind.CONNECTOR, components.FLOWMARK): frozenset({TRACES, LOGS}),
    (Kind.EXPORTER, components.FLOWMARK): frozenset({LOGS, EVENTS}),
    (Kind.EXPORTER, components.OTLP_HTTP): _EVERYTHING,
    (Kind.EXPORTER, components.OTLP_GRPC): _EVERYTHING,
    (Kind.EXPORTER, components.FILE): _EVERYTHING,
}
_INSTEAD: Final[Mapping[str, str]] = {
    TRACES: "put a connector flowmark between them",
    EVENTS: "they are folded already; export them to a flowmark exporter",
    LETTERS: "export them to a file exporter",
}


def check(found: Sections) -> None:
    """Note what is wrong with connectors, signals and cycles."""
    if not found.incomplete:  # else the pipeline that joins may be the one that is not known
        _connectors(found)
    for pipeline_id in found.pipelines:
        _flow(found, pipeline_id)
    _cycles(found)


def _connectors(found: Sections) -> None:
    """A connector joins pipelines: one that only ends or only begins them leads nowhere."""
    for connector in found.of(Kind.CONNECTOR):
        from_it = found.receiving_from(connector.id)
        to_it = found.exporting_to(connector.id)
        if connector.type == components.ERRORS:
            for pipeline_id in to_it:
                at = found.pipelines[pipeline_id].exporters.index(connector.id)
                found.fault(
                    place(pipeline_id, "exporters", at),
                    "takes what nodes route to it, not what a pipeline exports;"
                    f" leave it out here and set errors: {connector.id} on a node",
                )
            if from_it and not found.routing_to(connector.id) and not _lost_routes(found):
                found.fault(
                    place(from_it[0], "receivers"),
                    f"no node routes to {connector.id}; set on_error: route and errors:"
                    f" {connector.id} on one, or take the pipeline away",
                )
            continue
        for pipeline_id in to_it if not from_it else ():
            at = found.pipelines[pipeline_id].exporters.index(connector.id)
            found.fault(
                place(pipeline_id, "exporters", at),
                f"{connector.id} leads nowhere: no pipeline receives from it;"
                f" add logs/envelopes: {{receivers: [{connector.id}], exporters: [flowmark]}}",
            )
        for pipeline_id in from_it if not to_it else ():
            at = found.pipelines[pipeline_id].receivers.index(connector.id)
            found.fault(
                place(pipeline_id, "receivers", at),
                f"{connector.id} gives nothing: no pipeline exports to it; add it to the exporters"
                " of a traces pipeline",
            )


def _lost_routes(found: Sections) -> bool:
    """Whether a node routes to nothing that is known, which has its own fault."""
    return any(
        isinstance(each.options, Policy)
        and each.options.on_error == "route"
        and each.options.errors not in found.declared[Kind.CONNECTOR]
        for each in (*found.of(Kind.CONNECTOR), *found.of(Kind.EXPORTER))
    )


def _flow(found: Sections, pipeline_id: str) -> None:
    """What comes into a pipeline has to be what its receivers give and its exporters take."""
    options = found.pipelines[pipeline_id]
    signal = pipeline_id.partition("/")[0]
    flows: set[str] = set()
    for at, each in enumerate(options.receivers):
        connector = found.components.get((Kind.CONNECTOR, each))
        if connector is None:
            if (Kind.RECEIVER, each) in found.components:
                flows.add(LOGS if signal == "logs" else TRACES)
        elif connector.type == components.ERRORS:
            if signal != "logs":
                found.fault(
                    place(pipeline_id, "receivers", at),
                    f"{each} gives dead letters, which are logs; name the pipeline logs/…",
                )
            else:
                flows.add(LETTERS)
        else:
            flows.add(EVENTS if signal == "logs" else TRACES)
            if signal == "traces" and not _gets_traces(found, each):
                found.fault(
                    place(pipeline_id, "receivers", at),
                    f"{each} has no traces to give: no traces pipeline exports to it",
                )
    for at, each in enumerate(options.exporters):
        exporter = found.node(each)
        if exporter is None or exporter.type == components.ERRORS:
            continue
        for flow in sorted(flows - _TAKES[exporter.kind, exporter.type]):
            found.fault(
                place(pipeline_id, "exporters", at),
                f"{exporter.kind.name.lower()} {each} takes no {flow}; {_INSTEAD[flow]}",
            )
    if LETTERS in flows and len(flows) > 1:
        found.fault(
            place(pipeline_id, "receivers"),
            "mixes dead letters with other records; give the letters a pipeline of their own",
        )


def _gets_traces(found: Sections, connector_id: str) -> bool:
    given = found.exporting_to(connector_id)
    return not given or any(each.partition("/")[0] == "traces" for each in given)


def _cycles(found: Sections) -> None:
    """Each cycle once, at the pipeline that closes it; what a node routes is an edge too."""
    edges: dict[str, set[str]] = {each: set() for each in found.pipelines}
    for pipeline_id, options in found.pipelines.items():
        for each in options.exporters:
            node = found.node(each)
            policy = node.options if node is not None else None
            errors = policy.errors if isinstance(policy, Policy) else None
            for target in (each, errors):
                if target in found.declared[Kind.CONNECTOR]:
                    edges[pipeline_id] |= set(found.receiving_from(str(target)))
    while way := _cycle(edges):
        found.fault(
            place(way[-2]), f"is part of a cycle, {' → '.join(way)}; take one edge of it away"
        )
        edges[way[-2]].discard(way[-1])


def _cycle(edges: dict[str, set[str]]) -> list[str]:
    """The pipelines of a cycle in the order of flow, the first one again at the end; else empty."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        way: list[str] = error.args[1]
        return way[::-1]  # the sorter takes edges for predecessors
    return []
