"""From a configuration file to a plan, or every fault of it at once (contract, section 9)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flowmark_otel.collector.config import document, environment, graph, sections
from flowmark_otel.collector.config.document import Fault
from flowmark_otel.collector.config.sections import Sections
from flowmark_otel.collector.config.service import ServiceOptions
from flowmark_otel.collector.plan import Acknowledge, Component, Kind, Pipeline, Plan, Trigger
from flowmark_otel.errors import ConfigurationError

MAX_SAID: Final = 200
"""So many faults are said of one file."""


def load(path: Path, environ: Mapping[str, str], *, no_auth: bool = False) -> Plan:
    """The plan of a file; raises ConfigurationError with every fault, in the order of the file."""
    try:
        with path.open("rb") as source:
            content = source.read(document.MAX_BYTES + 1)
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}); name a file that can"
        raise ConfigurationError([msg]) from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"is no UTF-8 at byte {error.start}; save it as UTF-8"
        raise ConfigurationError([msg]) from error
    return plan_of(text, environ, no_auth=no_auth)


def plan_of(text: str, environ: Mapping[str, str], *, no_auth: bool = False) -> Plan:
    """The plan of a text; raises ConfigurationError with every fault."""
    found = sections.read(environment.expand(document.read(text), environ))
    if not _unread(found):
        graph.check(found, no_auth=no_auth)
    if found.faults or found.service is None:
        raise ConfigurationError(_said(_ordered(found.faults)))
    return _plan(found, found.service)


def _unread(found: Sections) -> bool:
    """Whether the text was no YAML: nothing more can be said of it."""
    return bool(found.faults) and not any(found.declared.values()) and not found.pipelines


def _said(faults: list[Fault]) -> list[str]:
    more = len(faults) - MAX_SAID
    said = [str(each) for each in faults[:MAX_SAID]]
    return [*said, f"and {more} more"] if more > 0 else said


def _ordered(faults: list[Fault]) -> list[Fault]:
    """By line, what has none last, each once."""
    return sorted(dict.fromkeys(faults), key=lambda each: each.line or len(faults) + 1_000_000)


def _plan(found: Sections, service: ServiceOptions) -> Plan:
    sources = {each for one in found.pipelines.values() for each in one.receivers}
    targets = {each for one in found.pipelines.values() for each in one.exporters}
    wanted = {
        Kind.RECEIVER: sources,
        Kind.CONNECTOR: sources | targets,
        Kind.EXPORTER: targets,
        Kind.EXTENSION: set(service.extensions),
    }
    used: dict[Kind, dict[str, Component]] = {kind: {} for kind in Kind}
    left: list[str] = []
    for (kind, component_id), component in found.components.items():
        if component_id in wanted[kind]:
            used[kind][component_id] = component
        else:
            left.append(f"{kind.value}.{component_id}")
    limit = service.memory_limit_mib
    return Plan(
        receivers=used[Kind.RECEIVER],
        connectors=used[Kind.CONNECTOR],
        exporters=used[Kind.EXPORTER],
        pipelines={
            each: Pipeline(each, options.receivers, options.exporters, Trigger(options.trigger))
            for each, options in found.pipelines.items()
        },
        acknowledge=Acknowledge(service.acknowledge),
        telemetry=service.telemetry.metrics.address,
        extensions=used[Kind.EXTENSION],
        memory_limit=None if limit is None else limit << 20,
        log_level=service.telemetry.logs.level,
        unused=tuple(left),
    )
