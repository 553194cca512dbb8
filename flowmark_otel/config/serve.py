"""The settings of ``serve``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from flowmark_otel import names
from flowmark_otel.config.parsers import (
    address,
    capabilities,
    file,
    flag,
    is_loopback,
    one_of,
    quota,
    seconds,
    signals,
    text,
    trace_template,
    whole,
)
from flowmark_otel.config.settings import setting


def default_database_url() -> str:
    """SQLite in the user's data folder, which is created; needs the ``server`` extra."""
    from platformdirs import user_data_path  # noqa: PLC0415 - the base install has none

    path = user_data_path("flowmark-otel", appauthor=False, ensure_exists=True) / "flowmark.db"
    return f"sqlite:///{path}"


_WORKFLOWS: Final[int | None] = 10_000
_OPERATIONS: Final[int | None] = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What ``serve`` can be told (contract, sections 4 and 7).

    ``db``: URL of the store, empty for the user data folder; read ``database_url``.
    ``grpc``, ``http``, ``metrics``: ``HOST:PORT``, port 0 for any free one; no metrics address
    if None. ``tls_cert`` and ``tls_key``: PEM files, both or neither. ``retain``: seconds after
    its latest arrival that a run is kept, None for ever. ``open_after``: seconds after its start
    that what has no end is listed as open. ``failed_after``: seconds after which metrics count an
    operation as failed whose latest attempt failed and has no limit. ``max_request_bytes``: of a
    body, before and after decompression. ``without``: capabilities not to acknowledge (A21).
    ``trace_url``: template of links to a trace viewer. ``migrate``: bring an older schema up
    instead of refusing it. ``insecure_no_auth``: no keys, project ``default``, on loopback only.
    ``workers``: processes that take requests, on one store. ``log_level``: of the lines on standard
    error.
    ``max_events``, ``max_workflows``, ``max_operations``, ``max_groups``: quotas of projects that
    have none of their own, None for no limit.
    ``signals``: conventions to read as attempts (section 8), also set by ``FLOWMARK_SIGNALS``.
    """

    prefix: ClassVar[str] = "FLOWMARK_SERVE_"
    removed: ClassVar[Mapping[str, str]] = {}

    db: str = setting(
        text, "", "store, sqlite:////var/lib/flowmark.db or postgresql://user@host/name"
    )
    grpc: str = setting(address, "127.0.0.1:4317", "address of OTLP over gRPC")
    http: str = setting(address, "127.0.0.1:4318", "address of OTLP over HTTP, API and pages")
    tls_cert: Path | None = setting(file, None, "certificate, PEM")
    tls_key: Path | None = setting(file, None, "private key of the certificate, PEM")
    insecure_no_auth: bool = setting(flag, default=False, description="no keys; loopback only")
    retain: int | None = setting(seconds, None, "how long a run is kept, such as 90d")
    workers: int = setting(whole(1, 64), 1, "processes that take requests")
    open_after: int = setting(seconds, 900, "how long an end may be on its way, such as 15m")
    failed_after: int = setting(
        seconds, 120, "how long metrics wait for another attempt, such as 2m"
    )
    max_request_bytes: int = setting(
        whole(1024, 1 << 30), 64 << 20, "largest body, also after decompression"
    )
    migrate: bool = setting(flag, default=False, description="bring an older schema up")
    metrics: str | None = setting(address, None, "address of Prometheus metrics and health")
    log_level: str = setting(
        one_of("debug", "info", "warning", "error"), "warning", "least level that is logged"
    )
    trace_url: str | None = setting(trace_template, None, "link to a trace, with {trace_id}")
    max_events: int | None = setting(quota, None, "events a project may hold, or unlimited")
    max_workflows: int | None = setting(
        quota, _WORKFLOWS, "workflow names a project may hold, or unlimited"
    )
    max_operations: int | None = setting(
        quota, _OPERATIONS, "operation names a project may hold, or unlimited"
    )
    max_groups: int | None = setting(quota, None, "attempt groups a project may hold, or unlimited")
    signals: tuple[str, ...] = setting(
        signals,
        (names.SIGNALS_SAFE,),
        "conventions read as attempts: safe, none, or names",
        variable="FLOWMARK_SIGNALS",
    )
    without: tuple[str, ...] = setting(capabilities, (), "capability not to acknowledge")

    @property
    def database_url(self) -> str:
        """The URL of the store, the default one included."""
        return self.db or default_database_url()

    @property
    def keys_in_clear(self) -> list[str]:
        """The addresses that others can reach where keys cross the network unencrypted."""
        if self.tls_cert is not None or self.insecure_no_auth:
            return []
        return [value for value in (self.grpc, self.http) if not is_loopback(value)]

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities to acknowledge."""
        return tuple(name for name in (names.CAPABILITY,) if name not in self.without)

    def faults(self) -> list[str]:
        """Faults between settings: half a TLS pair, no keys on an address others can reach."""
        found = []
        if (self.tls_cert is None) != (self.tls_key is None):
            found.append("tls_cert and tls_key go together")
        if self.insecure_no_auth:
            found += [
                f"insecure_no_auth needs a loopback address, found {name} {value}"
                for name, value in (("grpc", self.grpc), ("http", self.http))
                if not is_loopback(value)
            ]
        return found
