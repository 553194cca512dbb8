"""The section ``service``: what is built of the components, and what the process says of itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from flowmark_otel.collector.config.options import Options
from flowmark_otel.collector.config.values import Address, Whole


def _no_processors(found: tuple[str, ...]) -> tuple[str, ...]:
    if found:
        msg = (
            "has processors, and there are none here;"
            " leave the key out, and process in an OpenTelemetry Collector in front"
        )
        raise ValueError(msg)
    return found


def _level(value: object) -> object:
    """The Collector says warn where Python says warning."""
    return "warning" if value == "warn" else value


class PipelineOptions(Options):
    """One pipeline: ids of what it receives from and exports to (contract, section 9)."""

    receivers: Annotated[tuple[str, ...], Field(min_length=1)]
    exporters: Annotated[tuple[str, ...], Field(min_length=1)]
    processors: Annotated[tuple[str, ...], AfterValidator(_no_processors)] = ()
    trigger: Literal["all_success", "all_done", "one_success"] = "all_success"


class MetricsOptions(Options):
    """``address``: where ``/metrics``, ``/healthz``, ``/readyz`` and ``/status`` are served."""

    address: Address | None = None


class LogsOptions(Options):
    """The log on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_level)] = (
        "warning"
    )


class TelemetryOptions(Options):
    """What the process says of itself."""

    metrics: MetricsOptions = MetricsOptions()
    logs: LogsOptions = LogsOptions()


class ServiceOptions(Options):
    """``service`` without its pipelines, which are judged one by one.

    ``memory_limit_mib``: of the whole process; over it requests are refused with a time to wait.
    """

    acknowledge: Literal["end_to_end", "on_spool"] = "end_to_end"
    extensions: tuple[str, ...] = ()
    memory_limit_mib: Annotated[Whole, Field(ge=128, le=1 << 20)] | None = None
    telemetry: TelemetryOptions = TelemetryOptions()
