"""From the values of a file to components and pipelines, each section judged by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import BaseModel

from flowmark_otel.collector.config import components, salvage
from flowmark_otel.collector.config.document import Document, Fault, Path
from flowmark_otel.collector.config.options import Policy
from flowmark_otel.collector.config.service import PipelineOptions, ServiceOptions
from flowmark_otel.collector.config.values import nearest, shown
from flowmark_otel.collector.plan import Component, Kind

Model = TypeVar("Model", bound=BaseModel)

SERVICE: Final = "service"
PIPELINES: Final = "pipelines"
SIGNALS: Final = ("traces", "logs")

_PROCESSORS: Final = "processors"
_TOP: Final = (*(kind.value for kind in Kind), SERVICE)
_OTHER_SIGNALS: Final = frozenset({"metrics", "profiles"})
_IN_FRONT: Final = "there are no processors here; process in an OpenTelemetry Collector in front"


@dataclass(slots=True)
class Sections:
    """What a file declares.

    ``components`` and ``pipelines`` hold what could be read; of what could not, ``declared`` still
    has the id, so that a reference to it is no second fault. What has a fault in one place is read
    without that place, for the rules that follow; no plan is made of it. ``incomplete``: there is a
    pipeline that could not be read at all.
    """

    components: dict[tuple[Kind, str], Component] = field(default_factory=dict)
    declared: dict[Kind, set[str]] = field(default_factory=dict)
    pipelines: dict[str, PipelineOptions] = field(default_factory=dict)
    service: ServiceOptions | None = None
    faults: list[Fault] = field(default_factory=list)
    lines: dict[Path, int] = field(default_factory=dict)
    spoilt: frozenset[Path] = frozenset()
    incomplete: bool = False

    def fault(self, path: Path, says: str) -> None:
        """Note a fault, at the nearest line that is known; of what is spoilt one is enough."""
        if any(path[:size] in self.spoilt for size in range(1, len(path) + 1)):
            return
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        self.faults.append(Fault(path, says, self.lines.get(known, 0)))

    def of(self, kind: Kind) -> Iterable[Component]:
        """The components of a kind, in the order of the file."""
        return [found for (its, _), found in self.components.items() if its is kind]

    def node(self, component_id: str) -> Component | None:
        """The exporter of an id in a pipeline's exporters, or the connector."""
        exporter = self.components.get((Kind.EXPORTER, component_id))
        return exporter or self.components.get((Kind.CONNECTOR, component_id))

    def receiving_from(self, component_id: str) -> list[str]:
        """The pipelines that receive from a component."""
        held = self.pipelines.items()
        return [each for each, options in held if component_id in options.receivers]

    def exporting_to(self, component_id: str) -> list[str]:
        """The pipelines that export to a component."""
        held = self.pipelines.items()
        return [each for each, options in held if component_id in options.exporters]

    def routing_to(self, errors_id: str) -> list[Component]:
        """The nodes that route what failed to an ``errors`` connector."""
        return [
            each
            for each in (*self.of(Kind.CONNECTOR), *self.of(Kind.EXPORTER))
            if isinstance(each.options, Policy)
            and each.options.on_error == "route"
            and each.options.errors == errors_id
        ]


def place(pipeline_id: str, *more: str | int) -> Path:
    """Where a pipeline stands in the file."""
    return (SERVICE, PIPELINES, pipeline_id, *more)


def read(document: Document) -> Sections:
    """All sections; every fault in them is noted."""
    found = Sections(faults=list(document.faults), lines=document.lines, spoilt=document.spoilt)
    found.declared = {kind: set() for kind in Kind}
    top = document.value
    if not isinstance(top, dict):
        if not found.faults:
            found.fault((), "holds no sections; write receivers, exporters and service")
        return found
    for key in top:
        if key not in (*_TOP, _PROCESSORS):
            found.fault((key,), f"there is no such section{nearest(key, _TOP)}")
    for kind in Kind:
        for component_id, options in _entries(found, top, kind.value):
            _component(found, kind, component_id, options)
    for component_id, _ in _entries(found, top, _PROCESSORS):
        found.fault((_PROCESSORS, component_id), _IN_FRONT)
    if top.get(SERVICE) is None:
        found.fault((SERVICE,), "is missing; write the pipelines there")
    else:
        _service(found, top[SERVICE])
    return found


def _entries(
    found: Sections, section: Mapping[str, object], name: str, path: Path = ()
) -> list[tuple[str, object]]:
    value = section.get(name)
    if value is None:
        return []
    if not isinstance(value, dict):
        found.fault((*path, name), "is no map; write one entry for each id")
        return []
    return list(value.items())


def _component(found: Sections, kind: Kind, component_id: str, options: object) -> None:
    path: Path = (kind.value, component_id)
    found.declared[kind].add(component_id)
    wrong = components.id_fault(component_id)
    known = components.find(kind, component_id)
    if wrong or isinstance(known, str):
        found.fault(path, wrong or str(known))
        return
    read_options = _validated(found, path, known.model, options)
    if read_options is None and issubclass(known.model, Policy) and isinstance(options, dict):
        read_options = _policy_of(options)
    if read_options is not None:
        found.components[kind, component_id] = Component(
            component_id, kind, read_options, known.alias_of
        )


def _policy_of(options: Mapping[str, object]) -> Policy | None:
    """What a node that cannot be read does about failures, where that much can."""
    kept = {key: value for key, value in options.items() if key in Policy.model_fields}
    return salvage.read(Policy, kept)[0]


def _service(found: Sections, value: object) -> None:
    path: Path = (SERVICE,)
    if not isinstance(value, dict):
        found.fault(path, "is no map; write the pipelines there")
        return
    rest = {key: each for key, each in value.items() if key != PIPELINES}
    found.service = _validated(found, path, ServiceOptions, rest)
    entries = _entries(found, value, PIPELINES, path)
    if not entries and not isinstance(value.get(PIPELINES), (list, str, int, float)):
        found.fault((*path, PIPELINES), "is empty; write one pipeline at least")
    for pipeline_id, options in entries:
        where = (*path, PIPELINES, pipeline_id)
        wrong = components.id_fault(pipeline_id) or _signal_fault(pipeline_id)
        if wrong:
            found.fault(where, wrong)
            found.incomplete = True
            continue
        pipeline = _validated(found, where, PipelineOptions, options)
        if pipeline is None:
            found.incomplete = True
        else:
            found.pipelines[pipeline_id] = pipeline


def _signal_fault(pipeline_id: str) -> str:
    signal = pipeline_id.partition("/")[0]
    if signal in SIGNALS:
        return ""
    if signal in _OTHER_SIGNALS:
        return f"{signal} are not taken here; send them to an OpenTelemetry Collector"
    return f"{shown(signal)} is no signal{nearest(signal, SIGNALS)}"


def _validated(found: Sections, path: Path, model: type[Model], options: object) -> Model | None:
    read_options, faults = salvage.read(model, {} if options is None else options)
    for inner, says in faults:
        found.fault((*path, *inner), says)
    return read_options
