"""What each kind of component can be told, one frozen model each (contract, section 9).

Times end in ``_ms``, sizes in ``_bytes``. Keys that no model names are faults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

HOUR_MS = 3_600_000


class Options(BaseModel):
    """Base of all: unknown keys are refused, nothing is changed after."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Retry(Options):
    """Tries of one message at one node, the first included (C2)."""

    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    backoff_ms: Annotated[int, Field(ge=1, le=HOUR_MS)] = 200
    max_backoff_ms: Annotated[int, Field(ge=1, le=HOUR_MS)] = 10_000
    retry_on: tuple[str, ...] = ()
    no_retry_on: tuple[str, ...] = ()


class FailureBudget(Options):
    """More failed messages than that within the window fail the node (C3)."""

    max_failures: Annotated[int, Field(ge=0, le=1_000_000)]
    window_ms: Annotated[int, Field(ge=1, le=24 * HOUR_MS)]


class Policy(Options):
    """What a node does about failures; every exporter and connector has it (C1-C5).

    ``errors``: id of the ``errors`` connector that takes what is routed.
    """

    on_error: Literal["fail", "continue", "route"] = "fail"
    errors: str | None = None
    retry: Retry | None = None
    failure_budget: FailureBudget | None = None
    element_timeout_ms: Annotated[int, Field(ge=1, le=HOUR_MS)] = 10_000
    deadline_ms: Annotated[int, Field(ge=1, le=HOUR_MS)] = 60_000


class Tls(Options):
    """TLS of an exporter, as the OpenTelemetry Collector names it."""

    insecure: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


class Spool(Options):
    """A folder that takes custody of envelopes (``acknowledge: on_spool``)."""

    directory: Path
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30


class OtlpExporter(Policy):
    """``otlp_http`` (alias ``otlphttp``) and ``otlp_grpc`` (alias ``otlp``): telemetry as it is."""

    endpoint: str
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    compression: Literal["gzip", "none"] = "none"
    tls: Tls = Tls()


class FlowmarkExporter(Policy):
    """``flowmark``: envelopes to a backend or another collector, the receipt checked."""

    endpoint: str
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    spool: Spool | None = None


class FileExporter(Policy):
    """``file``: telemetry as OTLP/JSON, a request a line; letters as they are documented."""

    path: Path


class FlowmarkConnector(Policy):
    """``flowmark``: validates and folds traces."""

    signals: str = "safe"


class ErrorsConnector(Options):
    """``errors``: what nodes route to; a pipeline receives from it."""
