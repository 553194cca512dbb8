"""A configuration that can be built: every reference resolved, every rule kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from flowmark_otel.collector.config.options import Options


class Kind(Enum):
    """What a component is."""

    RECEIVER = "receivers"
    CONNECTOR = "connectors"
    EXPORTER = "exporters"
    EXTENSION = "extensions"


class Trigger(Enum):
    """How the answers of a pipeline's exporters are joined (C4)."""

    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ONE_SUCCESS = "one_success"


class Acknowledge(Enum):
    """What a receipt to the sender says: the backend's answer, or custody (A24)."""

    END_TO_END = "end_to_end"
    ON_SPOOL = "on_spool"


@dataclass(frozen=True, slots=True)
class Component:
    """A component that is used. ``id`` is ``type`` or ``type/name``, unique in its kind.

    ``alias_of``: the type that the one in the id is another name of, empty for none.
    """

    id: str
    kind: Kind
    options: Options
    alias_of: str = ""

    @property
    def type(self) -> str:
        """The part of the id before the slash, an alias resolved."""
        return self.alias_of or self.id.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``receivers`` and ``exporters`` are ids; a connector is an exporter here, a receiver there.

    ``signal``: ``traces`` or ``logs``, the part of the id before the slash.
    """

    id: str
    receivers: tuple[str, ...]
    exporters: tuple[str, ...]
    trigger: Trigger = Trigger.ALL_SUCCESS

    @property
    def signal(self) -> str:
        """What flows into it."""
        return self.id.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a file. Maps are by id and hold only what is used; there are no cycles.

    ``extensions``: those that ``service.extensions`` names; a receiver's ``authenticator`` is among
    them. ``telemetry``: ``HOST:PORT`` of metrics, health and status, None for none.
    ``memory_limit``: bytes of this process over which requests are refused, None for no limit.
    ``unused``: what the file declares beside, ``exporters.file/old``; nothing of it is built.
    """

    receivers: Mapping[str, Component]
    connectors: Mapping[str, Component]
    exporters: Mapping[str, Component]
    pipelines: Mapping[str, Pipeline]
    acknowledge: Acknowledge = Acknowledge.END_TO_END
    telemetry: str | None = None
    extensions: Mapping[str, Component] = field(default_factory=dict)
    memory_limit: int | None = None
    log_level: str = "warning"
    unused: tuple[str, ...] = ()
