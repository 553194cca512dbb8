"""A configuration that can be built: every reference resolved, every rule kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from flowmark_otel.collector.config.options import Options


class Kind(Enum):
    """What a component is."""

    RECEIVER = "receivers"
    CONNECTOR = "connectors"
    EXPORTER = "exporters"


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
    """A component that a pipeline uses. ``id`` is ``type`` or ``type/name``, unique in its kind."""

    id: str
    kind: Kind
    options: Options

    @property
    def type(self) -> str:
        """The part of the id before the slash, an alias resolved by who made the plan."""
        return self.id.partition("/")[0]


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
    """All of a file. Maps are by id and hold only what a pipeline uses; there are no cycles.

    ``telemetry``: ``HOST:PORT`` of metrics, health and status, None for none.
    """

    receivers: Mapping[str, Component]
    connectors: Mapping[str, Component]
    exporters: Mapping[str, Component]
    pipelines: Mapping[str, Pipeline]
    acknowledge: Acknowledge = Acknowledge.END_TO_END
    telemetry: str | None = None
