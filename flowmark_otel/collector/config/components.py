"""Which components there are, what their ids look like, and pointers for those we do not have."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final, NamedTuple

from flowmark_otel.collector.config.options import (
    BearerTokenAuth,
    ErrorsConnector,
    FileExporter,
    FlowmarkConnector,
    FlowmarkExporter,
    Options,
    OtlpGrpcExporter,
    OtlpHttpExporter,
    OtlpReceiver,
)
from flowmark_otel.collector.config.values import nearest, shown
from flowmark_otel.collector.plan import Kind

OTLP: Final = "otlp"
FLOWMARK: Final = "flowmark"
ERRORS: Final = "errors"
FILE: Final = "file"
OTLP_HTTP: Final = "otlp_http"
OTLP_GRPC: Final = "otlp_grpc"
BEARER: Final = "bearertokenauth"

TYPES: Final[Mapping[Kind, Mapping[str, type[Options]]]] = {
    Kind.RECEIVER: {OTLP: OtlpReceiver},
    Kind.CONNECTOR: {FLOWMARK: FlowmarkConnector, ERRORS: ErrorsConnector},
    Kind.EXPORTER: {
        FLOWMARK: FlowmarkExporter,
        OTLP_HTTP: OtlpHttpExporter,
        OTLP_GRPC: OtlpGrpcExporter,
        FILE: FileExporter,
    },
    Kind.EXTENSION: {BEARER: BearerTokenAuth},
}
ALIASES: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.EXPORTER: {"otlp": OTLP_GRPC, "otlphttp": OTLP_HTTP}
}

_IN_FRONT: Final = "put an OpenTelemetry Collector in front for it"
_HEALTH: Final = "leave it out: service.telemetry.metrics.address serves /healthz and /readyz"
_POINTERS: Final[Mapping[Kind, Mapping[str, str]]] = {
    Kind.EXTENSION: {
        "health_check": _HEALTH,
        "healthcheckv2": _HEALTH,
        "memory_limiter": "set service.memory_limit_mib",
        "file_storage": "set spool in the exporter flowmark",
        "zpages": "leave it out: service.telemetry.metrics.address serves /status",
    },
    Kind.EXPORTER: {"debug": "leave it out, or write to a file exporter"},
}

_TYPE: Final = re.compile(r"[a-zA-Z][0-9a-zA-Z_]{0,62}")
_NAME_MAX: Final = 1024
_BANNED: Final = ("Z", "C", "S")  # separators, controls and symbols, as the Collector has it


class Known(NamedTuple):
    """A component type: its model, and the name it is another name of, or empty."""

    model: type[Options]
    alias_of: str


def id_fault(component_id: str) -> str:
    """Why this is no component id, with the mend; empty where it is one."""
    kind, slash, name = component_id.partition("/")
    if not _TYPE.fullmatch(kind):
        return f"{shown(component_id)} is no id; write a type, or type/name"
    if not slash:
        return ""
    bad = [char for char in name if unicodedata.category(char)[0] in _BANNED]
    if not name or len(name) > _NAME_MAX or bad:
        return f"{shown(component_id)} has no name after the slash that can be used; write letters"
    return ""


def find(kind: Kind, component_id: str) -> Known | str:
    """The type of an id, or why there is none, with the mend."""
    name = component_id.partition("/")[0]
    alias = ALIASES.get(kind, {}).get(name, "")
    model = TYPES[kind].get(alias or name)
    if model is not None:
        return Known(model, alias)
    what = kind.value.removesuffix("s")
    pointer = _POINTERS.get(kind, {}).get(name)
    if pointer is not None:
        return f"there is no {what} {name} here; {pointer}"
    known = (*TYPES[kind], *ALIASES.get(kind, {}))
    hint = nearest(name, known)
    also = f"; {_IN_FRONT}" if kind is Kind.RECEIVER else ""
    return f"there is no {what} {shown(name)} here{hint}{also}"
