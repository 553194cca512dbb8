"""What two nodes may not share, and what custody needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Final
from urllib.parse import urlsplit

from flowmark_otel.collector.config import components
from flowmark_otel.collector.config.document import Path
from flowmark_otel.collector.config.options import (
    FileExporter,
    FlowmarkExporter,
    GrpcServer,
    HttpServer,
    OtlpReceiver,
    Remote,
)
from flowmark_otel.collector.config.sections import SERVICE, Sections
from flowmark_otel.collector.plan import Acknowledge, Component, Kind
from flowmark_otel.config import split_address

_HTTP: Final = 80
_HTTPS: Final = 443
_ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  what others may have written
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def check(found: Sections) -> None:
    """Note what is owned twice, who sends to itself, and custody without a place for it."""
    _shared(found)
    _own_doors(found)
    _custody(found)


def servers_of(component: Component) -> Iterator[tuple[str, GrpcServer | HttpServer]]:
    """The protocols of a receiver that are on, by name."""
    if isinstance(component.options, OtlpReceiver):
        for server in component.options.servers:
            yield ("grpc" if isinstance(server, GrpcServer) else "http"), server


def _shared(found: Sections) -> None:
    """Files, folders and addresses have one owner."""
    owners: dict[tuple[str, str], Path] = {}
    for what, value, path in _owned(found):
        first = owners.setdefault((what, value), path)
        if first is not path:
            shared = ".".join(str(part) for part in first)
            found.fault(path, f"is the {what} of {shared} too; give each its own")


def _own_doors(found: Sections) -> None:
    """An exporter that sends to a receiver of the same file sends for ever."""
    doors = {
        where: (component.kind.value, component.id, "protocols", name, "endpoint")
        for component in found.of(Kind.RECEIVER)
        for name, server in servers_of(component)
        for where in _reached(server.endpoint)
    }
    for exporter in found.of(Kind.EXPORTER):
        if not isinstance(exporter.options, Remote):
            continue
        parts = urlsplit(exporter.options.url)
        port = parts.port or (_HTTPS if exporter.options.secure else _HTTP)
        door = doors.get((parts.hostname or "", port))
        if door is not None:
            found.fault(
                (exporter.kind.value, exporter.id, "endpoint"),
                f"is this collector's own {'.'.join(door)}: what it sends would come back for ever;"
                " set the address of the next party",
            )


def _reached(endpoint: str) -> Iterator[tuple[str, int]]:
    """Hosts, in lower case, and the port that lead to an address from this machine."""
    host, port = split_address(endpoint.lower())
    own = host in _ANY or host in _LOOPBACK
    for each in {host, *(_LOOPBACK if own else ())} if port else ():
        yield each, port


def _owned(found: Sections) -> Iterator[tuple[str, str, Path]]:
    for component in found.of(Kind.RECEIVER):
        for name, server in servers_of(component):
            if split_address(server.endpoint)[1]:
                place = (component.kind.value, component.id, "protocols", name, "endpoint")
                yield "address", server.endpoint.lower(), place
    metrics = found.service.telemetry.metrics if found.service is not None else None
    if metrics is not None and metrics.address is not None and split_address(metrics.address)[1]:
        yield "address", metrics.address.lower(), (SERVICE, "telemetry", "metrics", "address")
    for component in found.of(Kind.EXPORTER):
        options = component.options
        path: Path = (component.kind.value, component.id)
        if isinstance(options, FileExporter):
            yield "file", _real(options.path), (*path, "path")
        elif isinstance(options, FlowmarkExporter) and options.spool is not None:
            yield "folder", _real(options.spool.directory), (*path, "spool", "directory")


def _real(path: FilePath) -> str:
    return os.path.realpath(path.expanduser())


def _custody(found: Sections) -> None:
    """Custody needs somewhere to keep things; a spool that ``end_to_end`` does not use is fine."""
    service = found.service
    if service is None or service.acknowledge != Acknowledge.ON_SPOOL.value:
        return
    exporters = [
        each for each in found.of(Kind.EXPORTER) if isinstance(each.options, FlowmarkExporter)
    ]
    used = [each for each in exporters if found.exporting_to(each.id)]
    for each in used:
        if isinstance(each.options, FlowmarkExporter) and each.options.spool is None:
            found.fault(
                (each.kind.value, each.id, "spool"),
                "is missing, and service.acknowledge is on_spool; set spool: {directory: ./spool}",
            )
    declared = {each.partition("/")[0] for each in found.declared[Kind.EXPORTER]}
    if not used and components.FLOWMARK not in declared:
        found.fault(
            (SERVICE, "acknowledge"),
            "on_spool needs an exporter flowmark with a spool; add one, or set end_to_end",
        )
