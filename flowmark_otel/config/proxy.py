"""The settings of the same-origin proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from flowmark_otel.config.parsers import file, secret, url_prefix, web_address, whole, words
from flowmark_otel.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """What the proxy can be told (contract, section 4, "Origin").

    ``endpoint``, ``api_key``, ``certificate``: the backend's OTLP/HTTP address, an ingest key, and
    authorities to trust, PEM. ``workflows``: the names that a page may write; none by default.
    ``prefix_path``: what stands before ``/v1/traces``. ``timeout``: milliseconds for a body to
    arrive, and again for the backend to answer. ``max_request_bytes``: of a body, before and after
    decompression. ``max_in_flight``: requests that are being forwarded at one time.
    """

    prefix: ClassVar[str] = "FLOWMARK_PROXY_"
    removed: ClassVar[Mapping[str, str]] = {}

    endpoint: str = setting(web_address, "http://127.0.0.1:4318", "where the backend takes OTLP")
    api_key: str | None = setting(secret, None, "ingest key of the backend", secret=True)
    certificate: Path | None = setting(file, None, "authorities to trust, PEM")
    workflows: tuple[str, ...] = setting(words, (), "workflow names that pages may write")
    prefix_path: str = setting(url_prefix, "", "path before /v1/traces and /v1/logs")
    timeout: int = setting(whole(1, 600_000), 10_000, "milliseconds for body, and for answer")
    max_request_bytes: int = setting(
        whole(1024, 64 << 20), 1 << 20, "largest body, also after decompression"
    )
    max_in_flight: int = setting(whole(1, 1024), 16, "requests forwarded at one time")

    def faults(self) -> list[str]:
        """Faults between settings: there are none."""
        return []
